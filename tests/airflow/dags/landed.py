"""The Airflow DAG of a topology by time, whose runs an asset starts."""

from datetime import UTC, datetime

from airflow.sdk import Asset, CronDataIntervalTimetable

from txbatch.orchestration import topology_dag

dag = topology_dag(
    "jobs/landed.py",
    schedule=[Asset("landed_upstream")],
    intervals=CronDataIntervalTimetable("0 0 1 1 *", timezone="UTC"),
    start_date=datetime(2024, 1, 1, tzinfo=UTC),
    catchup=True,
    emit_batch={"spark_binary": "spark3-submit"},  # tests/spark_stub.py
)
