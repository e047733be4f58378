"""The Airflow DAG of the topology reach: each run counts the shares that are new."""

from txbatch.orchestration import topology_dag

dag = topology_dag("jobs/reach.py", is_paused_upon_creation=True, tags=["txbatch", "example"])
