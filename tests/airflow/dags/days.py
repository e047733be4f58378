"""The Airflow DAG of a topology by days of New York, which is triggered from its pages alone."""

from datetime import datetime
from zoneinfo import ZoneInfo

from airflow.timetables.interval import CronDataIntervalTimetable

from txbatch.orchestration import topology_dag

NEW_YORK = ZoneInfo("America/New_York")

dag = topology_dag(
    "jobs/days.py",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="America/New_York"),
    start_date=datetime(2013, 1, 1, tzinfo=NEW_YORK),
    end_date=datetime(2013, 2, 28, tzinfo=NEW_YORK),
    catchup=False,
    emit_batch={"spark_binary": "spark3-submit"},  # tests/spark_stub.py
)
