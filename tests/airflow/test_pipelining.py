"""Several batches in flight: emitted in parallel, committed in txid order; nobody waits for the dead, nor for ever.

Here tests/spark_stub.py emits, a process that Airflow's hook starts and ends as it does Spark. With Spark itself the tasks
of the flights, the sentences and the words are run, killed, retried and cleared.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow_support import TASKS, Stack
from sqlalchemy import text
from support import until

from txbatch.postgres.ledger import PostgresLedger

pytestmark = pytest.mark.timeout(1200)


@dataclass(frozen=True)
class Pipeline:
    """The topology of jobs/pipeline.py: txid n has word n - 1, as long as no batch is aborted."""

    stack: Stack
    folder: Path

    def hold(self, *numbers: int) -> None:
        for number in numbers:
            (self.folder / f"hold word {number:02}").touch()

    def release(self, number: int) -> None:
        (self.folder / f"hold word {number:02}").unlink()

    def at(self, number: int) -> bool:
        """Whether Spark is at this word, or was."""
        return (self.folder / f"at word {number:02}").exists()

    def trigger(self, run_id: str, txid: int, **conf: Any) -> str:
        """Start a run, and wait until it has planned this txid."""
        self.stack.api.trigger("pipeline", run_id, conf=conf)
        until(lambda: self.runs().get(txid) == run_id, f"{run_id} has no txid {txid}")
        return run_id

    def driven(self, txid: int) -> bool:
        """Whether a driver works on this txid, and not one of another run of the tests."""
        place, session = f"/pipeline/{txid}/", self.stack.home.parent.name
        running = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
        emitting = (" ".join(each) for each in running if "--attempt-folder" in each)
        return any(place in each and session in each for each in emitting)

    def runs(self) -> dict[int, str]:
        """By txid the run that planned it."""
        return dict(self.stack.sql("SELECT txid, run_id FROM report.batches WHERE topology = 'pipeline'"))

    def statuses(self) -> list[str]:
        """Of each txid."""
        listed = "SELECT status FROM report.batches WHERE topology = 'pipeline' ORDER BY txid"
        return [status for (status,) in self.stack.sql(listed)]

    def until_waiting(self, run_id: str, task: str, txid: int) -> None:
        """Until this task of the run is deferred, and says for whom it waits."""
        until(
            lambda: self.stack.task_state("pipeline", run_id, task) == "deferred", f"{task} of {run_id} is not deferred"
        )
        assert f"waits for txid {txid} of airflow:pipeline:" in self.stack.log("pipeline", run_id, task)

    def assert_succeeds(self, run_id: str) -> None:
        """Every task of the run, in the end; else what the failed one said."""
        ended = self.stack.end("pipeline", run_id)
        assert ended == ("success", dict.fromkeys(TASKS, "success")), self.failed_tries(run_id)

    def failed_tries(self, run_id: str) -> list[str]:
        """What tries that failed have said, at their end."""
        api = self.stack.api
        tries = [
            each for task in TASKS for each in api.task_tries("pipeline", run_id, task) if each["state"] == "failed"
        ]
        return [api.task_log("pipeline", run_id, each["task_id"], each["try_number"])[-3000:] for each in tries]

    def assert_counted(self, words: int) -> None:
        """So many words, each once, as the state and the contributions say."""
        expected = {f"word {number:02}": 1 for number in range(words)}
        assert dict(self.stack.sql("SELECT word, count FROM report.pipeline")) == expected
        assert dict(self.stack.sql("SELECT word, sum(count) FROM contribution.pipeline GROUP BY word")) == expected


@pytest.fixture(scope="module")
def pipeline(stack: Stack, pipeline_folder: Path) -> Pipeline:
    return Pipeline(stack, pipeline_folder)


@pytest.fixture(scope="module")
def four(pipeline: Pipeline) -> list[str]:
    """Runs of every kind at once: three emit in parallel, a fourth waits; in the order of their txids."""
    api = pipeline.stack.api
    pipeline.hold(0, 1, 2)
    api.unpause("pipeline")  # Airflow at once schedules the newest year
    api.trigger("pipeline", "manual")
    year = datetime(2021, 1, 1, tzinfo=UTC)
    api.create_backfill("pipeline", year, year)
    until(lambda: pipeline.at(0) and pipeline.at(1) and pipeline.at(2), "the three are not emitted in parallel")
    api.trigger("pipeline", "fourth")
    pipeline.until_waiting("fourth", TASKS[0], 1)
    return [pipeline.runs()[txid] for txid in (1, 2, 3)] + ["fourth"]


@pytest.fixture(scope="module")
def committed(pipeline: Pipeline, four: list[str]) -> list[str]:
    """The same, committed: the last one was emitted first."""
    stack = pipeline.stack
    stack.api.trigger("pipeline", "impatient", conf={"turn_timeout_minutes": 0.05})
    assert stack.end("pipeline", "impatient")[0] == "failed"
    for number in (2, 1):
        pipeline.release(number)
        pipeline.until_waiting(four[number], "commit", 1)
    assert pipeline.statuses() == ["planned", "emitted", "emitted"]
    pipeline.release(0)
    for run_id in four:
        pipeline.assert_succeeds(run_id)
    return four


@pytest.mark.rule("R6")
def test_runs_of_every_kind_are_emitted_in_parallel_and_committed_in_the_order_of_their_txids(
    pipeline: Pipeline, committed: list[str]
) -> None:
    kinds = [pipeline.stack.api.dag_run("pipeline", run_id)["run_type"] for run_id in committed[:3]]
    assert sorted(kinds) == ["backfill", "manual", "scheduled"]
    order = "SELECT txid FROM report.batches WHERE topology = 'pipeline' ORDER BY committed_at"
    assert pipeline.stack.sql(order) == [(1,), (2,), (3,), (4,)]
    assert sorted(pipeline.stack.announced("pipeline")) == [1, 2, 3, 4]
    assert [pipeline.failed_tries(run_id) for run_id in committed] == [[]] * 4
    waits = [pipeline.stack.log("pipeline", run_id, "commit").count("waits for txid") for run_id in committed[1:3]]
    assert waits == [1, 1], "a wait is over when all before it are final"
    pipeline.assert_counted(4)


@pytest.mark.rule("R6")
def test_a_turn_has_a_deadline_which_no_retry_puts_off(pipeline: Pipeline, committed: list[str]) -> None:
    stack = pipeline.stack
    assert stack.tries("pipeline", "impatient")[TASKS[0]] == 1
    complaint = "waited 0:00:03: txid 1 of airflow:pipeline:"
    assert complaint in stack.log("pipeline", "impatient", TASKS[0])


@pytest.fixture(scope="module")
def inherited(pipeline: Pipeline, committed: list[str]) -> str:
    """A run that has waited for one whose retries are used up, and for one that was deleted in the middle of its emit."""
    stack = pipeline.stack
    (pipeline.folder / "fail word 04").touch()
    pipeline.hold(5)
    pipeline.trigger("failed", 5)
    pipeline.trigger("deleted", 6)
    pipeline.trigger("heir", 7)
    assert stack.end("pipeline", "failed")[0] == "failed"
    until(lambda: pipeline.at(5), "the run to be deleted does not emit")
    assert pipeline.driven(6)
    stack.api.fail_run("pipeline", "deleted")
    stack.api.delete_run("pipeline", "deleted")
    pipeline.until_waiting("heir", "commit", 5)
    until(lambda: not pipeline.driven(6), "the deleted run emits still")
    (pipeline.folder / "fail word 04").unlink()
    pipeline.release(5)
    with stack.engine.begin() as connection:  # as if nobody had renewed them for a quarter of an hour
        ended = (
            "UPDATE txbatch.batch SET lease_until = clock_timestamp() WHERE topology = 'pipeline' AND txid IN (5, 6)"
        )
        connection.execute(text(ended))
    pipeline.assert_succeeds("heir")
    return "heir"


@pytest.mark.whole
@pytest.mark.rule("R6")
def test_nobody_waits_for_a_failed_run_or_a_deleted_one(pipeline: Pipeline, inherited: str) -> None:
    stack = pipeline.stack
    assert pipeline.statuses() == ["committed"] * 7
    attempts = "SELECT DISTINCT txid, run FROM report.attempts WHERE topology = 'pipeline' AND txid > 4 AND "
    assert sorted(stack.sql(f"{attempts} attempt_id = 1")) == [
        (5, "airflow:pipeline:failed"),
        (6, "airflow:pipeline:deleted"),
        (7, "airflow:pipeline:heir"),
    ]
    finished = sorted(stack.sql(f"{attempts} status = 'committed'"))
    assert finished == [(txid, "airflow:pipeline:heir") for txid in (5, 6, 7)]
    (event,) = stack.api.asset_events(source_dag_id="pipeline", source_run_id=inherited)
    assert (event["extra"]["txid"], event["extra"]["txids"][-1]) == (7, 7)
    pipeline.assert_counted(7)


@pytest.mark.whole
def test_the_failed_run_is_cleared_and_finds_its_batch_committed(pipeline: Pipeline, inherited: str) -> None:
    before = pipeline.stack.snapshot("pipeline")
    pipeline.stack.api.clear_run("pipeline", "failed")
    assert pipeline.stack.end("pipeline", "failed") == ("success", dict.fromkeys(TASKS, "skipped"))
    assert "already committed as txid 5" in pipeline.stack.log("pipeline", "failed", TASKS[0])
    assert pipeline.stack.snapshot("pipeline") == before


@pytest.mark.whole
@pytest.mark.rule("R6", "R16")
def test_a_batch_that_no_longer_continues_is_planned_anew_by_its_run(pipeline: Pipeline, inherited: str) -> None:
    stack = pipeline.stack
    pipeline.hold(7)
    pipeline.trigger("aborted", 8)
    pipeline.trigger("behind", 9)
    until(lambda: pipeline.at(7), "the run to be aborted does not emit")
    pipeline.until_waiting("behind", "commit", 8)
    PostgresLedger(stack.engine).abort("pipeline", 8, "wrong")
    pipeline.release(7)
    pipeline.assert_succeeds("behind")
    assert pipeline.statuses()[7:] == ["aborted", "aborted", "committed"]
    assert "planned after txid 8, but txid 7 is the last committed" in stack.log("pipeline", "behind", "commit")
    assert stack.announced("pipeline")[-1:] == [10]
    pipeline.assert_counted(8)

    assert stack.end("pipeline", "aborted")[0] == "failed"
    stack.api.clear_run("pipeline", "aborted", only_failed=True)
    assert stack.end("pipeline", "aborted")[0] == "success"
    assert pipeline.runs()[11] == "aborted"
    pipeline.assert_counted(9)


@pytest.mark.rule("R17")
def test_a_run_counts_a_batch_again_once_whatever_is_killed_or_cleared(
    pipeline: Pipeline, committed: list[str]
) -> None:
    stack, txid = pipeline.stack, len(pipeline.statuses()) + 1
    stack.kill_once("commit")
    stack.api.trigger("pipeline", "again", conf={"restate": "1", "why": "it was misheard"})
    pipeline.assert_succeeds("again")
    assert stack.tries("pipeline", "again")["commit"] == 2
    restated = "SELECT txid, position, reason, requested_by FROM report.batches WHERE kind = 'restate'"
    assert stack.sql(f"{restated} AND topology = 'pipeline'") == [(txid, 1, "it was misheard", "admin")]
    note = stack.api.dag_run("pipeline", "again")["note"]
    assert note == f"txbatch: txid {txid} restates txid 1: 1 record, 1 key"
    event = stack.api.asset_events(source_dag_id="pipeline")[-1]["extra"]
    assert event == {"topology": "pipeline", "txid": txid, "txids": [txid], "restates": [1]}
    before = stack.snapshot("pipeline")
    stack.api.clear_run("pipeline", "again")
    assert stack.end("pipeline", "again") == ("success", dict.fromkeys(TASKS, "skipped"))
    assert stack.snapshot("pipeline") == before


def day(number: int) -> tuple[datetime, datetime]:
    return datetime(2026, 1, number, tzinfo=UTC), datetime(2026, 1, number + 1, tzinfo=UTC)


@pytest.mark.whole
@pytest.mark.rule("R4")
def test_an_interval_waits_without_a_slot_until_its_source_is_ready(pipeline: Pipeline) -> None:
    stack, conf = pipeline.stack, {"ask_again_seconds": 5}
    stack.api.trigger("late", "waits", conf=conf, logical_date=day(2)[0], data_interval=day(1))
    until(lambda: stack.task_state("late", "waits", TASKS[0]) == "deferred", "it is not deferred")
    stack.api.trigger(
        "late", "gives-up", conf={**conf, "ready_timeout_minutes": 0.1}, logical_date=day(3)[0], data_interval=day(2)
    )
    assert stack.end("late", "gives-up")[0] == "failed"
    assert "waited 0:00:06: the source is not ready for 2026-01-02" in stack.log("late", "gives-up", TASKS[0])
    assert stack.sql("SELECT * FROM report.batches WHERE topology = 'late'") == []
    (pipeline.folder / "ready").touch()
    assert stack.end("late", "waits") == ("success", dict.fromkeys(TASKS, "success"))
    # How often it was tried is Airflow's affair: under load it fails a try that comes back from its second wait too soon.
    assert "Pausing task as DEFERRED" in stack.api.task_log("late", "waits", TASKS[0], 1)
    assert stack.sql("SELECT word, count FROM report.late") == [("word", 1)]
