"""A lease is kept alive in the ledger and in the heartbeat file, on any filesystem, until a newer attempt has begun (R5)."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import uuid4

import pytest
from postgres_bench import Bench, Calls, words
from sqlalchemy import Engine, text
from support import LogSpout, code, run, word_count

from txbatch.core.batch.heartbeat import Heartbeat
from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import TransientError
from txbatch.postgres.ledger import PostgresLedger
from txbatch.run.lease import attempt_kept_alive
from txbatch.storage.staging import AttemptFolder, Staging

pytestmark = pytest.mark.rule("R5")


@pytest.fixture
def ledger(engine: Engine) -> PostgresLedger:
    return PostgresLedger(engine, lease_seconds=1)


@pytest.fixture
def assignment(bench: Bench, ledger: PostgresLedger) -> Assignment:
    return ledger.start_attempt(bench.planned(), run("run"), code())


@pytest.fixture
def folder(assignment: Assignment) -> AttemptFolder:
    """Not on a local disk."""
    made = Staging(f"memory://{uuid4().hex}").attempt(assignment)
    made.write_assignment(assignment)
    return made


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def test_the_beat_rises_with_the_lease(
    bench: Bench, ledger: PostgresLedger, assignment: Assignment, folder: AttemptFolder
) -> None:
    with attempt_kept_alive(ledger, assignment, folder):
        assert folder.read_heartbeat() == Heartbeat(1)
        bench.run("UPDATE txbatch.batch SET lease_until = now() - interval '1 h'")
        wait_for(lambda: folder.read_heartbeat().beat >= 2)
        assert bench.ledger.batch("word_count", 1).lease_live
        assert folder.read_heartbeat().superseded is None


def test_a_newer_attempt_or_an_abort_is_told(
    bench: Bench, ledger: PostgresLedger, assignment: Assignment, folder: AttemptFolder
) -> None:
    with attempt_kept_alive(ledger, assignment, folder):
        newer = ledger.start_attempt(bench.ledger.batch("word_count", 1), run("run"), code())
        wait_for(lambda: folder.read_heartbeat().superseded == "1:2")
    bench.ledger.abort("word_count", 1, "why")
    with attempt_kept_alive(ledger, newer, folder):
        abort = "the abort of txid 1 (why; the next run plans its records anew)"
        wait_for(lambda: folder.read_heartbeat().superseded == abort)


def test_a_topology_that_is_dropped_meanwhile_has_no_newer_attempt(
    bench: Bench, ledger: PostgresLedger, assignment: Assignment, folder: AttemptFolder
) -> None:
    with attempt_kept_alive(ledger, assignment, folder):
        bench.run("DELETE FROM txbatch.attempt", "DELETE FROM txbatch.batch_key", "DELETE FROM txbatch.batch")
        wait_for(lambda: folder.read_heartbeat().superseded == "the end of its topology, which was dropped,")


def test_no_beat_while_the_ledger_cannot_be_asked(
    bench: Bench, ledger: PostgresLedger, assignment: Assignment, folder: AttemptFolder
) -> None:
    asked: list[bool] = []

    class Away(PostgresLedger):
        def renew_lease(self, assignment: Assignment) -> bool:
            asked.append(True)
            raise TransientError("away")

    with attempt_kept_alive(Away(bench.engine, lease_seconds=1), assignment, folder):
        wait_for(lambda: len(asked) >= 2)
        assert folder.read_heartbeat().beat == 0


def test_a_folder_that_is_gone_stays_gone(folder: AttemptFolder) -> None:
    folder.remove()
    folder.write_heartbeat(Heartbeat(1))
    assert not folder.filesystem.exists(folder.path(""))
    with pytest.raises(TransientError, match=r"fence\.json cannot be read"):
        folder.read_heartbeat()


@pytest.mark.rule("R6")
def test_leases_are_renewed_beside_a_batch_that_is_at_work(engine: Engine) -> None:
    """A commit that stood still held up the renewal for a minute, and then no lease was renewed at all."""
    bench = Bench(engine, word_count(LogSpout({"a": 1_000_000}), "waited", max_pending=5))
    for name in ("run", "run+1", "run+2"):
        bench.emitted({"waited": words(man=10)["word_count"]}, name)
    bench.run("UPDATE txbatch.batch SET lease_until = clock_timestamp()")
    with engine.begin() as commit:
        commit.execute(text("SELECT txid FROM txbatch.batch WHERE topology = 'waited' AND txid = 2 FOR UPDATE"))
        bench.ledger.renew_leases_of_run("waited", "run", "+")
    assert [bench.ledger.batch("waited", txid).lease_live for txid in (1, 2, 3)] == [True, False, True]


@pytest.mark.rule("R6")
@pytest.mark.parametrize("waiting", [True, False], ids=["of a batch that waits", "of an attempt"])
def test_no_lease_waits_for_a_batch_of_the_same_call_that_is_at_work(engine: Engine, waiting: bool) -> None:
    """One thread renews all leases of a call: a long commit of the first batch let those of the others end."""
    bench = Bench(engine, word_count(LogSpout({"a": 1_000_000}), "waited", max_pending=5))
    names, calls = ("run", "run+1", "run+2"), Calls()
    batches = [bench.emitted({"waited": words(man=10)["word_count"]}, name) for name in names]
    attempts = [bench.ledger.newest_attempt(batch)[0] for batch in batches]
    bench.run("UPDATE txbatch.batch SET lease_until = clock_timestamp()")

    def renew() -> list[bool]:
        if waiting:
            return [bench.ledger.renew_waiting_lease(*each) for each in zip(batches, map(run, names), strict=True)]
        return [bench.ledger.renew_lease(each) for each in attempts]

    with engine.begin() as commit:
        commit.execute(text("SELECT txid FROM txbatch.batch WHERE topology = 'waited' AND txid = 1 FOR UPDATE"))
        calls.start("renew", renew)
        assert calls.join() == {"renew": [True, True, True]}
    assert [bench.ledger.batch("waited", txid).lease_live for txid in (1, 2, 3)] == [False, True, True]
