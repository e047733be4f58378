"""The Airflow DAG of the topology sales: each run counts the sales that were added since the last one."""

from txbatch.orchestration import topology_dag

dag = topology_dag("jobs/sales.py", is_paused_upon_creation=True, tags=["txbatch", "example"])
