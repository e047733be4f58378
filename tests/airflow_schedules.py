"""Schedules of Airflow by kind: those whose runs have no interval, and those that give each run one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow import sdk
from airflow.sdk import Asset
from airflow.timetables import assets, events, interval, simple, trigger
from pendulum import instance

CRON = "0 2 * * *"
DAY = timedelta(days=1)
WITHOUT = {
    "@daily": "@daily",
    "@once": "@once",
    "@continuous": "@continuous",
    "asset": [Asset("upstream")],
    "any asset": Asset("one") | Asset("other"),
    "asset or time": assets.AssetOrTimeSchedule(
        timetable=interval.CronDataIntervalTimetable(CRON, "UTC"), assets=[Asset("upstream")]
    ),
    "cron": sdk.CronTriggerTimetable(CRON, timezone="UTC"),
    "cron of airflow": trigger.CronTriggerTimetable(CRON, timezone="UTC"),
    "delta": sdk.DeltaTriggerTimetable(DAY),
    "several": sdk.MultipleCronTriggerTimetable(CRON, "0 5 * * *", timezone="UTC"),
    "several of airflow": trigger.MultipleCronTriggerTimetable(CRON, "0 5 * * *", timezone="UTC"),
    "partitions": sdk.CronPartitionTimetable(CRON, timezone="UTC"),
    "events": events.EventsTimetable(event_dates=[instance(datetime(2026, 1, 1, tzinfo=UTC))]),
    "once of airflow": simple.OnceTimetable(),
}
WITH = {
    "none": None,
    "cron": sdk.CronDataIntervalTimetable(CRON, "UTC"),
    "cron of airflow": interval.CronDataIntervalTimetable(CRON, "UTC"),
    "delta": sdk.DeltaDataIntervalTimetable(DAY),
    "trigger": sdk.CronTriggerTimetable(CRON, timezone="UTC", interval=DAY),
    "several": sdk.MultipleCronTriggerTimetable(CRON, timezone="UTC", interval=DAY),
}
