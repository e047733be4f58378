"""The Airflow DAG of a job that tells what Spark's processes know."""

from txbatch.orchestration import topology_dag

dag = topology_dag("jobs/probe.py", emit_batch={"env_vars": {"PROBE_GIVEN": "yes"}})
