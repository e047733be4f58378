"""A DAG file in an Airflow that does not fit: the import error is one line of txbatch, and not that of a missing module."""

from __future__ import annotations

from pathlib import Path

import pytest
from forks import told_with_airflow

PROGRAM = """
import json, sys
import airflow

# As in another Airflow, of which nothing is imported yet; one before 3 has no such package.
for name in [name for name in sys.modules if name.startswith(("txbatch.orchestration", "airflow.sdk"))]:
    del sys.modules[name]
airflow.__version__, sys.modules["airflow.sdk"] = sys.argv[1], None
try:
    import txbatch.orchestration
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""


@pytest.mark.parametrize("version", ["2.11.0", "3.0.6", "3.5.0"])
def test_an_airflow_that_does_not_fit_is_told_before_anything_of_it_is_missed(version: str, tmp_path: Path) -> None:
    kind, told = told_with_airflow(PROGRAM, version, folder=tmp_path)
    fits = "apache-airflow>=3.1,<3.5"
    line = f"apache-airflow {version} does not fit txbatch, which needs {fits}; run `pip install '{fits}'`"
    assert (kind, told) == ("PackageMisfit", f"TX809 (no retry helps): {line}")
