"""Airflow's own processes are killed under runs in the middle of each task: on an Airflow apart, by `make test-all` alone.

docs/run/buttons.md has a row for each. Each test has years of its own; years of several tests are in one decade.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import spark_stub
from airflow_buttons import AirflowButtons
from airflow_kills import Kills
from airflow_support import QUIET, Stack
from outages import Outage

from txbatch import settings
from txbatch.local.airflow import LocalAirflow
from txbatch.postgres.database.engine import connect

pytestmark = [pytest.mark.whole, pytest.mark.timeout(1200)]
ROOT = settings.project_root()
HERE = Path(__file__).parent
# An API server that is slow to start is no outage: a task gives up after so many beats without an answer.
PATIENT = {"AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS": "30"}


@pytest.fixture(scope="module")
def kills(
    new_database: Callable[[str], str], airflow_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kills]:
    """An Airflow with the one DAG, on a ledger of its own."""
    home, project, held = (tmp_path_factory.mktemp(name) for name in ("home", "project", "held"))
    (home / "java").symlink_to(ROOT / ".txbatch" / "java")
    for kind in ("dags", "jobs"):
        (project / kind).mkdir()
        shutil.copy(HERE / kind / "kills.py", project / kind)
    stub = spark_stub.install(tmp_path_factory.mktemp("bin"))
    ledger, database = new_database("migrated"), new_database(airflow_template)
    environment = {
        **QUIET,
        **PATIENT,
        "PATH": os.pathsep.join([os.environ["PATH"], str(stub)]),
        "TXBATCH_HOME": str(home),
        "TXBATCH_DATABASE_URL": ledger,
        "PIPELINE_FOLDER": str(held),
    }
    folders = home, project / "dags", ROOT / "plugins"
    airflow = LocalAirflow(*folders, database_url=database, environment=environment, unpaused=True)
    with airflow, AirflowButtons.of(airflow) as api:
        api.wait_for_dag("kills", parsed_after=airflow.started_at)
        stack = Stack(airflow, api, connect(ledger), home, held, Outage(ledger, home / "pg"))
        yield Kills(stack, held, database=database)


@pytest.mark.rule("R5", "R8", "R10")
def test_tasks_whose_workers_are_killed_are_tried_again(kills: Kills) -> None:
    """Of each task the supervisor and the process, so that nobody tells Airflow: it misses their heartbeats."""
    with kills.at_each_task(1950) as years:
        planned = kills.planned()
        kills.kill_workers()
    kills.assert_gone_on(years, planned, tries=2)


@pytest.mark.rule("R6", "R10")
def test_a_triggerer_and_an_api_server_that_are_killed_cost_no_try(kills: Kills) -> None:
    """Both at once: tasks at work ask until the API server answers again, waits go on in the next triggerer."""
    with kills.at_each_task(1955) as years:
        planned = kills.planned()
        for component in ("api-server", "triggerer"):
            kills.kill(component)
        kills.start_again("api-server", "triggerer")
    kills.assert_gone_on(years, planned, tries=1)
