"""Load the DAG files of a folder just like Airflow's DAG processor, and print all import errors by file.

Run `python -m txbatch.orchestration.dag_bag FOLDER` in a process of its own: a DAG file may do anything.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

try:
    from airflow.dag_processing.dagbag import BundleDagBag

    _NAMED = {"bundle_name": "dags-folder"}
except ImportError:  # Airflow 3.1
    from airflow.models.dagbag import BundleDagBag  # type: ignore[no-redef]

    _NAMED = {}


def main(folder: str) -> None:
    """Print the result in the last line, in JSON."""
    bag = BundleDagBag(dag_folder=folder, bundle_path=Path(folder), **_NAMED)
    found = {"dags": sorted(bag.dags), "errors": dict(bag.import_errors)}
    print(f"\n{json.dumps(found)}")


if __name__ == "__main__":
    main(sys.argv[1])
