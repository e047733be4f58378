"""The Airflow DAGs of topologies whose ledger goes away: in the middle of each task of a run, and while twenty runs work."""

from txbatch.orchestration import topology_dag

STUB = {"spark_binary": "spark3-submit"}  # tests/spark_stub.py

dag = topology_dag("jobs/outage.py", emit_batch=STUB)
many = topology_dag("jobs/twenty.py", emit_batch=STUB, max_active_runs=20)
