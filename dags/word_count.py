"""The Airflow DAG of the topology word_count: each run counts the files that are new."""

from txbatch.orchestration import topology_dag

dag = topology_dag("jobs/word_count.py", tags=["txbatch", "example"])
