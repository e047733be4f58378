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
from airflow_kills import COMMIT, EMIT, LAST, Kills, emission, kill_all, living
from airflow_support import QUIET, TASKS, Stack
from airflow_years import GREEN, MARKED_FAILED
from outages import Outage
from support import until

from txbatch import settings
from txbatch.local.airflow import COMPONENTS, LocalAirflow
from txbatch.postgres.database.engine import connect

pytestmark = [pytest.mark.whole, pytest.mark.timeout(1200)]
ROOT = settings.project_root()
HERE = Path(__file__).parent
# An API server that is slow to start is no outage: a call is tried for about a minute, and a task gives up after so many beats
# without an answer. Neither is a scheduler dead that is slow to start: after so many seconds another one takes its tasks.
PATIENT = {
    "AIRFLOW__WORKERS__EXECUTION_API_RETRIES": "30",
    "AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX": "2",
    "AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS": "30",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "900",
}
SKIPPED = ("success", GREEN[1] | {LAST: "skipped"})
# Tasks give an API server up within seconds: two beats, each of two calls.
IMPATIENT = {"AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS": "2", "AIRFLOW__WORKERS__EXECUTION_API_RETRIES": "2"}


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
        kills.an_hour_goes_by("triggerer")
        kills.start_again("api-server", "triggerer")
    kills.assert_gone_on(years, planned, tries=1)


@pytest.mark.rule("R6", "R10")
def test_a_scheduler_that_is_killed_and_started_again_at_once_costs_no_try(kills: Kills) -> None:
    """Its workers go on with their tasks, and are found once all is to end."""
    with kills.at_each_task(1960) as years:
        planned = kills.planned()
        left = kills.kill_alone("scheduler")
        kills.assert_found_by_its_user(left)
        kills.start_again("scheduler")
    kills.assert_gone_on(years, planned, tries=1)
    kill_all(left)


@pytest.mark.rule("R5", "R8", "R10")
def test_tasks_of_a_scheduler_that_was_away_for_long_are_tried_again(kills: Kills) -> None:
    """The next scheduler gives them a second try, and the first one, which its worker has at work still, ends."""
    with kills.at_each_task(1965) as years:
        planned, workers = kills.planned(), kills.workers()
        left = kills.kill_alone("scheduler")
        kills.an_hour_goes_by("scheduler")
        kills.start_again("scheduler")
        until(lambda: not living(each.task for each in workers), "the first try goes on")
    kills.assert_gone_on(years, planned, tries=2)
    log = kills.stack.api.task_log(kills.dag, str(years[EMIT]), EMIT, 1)
    assert "Server indicated the task shouldn't be running anymore" in log
    kill_all(left)


@pytest.mark.rule("R5", "R6", "R8", "R10")
def test_runs_go_on_after_all_of_airflow_was_killed_at_once(kills: Kills) -> None:
    """As by a power cut, with an hour until the next start."""
    with kills.at_each_task(1970) as years:
        planned = kills.planned()
        kills.cut_power()
        told = kills.status()
    assert (told["committed_txid"], told["in_flight"]) == (planned[years[LAST]], 3)
    kills.start_again(*COMPONENTS)
    kills.assert_gone_on(years, planned, tries=2)


@pytest.mark.rule("R6")
def test_a_run_that_is_deleted_while_it_waits_leaves_its_batch_to_the_next_one(kills: Kills) -> None:
    """Its wait in the triggerer, which shows that it lives, ends with it: else nobody could take the batch over."""
    api = kills.stack.api
    with kills.held(emission(1980)):
        kills.begin(1980, emission(1980))
        kills.defer(1981)
        planned = kills.planned()
        txid = planned[1981]
        assert kills.shows_life(txid)
        api.fail_run(kills.dag, "1981")
        api.delete_run(kills.dag, "1981")
        until(lambda: not kills.shows_life(txid), "the wait of a deleted run goes on")
        kills.end_lease(txid)
        kills.trigger("heir", 1981)
        until(lambda: kills.attempts(txid)[-1][0] == "heir", f"the heir does not begin: {kills.attempts(txid)}")
    for run_id in ("1980", "heir"):
        assert kills.end(run_id) == GREEN
    assert kills.note("heir") == kills.told(1981, 2)
    kills.assert_kept(planned)


@pytest.mark.rule("R5", "R6", "R8", "R10")
def test_an_api_server_away_for_longer_than_all_tries_leaves_red_runs_that_go_on_once_cleared(kills: Kills) -> None:
    """Meanwhile one task commits, and one has called success: neither can tell, and nothing is done twice.

    The asset event of a success that could not tell is not sent (docs/run/buttons.md); who reads `report.batches` has it.
    """
    kills.start_scheduler_with(IMPATIENT)  # the last test of this module, whose workers stay so
    with kills.at_each_task(1975) as years:
        planned = kills.planned()
        kills.kill("api-server")
        kills.commits.close()
        kills.release(LAST)
        until(lambda: kills.statuses()[planned[years[COMMIT]]] == "committed", "the commit is held still")
        kills.until_red(years)
    kills.start_again("api-server")
    for place, year in years.items():
        assert kills.note(str(year)).startswith(MARKED_FAILED.format(place if place in TASKS else COMMIT))
        kills.clear_failed(year)
        assert kills.end(str(year)) == (SKIPPED if place == LAST else GREEN)
        if place != LAST:
            kills.assert_told(year, attempts=2 if place == EMIT else 1)
    kills.assert_kept(planned)
    txid = kills.txid(years[LAST])
    assert kills.note(str(years[LAST])) == f"txbatch: already committed as txid {txid}; nothing is changed"
    assert txid not in kills.stack.announced(kills.dag)
