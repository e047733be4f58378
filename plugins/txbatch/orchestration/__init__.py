"""DAGs for Airflow. `topology_dag()` makes a DAG from a job file; `topology_asset()` is the asset updated by the DAG.

`verify_dag()` makes a DAG to verify committed batches, `rebuild_dag()` a DAG to count all batches again, `gc_dag()` a DAG
to fold old contributions. `open_reports()` reads the counted results in a task of Airflow.

Read `dag`, `operators`, `submitting`, `airflow`, `hook`, `submit_hook` in this order. Waiting: `waiting`, `trigger`. What
fails: `failing`. Intervals: `schedules`, `intervals`; of a DAG with `intervals=`: `grid`, `partitions`. Fields of a run's
form: `form`, `catching_up`, `restating`. Late records: `looking_back`. Other DAGs: `verify`, `rebuild`, `retention`.
Texts for people: `doc`, `result`. `dag_bag` loads DAG files just like Airflow.
"""

from txbatch.fit import check_fit, check_python, check_version

check_python()
try:
    from airflow import __version__

    check_version("airflow", "apache-airflow", __version__)  # already imported; reading the metadata is slower
    from txbatch.orchestration.airflow import open_reports
    from txbatch.orchestration.dag import topology_asset, topology_dag
    from txbatch.orchestration.rebuild import rebuild_dag
    from txbatch.orchestration.retention import gc_dag
    from txbatch.orchestration.verify import verify_dag
except ImportError:
    check_fit("airflow")
    raise

__all__ = ["gc_dag", "open_reports", "rebuild_dag", "topology_asset", "topology_dag", "verify_dag"]
