"""The Airflow DAG of the topology hourly: each run counts the views that have arrived since the last one."""

from txbatch.orchestration import topology_dag

dag = topology_dag("jobs/hourly.py", is_paused_upon_creation=True, tags=["txbatch", "example"])
