"""Minute 8 of the first tutorial: Airflow finds the three days that the command line has counted, and a clear changes nothing."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow_buttons import AirflowButtons
from airflow_support import QUIET
from doc_pages import TUTORIALS, blocks, commands
from support import until

from txbatch import settings
from txbatch.cli.project.starter import make_project
from txbatch.local.airflow import LocalAirflow

ROOT = settings.project_root()
SAID = "already committed as txid {}"
DAYS = 3


def first_run() -> list[str]:
    """The arguments of the page's first `txbatch run`."""
    asked = [each for block in blocks(TUTORIALS[0]) if block.language == "console" for each in commands(block.text)]
    return next(shlex.split(each)[1:] for each in asked if each.startswith("txbatch run "))


@pytest.mark.whole
@pytest.mark.timeout(600)
def test_what_the_command_line_has_counted_is_found_in_airflow(
    new_database: Callable[[str], str], airflow_template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, home = tmp_path / "shop", tmp_path / "home"
    make_project(shop)
    home.mkdir()
    (home / "java").symlink_to(ROOT / ".txbatch" / "java")
    given = {"TXBATCH_HOME": str(home), "TXBATCH_DATABASE_URL": new_database("migrated")}
    environment = os.environ | given | {"PYTHONPATH": str(ROOT / "plugins")}
    subprocess.run([sys.executable, "-m", "txbatch", *first_run()], cwd=shop, env=environment, check=True)
    folders, url = (home, shop / "dags", ROOT / "plugins"), new_database(airflow_template)
    with (
        LocalAirflow(*folders, database_url=url, environment={**QUIET, **given}, unpaused=True) as airflow,
        AirflowButtons.of(airflow) as api,
    ):
        api.wait_for_dag("sales", parsed_after=airflow.started_at)
        names = [run["dag_run_id"] for run in until(lambda: days(api), seconds=120)]
        ended = [api.wait_for_run("sales", name) for name in names]
        assert [SAID.format(txid) in run["note"] for txid, run in enumerate(ended, 1)] == [True] * DAYS
        api.clear_run("sales", names[0])
        assert SAID.format(1) in api.wait_for_run("sales", names[0])["note"]


def days(api: AirflowButtons) -> list[dict[str, Any]] | None:
    """The runs of the three days, once they are there."""
    found = api.dag_runs("sales")
    return sorted(found, key=lambda run: run["data_interval_start"]) if len(found) == DAYS else None
