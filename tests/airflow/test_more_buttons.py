"""Buttons of Airflow at each task, and together: tried by `make test-all` alone. docs/run/buttons.md has a row for each.

Each test has years of its own, and leaves no batch open: the next one would wait for it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from airflow_buttons import AirflowButtons
from airflow_support import TASKS
from airflow_years import DAG, ENDED_SECONDS, GREEN, MARKED_FAILED, MARKED_SUCCESS, Years, start_of
from support import until

from txbatch import settings
from txbatch.local.airflow import LocalAirflow

pytestmark = [pytest.mark.whole, pytest.mark.timeout(1200), pytest.mark.usefixtures("active_years")]
FIRST, EMIT, COMMIT, LAST = TASKS


@pytest.mark.rule("R5", "R8")
@pytest.mark.parametrize(("year", "task", "attempts"), [(1981, FIRST, 1), (1982, EMIT, 2)])
def test_what_is_marked_success_at_its_work_is_done_by_the_next_task(
    years: Years, year: int, task: str, attempts: int
) -> None:
    run_id = f"success-{task}"
    years.mark_at_work(run_id, year, task, "success")
    assert years.end(run_id) == GREEN
    assert years.note(run_id) == years.told(year, attempts)
    assert [status for _, status in years.attempts(years.txid(year))][-1] == "committed"
    years.assert_counted_once()


@pytest.mark.rule("R8", "R10")
def test_a_commit_that_is_marked_success_at_its_work_is_committed_once_it_is_cleared(years: Years) -> None:
    years.mark_at_work("success-commit", 1983, COMMIT, "success")
    assert years.end("success-commit")[0] == "failed"
    note = years.note("success-commit")
    assert note.startswith("txbatch: failed: TX413 txid "), note
    assert " is emitted, not committed; clear the task commit" in note
    years.clear("success-commit", COMMIT)
    assert years.end("success-commit") == GREEN
    assert years.note("success-commit") == years.told(1983, 1)
    years.assert_counted_once()


@pytest.mark.rule("R8")
def test_a_success_that_is_marked_is_announced_once_it_is_cleared(years: Years) -> None:
    years.mark_at_work("success-success", 1984, LAST, "success")
    assert years.end("success-success") == GREEN
    txid = years.txid(1984)
    told = f"txbatch: marked by hand after the commit of txid {txid}: no asset event was sent; clear the task success"
    assert years.note("success-success").startswith(told)
    assert txid not in years.stack.announced(DAG)
    years.clear("success-success", LAST)
    assert years.end("success-success") == GREEN
    assert years.note("success-success") == years.told(1984, 1)
    assert years.stack.announced(DAG).count(txid) == 1


@pytest.mark.rule("R5", "R10")
@pytest.mark.parametrize(
    ("year", "task", "attempts"), [(1985, FIRST, 1), (1986, EMIT, 2), (1987, COMMIT, 2), (1988, LAST, 1)]
)
def test_what_is_marked_failed_at_its_work_goes_on_once_the_run_is_cleared(
    years: Years, year: int, task: str, attempts: int
) -> None:
    """A commit that was cut off is taken back whole; what was committed before its success stays."""
    run_id = f"failed-{task}"
    years.mark_at_work(run_id, year, task, "failed")
    assert years.end(run_id)[0] == "failed"
    note = years.note(run_id)
    assert note.startswith(MARKED_FAILED.format(task)), note
    assert ("; committed before: txid " in note) == (task == LAST), note
    years.stack.api.clear_run(DAG, run_id)
    assert years.end(run_id) == GREEN
    assert years.note(run_id) == years.told(year, attempts)
    years.assert_counted_once()


@pytest.mark.rule("R8")
@pytest.mark.parametrize(("year", "state"), [(1989, "success"), (1990, "failed")])
def test_a_run_that_is_marked_at_its_work_counts_nothing_until_it_is_cleared(
    years: Years, year: int, state: str
) -> None:
    run_id = f"whole-{state}"
    with years.held(EMIT):
        years.trigger(run_id, year)
        years.until_at(EMIT)
        years.stack.api.mark_run(DAG, run_id, state)
        time.sleep(ENDED_SECONDS)
    assert years.end(run_id)[0] == state
    assert years.note(run_id).startswith(MARKED_SUCCESS if state == "success" else MARKED_FAILED.format(EMIT))
    assert "planned" in years.statuses().values()
    years.stack.api.clear_run(DAG, run_id)
    assert years.end(run_id) == GREEN
    assert years.note(run_id) == years.told(year, 2)
    years.assert_counted_once()


@pytest.mark.rule("R8")
def test_a_commit_that_is_marked_skipped_commits_nothing(years: Years) -> None:
    with years.held(EMIT):
        years.trigger("skipped", 2006)
        years.until_at(EMIT)
        years.mark("skipped", COMMIT, "skipped")
    assert years.end("skipped")[0] == "success"
    assert years.note("skipped") == MARKED_SUCCESS
    assert "emitted" in years.statuses().values()
    years.clear("skipped", COMMIT)
    assert years.end("skipped") == GREEN
    assert years.note("skipped") == years.told(2006, 1)
    years.assert_counted_once()


@pytest.mark.rule("R5")
def test_a_task_that_is_cleared_alone_leaves_what_is_behind_as_it_is(years: Years) -> None:
    """An emission that is cleared is a new attempt; the commit behind it is red until it is cleared, too."""
    with years.held(EMIT):
        years.trigger("alone", 1991)
        years.until_at(EMIT)
        years.mark("alone", COMMIT, "failed")
    assert years.end("alone")[0] == "failed"
    years.clear("alone", EMIT, downstream=False)
    assert years.end("alone")[0] == "failed"
    assert years.note("alone").startswith(MARKED_FAILED.format(COMMIT))
    years.clear("alone", COMMIT)
    assert years.end("alone") == GREEN
    assert years.note("alone") == years.told(1991, 2)
    years.assert_counted_once()


@pytest.mark.rule("R5", "R10")
@pytest.mark.parametrize(
    ("year", "task", "attempts"), [(2007, FIRST, 1), (2008, EMIT, 2), (2009, COMMIT, 1), (2010, LAST, 1)]
)
def test_a_task_that_is_cleared_at_its_work_is_ended_and_begins_again(
    years: Years, year: int, task: str, attempts: int
) -> None:
    run_id = f"cleared-{task}"
    with years.held(task):
        years.trigger(run_id, year)
        years.until_at(task)
        years.clear(run_id, task)
        time.sleep(ENDED_SECONDS)
    assert years.end(run_id) == GREEN
    assert years.note(run_id) == years.told(year, attempts)
    assert years.stack.announced(DAG).count(years.txid(year)) == 1
    years.assert_counted_once()


@pytest.mark.rule("R2")
def test_a_mark_does_not_pass_an_interval_that_was_refused(years: Years) -> None:
    before = years.statuses()
    half = (datetime(1992, 6, 1, tzinfo=UTC), start_of(1993))
    years.stack.api.trigger(DAG, "half-a-year", logical_date=datetime(1993, 7, 1, tzinfo=UTC), data_interval=half)
    assert years.end("half-a-year")[0] == "failed"
    refused = years.note("half-a-year")
    years.mark("half-a-year", FIRST, "success")
    state, states = years.end("half-a-year")
    assert (state, states[EMIT]) == ("failed", "failed")
    assert refused.startswith("txbatch: failed: TX118 the run's interval 1992-06-01")
    assert years.note("half-a-year").startswith("txbatch: failed: TX118 the run's interval 1992-06-01")
    assert years.statuses() == before


@pytest.mark.rule("R2")
def test_a_form_that_chooses_other_data_is_refused_for_a_batch_that_was_planned(years: Years) -> None:
    years.trigger("level-1", 1994, level="1")
    assert years.end("level-1") == GREEN
    before = years.stack.snapshot(DAG)
    years.stack.api.create_backfill(DAG, start_of(1994), start_of(1994), conf={"level": "2"})
    run = years.backfilled(1994)[1994]
    assert run["state"] == "failed"
    assert years.note(run["dag_run_id"]).startswith("txbatch: failed: TX414 ")
    assert years.stack.snapshot(DAG) == before


@pytest.mark.rule("R2", "R6", "R18")
def test_a_backfill_beside_a_run_that_catches_up_counts_each_interval_once(years: Years) -> None:
    """Whoever is second for a year finds it committed; both are green."""
    api = years.stack.api
    with years.held(EMIT):
        api.trigger(DAG, "catches-up", conf={"catch_up": "1995-01-01/1998-01-01"})
        years.until_at(EMIT)
        api.create_backfill(DAG, start_of(1995), start_of(1997), run_backwards=True)
        time.sleep(ENDED_SECONDS)
    state, _ = years.end("catches-up")
    runs = years.backfilled(1995, 1996, 1997)
    assert (state, {run["state"] for run in runs.values()}) == ("success", {"success"})
    assert len({years.txid(year) for year in (1995, 1996, 1997)}) == 3
    assert years.note("catches-up").startswith(("txbatch: txids ", "txbatch: txid ", "txbatch: already committed"))
    years.assert_counted_once()


@pytest.mark.rule("R2", "R6")
def test_a_run_waits_for_the_lease_of_a_deleted_one_without_a_slot(years: Years) -> None:
    stack = years.stack
    with years.held(EMIT):
        years.trigger("gone", 1999)
        years.until_at(EMIT)
        stack.api.fail_run(DAG, "gone")
        stack.api.delete_run(DAG, "gone")
        time.sleep(ENDED_SECONDS)
    years.trigger("heir", 1999)
    until(lambda: years.state("heir", EMIT) == "deferred", "the heir does not wait")
    assert " of airflow:buttons:gone" in stack.log(DAG, "heir", EMIT)
    years.end_leases()
    assert years.end("heir") == GREEN
    assert years.note("heir") == years.told(1999, 2)
    years.assert_counted_once()


@pytest.mark.rule("R2")
def test_a_deleted_run_whose_batch_is_committed_is_found_by_the_next_one(years: Years) -> None:
    years.trigger("first", 2000)
    assert years.end("first") == GREEN
    before = years.stack.snapshot(DAG)
    years.stack.api.delete_run(DAG, "first")
    years.trigger("first", 2000)
    assert years.end("first") == ("success", dict.fromkeys(TASKS, "skipped"))
    assert years.note("first").startswith(f"txbatch: already committed as txid {years.txid(2000)}; ")
    assert years.stack.snapshot(DAG) == before


@pytest.fixture
def other(
    years: Years,
    project: Path,
    tmp_path: Path,
    new_database: Callable[[str], str],
    airflow_template: str,
    monkeypatch: pytest.MonkeyPatch,
) -> LocalAirflow:
    """A second Airflow on the same ledger and staging, with the same DAG alone; not started yet."""
    for kind in ("dags", "jobs"):
        (tmp_path / "project" / kind).mkdir(parents=True)
        shutil.copy(project / kind / "buttons.py", tmp_path / "project" / kind)
    monkeypatch.delenv("TXBATCH_DATABASE_URL", raising=False)
    folders = tmp_path / "other", tmp_path / "project" / "dags", settings.project_root() / "plugins"
    given = years.stack.airflow._environment
    return LocalAirflow(*folders, database_url=new_database(airflow_template), environment=given, unpaused=True)


@pytest.mark.rule("R2", "R5")
def test_two_airflows_on_one_ledger_count_an_interval_once(years: Years, other: LocalAirflow) -> None:
    """Both name their run alike, as two schedulers do: each attempt takes the place of the other's, and one is committed."""
    with other, AirflowButtons.of(other) as api:
        api.wait_for_dag(DAG)
        api.unpause(DAG)
        with years.held(EMIT):
            years.trigger("both", 2001)
            years.until_at(EMIT)
            api.trigger(DAG, "both", logical_date=datetime(2002, 6, 1, tzinfo=UTC))
            years.begins_again(EMIT)
        states = {years.end("both")[0], api.wait_for_run(DAG, "both", timeout=400)["state"]}
        assert "success" in states
        for each in (years.stack.api, api):
            each.clear_run(DAG, "both")
            assert each.wait_for_run(DAG, "both", timeout=400)["state"] == "success"
            assert str(each.dag_run(DAG, "both")["note"]).startswith("txbatch: ")
        scheduled = next(each for each in api.dag_runs(DAG) if each["run_type"] == "scheduled")
        assert api.wait_for_run(DAG, scheduled["dag_run_id"], timeout=400)["state"] == "success"
        note = str(api.dag_run(DAG, scheduled["dag_run_id"])["note"])
        assert note.startswith("txbatch: already committed as txid "), "the other Airflow has counted it"
    assert years.txid(2001)
    years.assert_counted_once()
