"""The ledger is away, in the middle of each task, for longer than Airflow makes tries; every task goes on by itself."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from airflow_support import TASKS, Stack
from databases import session
from support import until

pytestmark = pytest.mark.timeout(1200)
# Three retries, each five seconds after the try before, and the starts of their processes.
AWAY_SECONDS = 40
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
