"""The ledger is away for longer than Airflow makes tries, in the middle of each task, and while twenty runs work; all of them
go on by themselves.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from airflow_support import TASKS, Stack
from databases import session
from sizes import some_of
from support import until

from txbatch.local.airflow_api import FINAL_RUN_STATES

pytestmark = pytest.mark.timeout(2400)
# Three retries, each five seconds after the try before, and the starts of their processes.
AWAY_SECONDS = 40
# Ten minutes by the clock, at which Airflow makes tries as it always does; OUTAGE_SECONDS=60 for a first look.
LONG_SECONDS = some_of(600, 600, "OUTAGE_SECONDS")
TWENTY = [f"away-{number:02}" for number in range(1, 21)]
# The words of txids 3 and 4 are at work until the ledger is away; what comes behind them waits, or is at any step.
HELD = {3: "word 02", 4: "word 03"}
COMMITTED = "SELECT txid FROM report.batches WHERE topology = 'twenty' AND status = 'committed'"
BLOCKED = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'state.outage'::regclass"


def away(stack: Stack, task: str, held: Path) -> None:
    """Take the ledger away until long after the task has noticed."""
    stack.outage.begin()
    held.unlink(missing_ok=True)
    until(lambda: stack.task_state("outage", "through", task) == "deferred", f"{task} does not wait for the ledger")
    time.sleep(AWAY_SECONDS)
    assert stack.task_state("outage", "through", task) == "deferred"
    assert "waits for the ledger since " in stack.log("outage", "through", task)
    stack.outage.end()


@pytest.mark.whole
def test_the_ledger_is_away_longer_than_all_retries_and_nothing_is_red(stack: Stack, pipeline_folder: Path) -> None:
    """R10: and nothing is counted twice."""
    held = {task: pipeline_folder / f"hold {task}" for task in TASKS if task != "commit"}
    for each in held.values():
        each.touch()
    stack.api.trigger("outage", "through")
    for task in TASKS[:2]:
        until((pipeline_folder / f"at {task}").exists, f"{task} does not begin")
        away(stack, task, held[task])
    with session(stack.outage.of) as ask:  # nobody writes the state until commit is in the middle of its work
        ask("BEGIN")
        ask("LOCK TABLE state.outage IN SHARE MODE")
        until(lambda: bool(stack.sql(BLOCKED)), "commit does not write")
        away(stack, "commit", pipeline_folder / "nothing")
    until((pipeline_folder / "at success").exists, "success does not begin")
    away(stack, "success", held["success"])
    assert stack.end("outage", "through") == ("success", dict.fromkeys(TASKS, "success"))
    assert stack.tries("outage", "through") == dict.fromkeys(TASKS, 1)
    assert stack.sql("SELECT word, count FROM report.outage") == [("word", 1)]
    assert stack.sql("SELECT word, sum(count) FROM contribution.outage GROUP BY word") == [("word", 1)]
    assert stack.announced("outage") == [1]
    note = stack.api.dag_run("outage", "through")["note"]
    assert re.fullmatch(r"txbatch: txid 1: 1 record, 1 key, 2 attempts; waited (\d+ s|\d+ min) for the ledger", note)


def states(stack: Stack) -> dict[str, str]:
    """The state of each of the twenty runs."""
    return {run["dag_run_id"]: run["state"] for run in stack.api.dag_runs("twenty")}


def all_wait(stack: Stack) -> bool:
    """Whether each run that goes on has one task that waits, and none that does anything else. Two may have ended before."""
    left = [run_id for run_id, state in states(stack).items() if state not in FINAL_RUN_STATES]
    tasks = [[each["state"] for each in stack.api.task_instances("twenty", run_id)] for run_id in left]
    at_work = [[state for state in each if state not in ("success", None)] for each in tasks]
    return len(left) >= len(TWENTY) - 2 and all(each == ["deferred"] for each in at_work)


@pytest.mark.whole
def test_twenty_runs_at_any_step_go_on_by_themselves_after_ten_minutes_without_a_ledger(
    stack: Stack, pipeline_folder: Path
) -> None:
    """R10: nobody clears, retries or marks anything, and each word counts once."""
    holds = [pipeline_folder / f"twenty hold {word}" for word in HELD.values()]
    for each in holds:
        each.touch()
    for run_id in TWENTY:
        stack.api.trigger("twenty", run_id)
    at_work = [pipeline_folder / f"twenty at {word}" for word in HELD.values()]
    until(lambda: all(each.exists() for each in at_work), "two batches are not emitted", seconds=600)
    until(lambda: len(stack.sql(COMMITTED)) == 2, "what came before is not committed", seconds=600)
    planned = dict(stack.sql("SELECT txid, run_id FROM report.batches WHERE topology = 'twenty'"))
    held = [planned[txid] for txid in HELD]

    stack.outage.begin()
    began = time.monotonic()
    for each in holds:
        each.unlink()
    while time.monotonic() - began < LONG_SECONDS:
        assert "failed" not in states(stack).values()
        time.sleep(5)
    until(lambda: all_wait(stack), "not each run that goes on waits for the ledger", seconds=600, every=2)
    assert all(stack.task_state("twenty", run_id, "emit_batch") == "deferred" for run_id in held)
    stack.outage.end()

    ends = until(lambda: {*states(stack).values()} <= FINAL_RUN_STATES and states(stack), seconds=1200, every=2)
    assert ends == dict.fromkeys(TWENTY, "success")
    counted = {f"word {number:02}": 1 for number in range(len(TWENTY))}
    assert dict(stack.sql("SELECT word, count FROM report.twenty")) == counted
    assert dict(stack.sql("SELECT word, sum(count) FROM contribution.twenty GROUP BY word")) == counted
    for run_id in held:
        assert re.search(r"; waited \d+ (s|min) for the ledger$", stack.api.dag_run("twenty", run_id)["note"])
