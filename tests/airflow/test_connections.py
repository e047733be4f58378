"""Airflow's connections name the databases of states apart (R21)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from txbatch.settings import project_root

CONNECTION = (
    '{"conn_type": "postgres", "host": "there", "login": "me", "password": "geheim", "port": 5433, "schema": "wh"}'
)
ASK = """
from txbatch.core.errors import DefinitionError
from txbatch.orchestration.airflow import resolve_settings
where = resolve_settings()
print(where.warehouse_url("warehouse"))
try:
    where.warehouse_url("other")
except DefinitionError as error:
    print(error)
"""


def test_a_connection_names_the_warehouse(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(project_root() / "plugins"),
        "AIRFLOW_HOME": str(tmp_path),
        "TXBATCH_DATABASE_URL": "postgresql://me@here/ledger",
        "AIRFLOW_CONN_TXBATCH_WAREHOUSE": CONNECTION,
    }
    asked = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert asked.returncode == 0, asked.stderr
    url, error = asked.stdout.splitlines()[-2:]
    assert url == "postgresql+psycopg2://me:geheim@there:5433/wh"
    assert error.endswith("set TXBATCH_DATABASE_URL_OTHER, or the Airflow connection txbatch_other")
