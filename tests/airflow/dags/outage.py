"""The Airflow DAG of a topology whose ledger goes away in the middle of each task."""

from txbatch.orchestration import topology_dag

dag = topology_dag("jobs/outage.py", emit_batch={"spark_binary": "spark3-submit"})  # tests/spark_stub.py
