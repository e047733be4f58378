"""The Airflow DAG of a topology by the year, under whose runs test_killed_processes.py kills processes of Airflow."""

from datetime import UTC, datetime

from airflow.sdk import CronDataIntervalTimetable

from txbatch.orchestration import topology_dag

dag = topology_dag(
    "jobs/kills.py",
    schedule=CronDataIntervalTimetable("0 0 1 1 *", timezone="UTC"),
    start_date=datetime(1900, 1, 1, tzinfo=UTC),
    end_date=datetime(2000, 1, 1, tzinfo=UTC),  # behind which Airflow makes no run of its own
    catchup=False,
    emit_batch={"spark_binary": "spark3-submit"},  # tests/spark_stub.py
)
