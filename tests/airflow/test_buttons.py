"""Buttons of Airflow, each once: mark, clear with what is behind and in a range, pause, delete, backfill; on one small DAG.

One story, in the order of its tests. docs/run/buttons.md has a row for each; test_more_buttons.py presses them at each task.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from airflow_support import TASKS
from airflow_years import DAG, GREEN, MARKED_FAILED, Years, start_of
from support import until

pytestmark = pytest.mark.timeout(900)
FIRST, EMIT, COMMIT, LAST = TASKS
# Some loops of the scheduler.
LOOPS_SECONDS = 4


@pytest.fixture(scope="module")
def paused(years: Years) -> dict[str, Any]:
    """A run whose DAG is paused for a month while it emits; and what came of that."""
    api = years.stack.api
    with years.held(EMIT):
        api.unpause(DAG)  # Airflow at once schedules the newest year
        years.until_at(EMIT)
        (run,) = api.dag_runs(DAG)
        api.pause(DAG)
    until(lambda: years.state(run["dag_run_id"], EMIT) == "success", "the task at work does not end")
    years.end_leases()
    time.sleep(LOOPS_SECONDS)
    year = int(run["data_interval_start"][:4])
    return {"run": run["dag_run_id"], "year": year, "commit": years.state(run["dag_run_id"], COMMIT)}


@pytest.mark.rule("R6")
def test_a_paused_dag_ends_the_task_at_work_and_begins_no_other(years: Years, paused: dict[str, Any]) -> None:
    assert paused["commit"] in (None, "scheduled")
    assert years.statuses() == {1: "emitted"}
    assert years.stack.api.dag_run(DAG, paused["run"])["state"] == "running"


@pytest.fixture(scope="module")
def marked(years: Years, paused: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """The same run, whose commit is marked as successful before the DAG goes on; how it ended."""
    years.mark(paused["run"], COMMIT, "success")
    years.stack.api.unpause(DAG)
    return years.end(paused["run"])


@pytest.mark.rule("R8")
def test_a_commit_that_is_marked_success_is_no_commit(
    years: Years, paused: dict[str, Any], marked: tuple[str, dict[str, str]]
) -> None:
    assert marked == ("failed", dict(zip(TASKS, ("success", "success", "success", "failed"), strict=True)))
    note = years.note(paused["run"])
    assert note.startswith("txbatch: failed: TX413 txid 1 is emitted, not committed; clear the task commit"), note
    assert years.statuses() == {1: "emitted"}
    assert years.stack.announced(DAG) == []


@pytest.fixture(scope="module")
def cleared(years: Years, paused: dict[str, Any], marked: tuple[str, dict[str, str]]) -> int:
    """The same run, whose commit is cleared with what is behind; its year."""
    years.clear(paused["run"], COMMIT)
    assert years.end(paused["run"]) == GREEN
    return int(paused["year"])


@pytest.mark.rule("R2", "R10")
def test_a_task_that_is_cleared_with_what_is_behind_goes_on_with_its_txid(
    years: Years, paused: dict[str, Any], cleared: int
) -> None:
    assert years.note(paused["run"]) == years.told(cleared, 1)
    assert years.attempts(1) == [(paused["run"], "committed")]
    assert years.stack.announced(DAG) == [1]
    years.assert_counted_once()


@pytest.fixture(scope="module")
def left(years: Years, cleared: int) -> str:
    """A run whose emission is marked as failed in the middle of its work."""
    years.mark_at_work("left", 2021, EMIT, "failed")
    assert years.end("left")[0] == "failed"
    return "left"


@pytest.mark.rule("R5")
def test_a_task_that_is_marked_failed_leaves_its_batch_open_and_says_how_to_go_on(years: Years, left: str) -> None:
    note = years.note(left)
    assert note.startswith(MARKED_FAILED.format(EMIT)), note
    assert years.statuses() == {1: "committed", 2: "planned"}
    years.assert_counted_once()


@pytest.fixture(scope="module")
def again(years: Years, left: str, project: Path) -> str:
    """The same interval by another run, once that one was deleted, its lease ended and the job file changed."""
    years.stack.api.delete_run(DAG, left)
    with (project / "jobs" / "buttons.py").open("a") as job:
        job.write("\n# changed between two tries\n")
    years.end_leases()
    years.trigger("again", 2021)
    assert years.end("again") == GREEN
    return "again"


@pytest.mark.rule("R2", "R5")
def test_a_deleted_runs_open_batch_is_committed_by_the_next_run_of_its_interval(years: Years, again: str) -> None:
    (first, status), second = years.attempts(2)
    assert (first, status != "committed", second) == ("left", True, (again, "committed"))
    assert years.note(again) == years.told(2021, 2)
    assert years.stack.announced(DAG) == [1, 2]
    years.assert_counted_once()


@pytest.mark.rule("R5")
def test_a_job_file_that_changed_between_two_tries_is_read_by_the_second(years: Years, again: str) -> None:
    """Each attempt keeps the digest of the file; the batch is counted by one of them alone."""
    codes = years.stack.sql("SELECT code FROM report.attempts WHERE topology = 'buttons' AND txid = 2")
    assert len({*codes}) == 2


@pytest.mark.rule("R2")
def test_a_dag_that_was_paused_for_long_goes_on_and_shows_the_hole(years: Years, cleared: int, again: str) -> None:
    """Without catchup Airflow schedules the newest interval alone: what lies between is a hole, which a backfill fills."""
    scheduled = [run for run in years.stack.api.dag_runs(DAG) if run["run_type"] == "scheduled"]
    assert [run["data_interval_start"][:4] for run in scheduled] == [str(cleared)]
    gaps = years.stack.sql("SELECT gap_start, gap_end FROM report.gaps WHERE topology = 'buttons'")
    assert gaps == [(start_of(2022), start_of(cleared))]


@pytest.fixture(scope="module")
def backfilled(years: Years, again: str) -> dict[int, dict[str, Any]]:
    """Two years backfilled backwards, with another form; the run of each."""
    years.stack.api.create_backfill(
        DAG, start_of(2021), start_of(2022), run_backwards=True, max_active_runs=1, conf={"turn_timeout_minutes": 7}
    )
    return years.backfilled(2021, 2022)


@pytest.mark.rule("R2", "R18")
def test_a_backfill_runs_backwards_with_another_form_and_counts_what_is_missing(
    years: Years, backfilled: dict[int, dict[str, Any]]
) -> None:
    assert backfilled[2022]["start_date"] < backfilled[2021]["start_date"]
    assert {run["conf"]["turn_timeout_minutes"] for run in backfilled.values()} == {7}
    assert years.txid(2022) == 3
    assert years.note(backfilled[2022]["dag_run_id"]) == years.told(2022, 1)
    note = years.note(backfilled[2021]["dag_run_id"])
    assert note.startswith("txbatch: already committed as txid 2; nothing is changed; to count it again: ")
    assert note.partition(" | ")[2].startswith("txid 2, 2021-01-01 00:00 to 2022-01-01 00:00 (UTC): ")
    years.assert_counted_once()


@pytest.mark.rule("R15")
def test_a_range_that_is_cleared_changes_nothing_that_is_committed(
    years: Years, paused: dict[str, Any], backfilled: dict[int, dict[str, Any]]
) -> None:
    """The first task of each run from a year on, without what is behind."""
    before = years.stack.snapshot(DAG)
    runs = [paused["run"], "again", *(run["dag_run_id"] for run in backfilled.values())]
    years.stack.api.clear_tasks(DAG, backfilled[2021]["dag_run_id"], [FIRST], future=True)
    for run_id in runs:
        state, states = years.end(run_id)
        assert (state, states[FIRST]) == ("success", "skipped")
        assert years.note(run_id).startswith("txbatch: already committed as txid ")
    assert years.stack.snapshot(DAG) == before
