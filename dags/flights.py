"""The Airflow DAG of the topology flights: one run per day of New York, all in the past (see docs/flights.md)."""

from datetime import datetime
from zoneinfo import ZoneInfo

from airflow.timetables.interval import CronDataIntervalTimetable

from txbatch.orchestration import topology_dag

NEW_YORK = ZoneInfo("America/New_York")

dag = topology_dag(
    "jobs/flights.py",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="America/New_York"),
    start_date=datetime(2013, 1, 1, tzinfo=NEW_YORK),
    end_date=datetime(2013, 12, 31, tzinfo=NEW_YORK),
    catchup=False,
    coalesce=True,
    tags=["txbatch", "example"],
)
