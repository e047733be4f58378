"""The Airflow DAG of the topology clicks: each run counts the messages that came since the last one."""

from txbatch.orchestration import topology_dag

dag = topology_dag("jobs/clicks.py", is_paused_upon_creation=True, tags=["txbatch", "example"])
