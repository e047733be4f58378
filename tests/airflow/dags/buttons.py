"""The Airflow DAG of a topology by the year, whose buttons tests press: test_buttons.py and its neighbours."""

from datetime import UTC, datetime

from airflow.sdk import CronDataIntervalTimetable

from txbatch.orchestration import topology_dag

dag = topology_dag(
    "jobs/buttons.py",
    schedule=CronDataIntervalTimetable("0 0 1 1 *", timezone="UTC"),
    start_date=datetime(1970, 1, 1, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=True,
    emit_batch={"spark_binary": "spark3-submit"},  # tests/spark_stub.py
)
