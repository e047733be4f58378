"""Airflow's own API server starts also with pages that cannot be imported: without the pages, and its log says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[2] / "plugins"
# What a worker of the API server begins with; `missing` is a module that cannot be imported.
BEGUN = """
import json, sys
missing = {missing!r}
if missing:
    sys.modules[missing] = None
from airflow.api_fastapi.app import create_app
from fastapi.testclient import TestClient
app = create_app(apps="core")
answer = TestClient(app).get("/api/v2/version")
print(json.dumps([answer.status_code, "/txbatch" in [getattr(route, "path", "") for route in app.routes]]))
"""


@pytest.mark.parametrize("missing", ["txbatch.ui.airflow_auth", pytest.param("", marks=pytest.mark.whole)])
def test_the_api_server_starts_with_pages_or_without(missing: str, tmp_path: Path) -> None:
    """An exception that the plugin let pass would end the API server. `missing` is as if Airflow had moved a name."""
    told = {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(PLUGINS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__API_AUTH__JWT_SECRET": "a secret of this test alone, long enough for its algorithm " * 2,
    }
    command = [sys.executable, "-c", BEGUN.format(missing=missing)]
    done = subprocess.run(command, env=os.environ | told, cwd=tmp_path, capture_output=True, text=True, check=False)
    log = done.stdout + done.stderr
    assert done.returncode == 0, log
    assert json.loads(done.stdout.splitlines()[-1]) == [200, not missing], log
    assert log.count("the pages of txbatch cannot be shown") == (1 if missing else 0), log
