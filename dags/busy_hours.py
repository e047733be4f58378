"""The Airflow DAG of the topology busy_hours: a run for each commit of hourly, whose asset it waits for."""

from txbatch.orchestration import topology_asset, topology_dag

dag = topology_dag(
    "jobs/busy_hours.py",
    schedule=[topology_asset("hourly")],
    is_paused_upon_creation=True,
    tags=["txbatch", "example"],
)
