"""The Airflow DAG of the topology sales_by_day: one run per day."""

from datetime import UTC, datetime

from airflow.timetables.interval import CronDataIntervalTimetable

from txbatch.orchestration import topology_dag

dag = topology_dag(
    "jobs/sales_by_day.py",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=True,
    tags=["txbatch", "example"],
)
