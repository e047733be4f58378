"""The Airflow DAG of the topology sales: a run is a day, in UTC."""

from datetime import UTC, datetime

from airflow.timetables.interval import CronDataIntervalTimetable

from txbatch.orchestration import topology_dag

dag = topology_dag(
    "jobs/sales.py",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    end_date=datetime(2026, 1, 3, tzinfo=UTC),  # the last day of the example; a later day goes on
    catchup=True,
)
