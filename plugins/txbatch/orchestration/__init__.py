"""Airflow's words become ours: `topology_dag` makes a DAG of a job file, `topology_asset` is what it updates."""

from txbatch.orchestration.dag import topology_asset, topology_dag

__all__ = ["topology_asset", "topology_dag"]
