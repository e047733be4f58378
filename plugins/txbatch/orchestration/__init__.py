"""Airflow's words become ours: `topology_dag` makes a DAG of a job file, `topology_asset` is what it updates.

`open_reports` reads what was counted, in a task of Airflow.
"""

from txbatch.orchestration.airflow import open_reports
from txbatch.orchestration.dag import topology_asset, topology_dag

__all__ = ["open_reports", "topology_asset", "topology_dag"]
