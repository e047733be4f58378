"""The Airflow DAG of days of files, of which late ones are counted by the next run."""

from datetime import UTC, datetime

from airflow.sdk import CronDataIntervalTimetable

from txbatch.orchestration import topology_dag

dag = topology_dag(
    "jobs/lookback.py",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2024, 1, 1, tzinfo=UTC),
    end_date=datetime(2024, 12, 31, tzinfo=UTC),  # behind which Airflow makes no run of its own
    catchup=False,
)
