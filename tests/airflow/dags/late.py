"""The Airflow DAG of a topology whose source is not ready yet."""

from txbatch.orchestration import topology_dag

dag = topology_dag("jobs/late.py", emit_batch={"spark_binary": "spark3-submit"})  # tests/spark_stub.py
