"""The Airflow DAG of the topology sessions: each run counts the views that have arrived since the last one."""

from txbatch.orchestration import topology_dag

dag = topology_dag("jobs/sessions.py", is_paused_upon_creation=True, tags=["txbatch", "example"])
