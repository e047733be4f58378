"""Airflow's words become ours: `topology_dag()` makes a DAG of a job file, `topology_asset()` is what it updates.

`verify_dag()` makes the one that verifies what is committed, `rebuild_dag()` the one that counts all of it again,
`gc_dag()` the one that folds what need not be kept; `open_reports()` reads what was counted, in a task of Airflow.

Read `dag`, `operators`, `airflow`, `hook`, `submit_hook` in this order. Waiting: `waiting`, `trigger`. Intervals:
`schedules`, `intervals`. What a run's form asks for: `catching_up`, `restating`. Other DAGs: `verify`, `rebuild`,
`retention`. What people see: `doc`, `result`. `dag_bag` loads DAG files as Airflow does.
"""

from txbatch.fit import check_fit, check_version

try:
    from airflow import __version__

    check_version("airflow", "apache-airflow", __version__)  # it is at hand: asking for what is installed takes longer
    from txbatch.orchestration.airflow import open_reports
    from txbatch.orchestration.dag import topology_asset, topology_dag
    from txbatch.orchestration.rebuild import rebuild_dag
    from txbatch.orchestration.retention import gc_dag
    from txbatch.orchestration.verify import verify_dag
except ImportError:
    check_fit("airflow")
    raise

__all__ = ["gc_dag", "open_reports", "rebuild_dag", "topology_asset", "topology_dag", "verify_dag"]
