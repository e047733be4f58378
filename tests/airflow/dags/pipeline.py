"""The Airflow DAG of a topology with three batches in flight, which is scheduled, backfilled and triggered at once."""

from datetime import UTC, datetime

from airflow.sdk import CronDataIntervalTimetable

from txbatch.orchestration import topology_dag

# By the year: at midnight Airflow would add a run of its own to those that the tests have made.
dag = topology_dag(
    "jobs/pipeline.py",
    schedule=CronDataIntervalTimetable("0 0 1 1 *", timezone="UTC"),
    start_date=datetime(2020, 1, 1, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=True,
    emit_batch={"spark_binary": "spark3-submit"},  # tests/spark_stub.py
)
dag.get_task("emit_batch").retries = 0
