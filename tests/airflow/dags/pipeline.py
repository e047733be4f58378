"""The Airflow DAG of a topology with three batches in flight, which is scheduled, backfilled and triggered at once."""

from datetime import UTC, datetime

from airflow.sdk import CronDataIntervalTimetable

from txbatch.orchestration import topology_dag

dag = topology_dag(
    "jobs/pipeline.py",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=True,
)
dag.get_task("emit_batch").retries = 0
