"""The Airflow DAG of the topology sentences: one sentence per run."""

from txbatch.orchestration import topology_dag

dag = topology_dag("jobs/sentences.py", tags=["txbatch", "example"])
