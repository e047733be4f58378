"""Airflow's own processes are killed under runs in the middle of each task: on an Airflow apart, by `make test-all` alone.

docs/run/buttons.md has a row for each. Each test has years of its own; years of several tests are in one decade.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import spark_stub
from airflow_buttons import AirflowButtons
from airflow_kills import EMIT, Kills, emission, kill_all, living
from airflow_support import QUIET, Stack
from airflow_years import GREEN, MARKED_FAILED
from outages import Outage
from support import until

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


@pytest.mark.rule("R5", "R8", "R10")
def test_tasks_of_a_scheduler_that_is_killed_are_begun_again_by_the_next_one(kills: Kills) -> None:
    """It alone: its workers go on, until they hear that their tries are over. So two tries of each task are at work."""
    with kills.at_each_task(1960) as years:
        planned, workers = kills.planned(), kills.workers()
        with kills.begin_again(years):
            left = kills.kill("scheduler", alone=True)
            kills.start_again("scheduler")
        until(lambda: not living(each.task for each in workers), "a task of the killed scheduler goes on")
    kill_all(left)
    kills.assert_gone_on(years, planned, tries=2)


@pytest.mark.rule("R5")
def test_a_run_that_no_api_server_answered_for_long_is_red_and_goes_on_once_it_is_cleared(kills: Kills) -> None:
    """Airflow takes its task for dead, and no worker can begin another try: all of them are used up."""
    year, run_id = 1970, "1970"
    with kills.held(emission(year)):
        kills.begin(year, emission(year))
        (worker,) = kills.workers(1)
        kills.kill("api-server")
        kills.an_hour_goes_by("worker")
        until(lambda: kills.state_kept(year, EMIT) == "failed", "tries without an API server do not end")
        kills.start_again("api-server")
        assert kills.end(run_id)[0] == "failed"
        until(lambda: not living([worker.task]), "the task goes on")
    note = kills.note(run_id)
    assert note.startswith(MARKED_FAILED.format(EMIT)), note
    assert kills.statuses()[kills.planned()[year]] == "planned"
    kills.stack.api.clear_run(kills.dag, run_id)
    assert kills.end(run_id) == GREEN
    assert kills.note(run_id) == kills.told(year, 2)
    kills.assert_counted_once()


@pytest.mark.rule("R5", "R8", "R10")
def test_an_airflow_of_which_all_is_killed_goes_on_after_the_next_start(kills: Kills) -> None:
    """Within a minute: first Airflow takes the scheduler before for dead. It is the last test, as the URL is another one."""
    airflow = kills.stack.airflow
    with kills.one_waits_for_another(1975) as years:
        planned = kills.planned()
        kill_all(airflow.processes())
        airflow.stop()
    airflow.start()
    with AirflowButtons.of(airflow) as api:
        again = replace(kills, stack=replace(kills.stack, api=api))
        again.assert_gone_on(years, planned, tries=2)
