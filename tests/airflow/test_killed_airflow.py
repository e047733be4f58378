"""Processes of Airflow itself are killed in the middle of each task: a worker, the triggerer, the API server.

Each story is one run. Whatever dies, the run ends green by itself, and its year is counted once.
"""

from __future__ import annotations

import pytest
from airflow_support import TASKS
from airflow_years import DAG, Years
from support import until

pytestmark = [pytest.mark.whole, pytest.mark.timeout(3000), pytest.mark.usefixtures("active_years")]
FIRST, _, COMMIT, _ = TASKS


def assert_counted(years: Years, run_id: str, year: int) -> None:
    """The run is green, and says what it has counted; its year counts once."""
    assert years.end(run_id)[0] == "success"
    txid = years.txid(year)
    assert [status for _, status in years.attempts(txid)].count("committed") == 1
    assert f"txid {txid}" in years.note(run_id)
    years.assert_counted_once()


@pytest.mark.rule("R5", "R10")
def test_a_worker_that_is_killed_at_each_task_leaves_its_work_to_another_try(years: Years) -> None:
    """The process of the task lives on, beside the next try: the fence decides."""
    for task in TASKS:
        with years.held(task):
            if task == FIRST:
                years.trigger("worker", 2003)
            years.until_at(task)
            years.stack.kill_worker()
            if task == COMMIT:
                until(lambda: years.stack.tries(DAG, "worker")[COMMIT] == 2, "commit is not tried again")
            else:
                years.begins_again(task)
    assert_counted(years, "worker", 2003)
    assert years.stack.tries(DAG, "worker") == dict.fromkeys(TASKS, 2)


@pytest.mark.rule("R5", "R10")
def test_an_api_server_that_is_killed_at_each_task_costs_a_try_at_most(years: Years) -> None:
    """A task that reaches no API server for three heartbeats is ended by its worker, and is tried again."""
    for task in TASKS:
        with years.held(task):
            if task == FIRST:
                years.trigger("api-server", 2004)
            years.until_at(task)
            years.stack.kill_and_restart("api-server")
    assert_counted(years, "api-server", 2004)
    assert set(years.stack.tries(DAG, "api-server").values()) <= {1, 2}


@pytest.mark.rule("R10")
def test_a_triggerer_that_is_killed_in_each_wait_costs_no_try(years: Years) -> None:
    """Each task waits for the ledger, which is away; another triggerer takes the wait over."""
    stack = years.stack
    for task in TASKS:
        with years.held(task):
            if task == FIRST:
                years.trigger("triggerer", 2005)
            years.until_at(task)
            stack.outage.begin()
            years.release(task)
            until(lambda: years.state("triggerer", task) == "deferred", f"{task} does not wait")  # noqa: B023
            stack.kill_and_restart("triggerer")
            stack.outage.end()
    assert_counted(years, "triggerer", 2005)
    assert stack.tries(DAG, "triggerer") == dict.fromkeys(TASKS, 1)
    assert " for the ledger" in years.note("triggerer")
