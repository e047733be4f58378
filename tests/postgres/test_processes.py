"""Two real processes race, held at a failpoint until both are there; and a zombie that wakes up late, in each place."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from postgres_bench import Bench, Calls, raw_connection, words
from sqlalchemy import Engine, make_url
from support import LogSpout, code, manifest_of, record_batch, run, until, word_count

from txbatch import failpoints, settings
from txbatch.core.batch.transaction import Batch, BatchStatus, Restate, TransactionAttempt
from txbatch.core.corrections.rebuild import Rebuild, Swapped
from txbatch.core.errors import LeaseHeld, OutcomeUnknown, TerminalError, Unavailable
from txbatch.core.protocol import coordinator
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.tables import batch_lock

TESTS = Path(__file__).parents[1]
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"
FREE = "success.cleaned"  # which none of these steps comes to
pytestmark = pytest.mark.timeout(180)


@dataclass
class Process:
    """A racer: see tests/racer.py."""

    popen: subprocess.Popen[str]
    held: Path

    def wait_until_held(self) -> None:
        deadline = time.monotonic() + 90
        while not self.held.exists():
            assert time.monotonic() < deadline, "never got there"
            assert self.popen.poll() is None, self.popen.communicate()
            time.sleep(0.02)

    def let_go(self) -> None:
        self.held.unlink()

    def answer(self) -> Any:
        """What it returned, or the name of its error."""
        out, err = self.popen.communicate(timeout=90)
        assert self.popen.returncode == 0, err
        said = json.loads(out)
        return said.get("answer", said.get("error"))


Start = Callable[..., Process]


@pytest.fixture
def start(postgres_url: str, tmp_path: Path) -> Iterator[Start]:
    begun: list[Process] = []

    def begin(step: str, name: str = "run", *, at: str | None = None, txid: int = 1, max_pending: int = 2) -> Process:
        """A process on its way to a step, held at a failpoint."""
        held = tmp_path / f"held-{len(begun)}"
        armed = {"TXBATCH_FAILPOINTS": f"{at or f'{step}.before_lock'}=block:{held}"}
        path = os.pathsep.join([str(TESTS), str(settings.project_root() / "plugins")])
        command = [sys.executable, "-P", str(TESTS / "racer.py"), postgres_url, step, name, str(txid), str(max_pending)]
        environment = {**os.environ, **armed, "PYTHONPATH": path}
        pipe = subprocess.PIPE
        begun.append(Process(subprocess.Popen(command, env=environment, text=True, stdout=pipe, stderr=pipe), held))
        return begun[-1]

    yield begin
    for process in begun:
        process.popen.kill()
        process.popen.communicate()


@pytest.fixture
def bench(engine: Engine) -> Bench:
    return Bench(engine, word_count(LogSpout({"a": 1_000_000}), max_pending=2))


def race(*processes: Process) -> list[Any]:
    """Let them go when all are there; their answers."""
    for process in processes:
        process.wait_until_held()
    for process in processes:
        process.let_go()
    return [process.answer() for process in processes]


def counted(bench: Bench) -> list[tuple[Any, ...]]:
    return bench.rows("SELECT word, count, txid FROM state.word_count")


def die(bench: Bench) -> None:
    """As if no run had renewed its lease."""
    bench.run("UPDATE txbatch.batch SET lease_until = now() - interval '1 s'")


# ---- two at once


@pytest.mark.rule("R1", "R3")
def test_two_plan(bench: Bench, start: Start) -> None:
    """Both have read the same head; the loser asks its spout again."""
    assert sorted(race(start("initialize", "1"), start("initialize", "2"))) == [[1, 0, 10], [2, 10, 20]]


@pytest.mark.rule("R1", "R6")
def test_two_plan_and_one_may(bench: Bench, start: Start) -> None:
    answers = race(start("initialize", "1", max_pending=1), start("initialize", "2", max_pending=1))
    assert sorted(answers, key=str) == ["Wait", [1, 0, 10]]


@pytest.mark.rule("R2")
def test_the_same_run_plans_twice(bench: Bench, start: Start) -> None:
    assert race(start("initialize"), start("initialize")) == [[1, 0, 10], [1, 0, 10]]


@pytest.mark.rule("R5")
def test_two_tries_of_one_run_begin_an_attempt(bench: Bench, start: Start) -> None:
    bench.planned()
    assert sorted(race(start("attempt"), start("attempt"))) == ["1:1", "1:2"]
    assert bench.ledger.batch("word_count", 1).fence == 2


@pytest.mark.rule("R5", "R6")
def test_two_runs_begin_an_attempt_of_a_dead_ones_batch(bench: Bench, start: Start) -> None:
    bench.planned("dead")
    die(bench)
    assert sorted(race(start("attempt", "1"), start("attempt", "2"))) == ["1:1", "LeaseHeld"]


@pytest.mark.rule("R10")
def test_two_commit(bench: Bench, start: Start) -> None:
    bench.emitted(words(dog=1))
    assert sorted(race(start("commit"), start("commit"))) == [False, True]
    assert counted(bench) == [("dog", 1, 1)]


@pytest.mark.rule("R16")
def test_two_abort(bench: Bench, start: Start) -> None:
    bench.planned()
    assert race(start("abort"), start("abort")) == ["aborted", "aborted"]
    assert bench.planned().txid == 2


@pytest.mark.rule("R10", "R16")
def test_one_commits_and_one_aborts(bench: Bench, start: Start) -> None:
    bench.emitted(words(dog=1))
    answers = race(start("commit"), start("abort"))
    if answers[0] is True:
        assert (answers[1], counted(bench)) == ("AlreadyCommitted", [("dog", 1, 1)])
    else:
        assert (answers, counted(bench)) == (["StaleAttempt", "aborted"], [])


@pytest.mark.rule("R5", "R10")
def test_one_commits_and_one_begins_an_attempt(bench: Bench, start: Start) -> None:
    bench.emitted(words(dog=1))
    answers = race(start("commit"), start("attempt"))
    if answers[0] is True:
        assert (answers[1], counted(bench)) == ("AlreadyCommitted", [("dog", 1, 1)])
    else:
        assert (answers, counted(bench)) == (["StaleAttempt", "1:2"], [])


# ---- a batch is counted again


def restated(bench: Bench, name: str) -> Batch:
    """Txid 1 is counted again: emitted, with one dog."""
    asked = replace(run(name), restate=Restate(1, "it was wrong"))
    batch = coordinator.initialize_transaction(bench.ledger, bench.topology, asked)
    assert isinstance(batch, Batch)
    assignment = bench.ledger.start_attempt(batch, asked, code())
    return bench.ledger.record_manifests([(assignment, manifest_of(bench.topology, assignment, words(dog=1)))])[0]


def versions(bench: Bench) -> list[tuple[Any, ...]]:
    return bench.rows("SELECT txid, position, status, replaced_by FROM txbatch.batch ORDER BY 1")


@pytest.mark.rule("R1", "R17")
def test_two_ask_for_a_restate_of_one_txid(bench: Bench, start: Start) -> None:
    bench.whole(words(dog=9))
    answers = race(*(start("restate", name, at="initialize.before_lock") for name in ("1", "2")))
    assert sorted(answers) == [[2, 1], [3, 1]]


@pytest.mark.rule("R2", "R17")
def test_one_run_asks_twice_for_its_restate(bench: Bench, start: Start) -> None:
    bench.whole(words(dog=9))
    assert race(*(start("restate", at="initialize.before_lock") for _ in range(2))) == [[2, 1], [2, 1]]


@pytest.mark.rule("R1", "R17")
def test_a_restate_and_a_batch_are_planned_at_once(bench: Bench, start: Start) -> None:
    bench.whole(words(dog=9))
    restate = start("restate", "1", at="initialize.before_lock")
    answers = race(restate, start("initialize", "2"))
    assert answers in ([[2, 1], [3, 10, 20]], [[3, 1], [2, 10, 20]])


@pytest.mark.rule("R6", "R17")
def test_two_restates_of_one_txid_are_committed_at_once(bench: Bench, start: Start) -> None:
    bench.whole(words(dog=9))
    first, second = restated(bench, "1"), restated(bench, "2")
    answers = race(start("commit", txid=2), start("commit", txid=3))
    assert answers in ([True, True], [True, "NotItsTurn"])
    if answers[1] == "NotItsTurn":
        bench.commit(second, words(dog=1))
    expected = [(1, 1, "committed", first.txid), (2, 1, "committed", second.txid), (3, 1, "committed", None)]
    assert (counted(bench), versions(bench)) == ([("dog", 1, 3)], expected)


@pytest.mark.rule("R6", "R17")
def test_a_restate_and_the_batch_behind_it_are_committed_at_once(bench: Bench, start: Start) -> None:
    bench.whole(words(dog=9))
    restated(bench, "1")
    behind = bench.emitted(words(dog=1), "2")
    answers = race(start("commit", txid=2), start("commit", txid=3))
    assert answers in ([True, True], [True, "NotItsTurn"])
    if answers[1] == "NotItsTurn":
        bench.commit(behind, words(dog=1))
    assert counted(bench) == [("dog", 2, 3)]


@pytest.mark.rule("R16", "R17")
def test_a_restate_is_committed_and_aborted_at_once(bench: Bench, start: Start) -> None:
    bench.whole(words(dog=9))
    restated(bench, "1")
    answers = race(start("commit", txid=2), start("abort", txid=2))
    if answers[0] is True:
        assert (answers[1], counted(bench)) == ("AlreadyCommitted", [("dog", 1, 2)])
    else:
        assert (answers, counted(bench)) == (["StaleAttempt", "aborted"], [("dog", 9, 1)])


@pytest.mark.rule("R10", "R17")
@pytest.mark.parametrize("point", ["commit.before_lock", "commit.loaded", "commit.before_commit"])
def test_a_restate_is_killed_in_its_commit(bench: Bench, start: Start, point: str) -> None:
    """Nothing of it is there; the retry commits it, and the next batch goes on."""
    bench.whole(words(dog=9, cat=1))
    again = restated(bench, "1")
    (killed := start("commit", txid=2, at=point)).wait_until_held()
    killed.popen.kill()
    killed.popen.wait()
    assert sorted(counted(bench)) == [("cat", 1, 1), ("dog", 9, 1)]
    assert bench.commit(again, words(dog=1))
    assert not bench.commit(again, words(dog=1))
    bench.whole(words(dog=1), "3")
    assert counted(bench) == [("dog", 2, 3)]


@pytest.mark.rule("R5", "R17")
def test_a_zombie_commits_a_restate_that_was_aborted_and_asked_for_again(bench: Bench, start: Start) -> None:
    bench.whole(words(dog=9))
    restated(bench, "1")
    (zombie := start("commit", txid=2)).wait_until_held()
    bench.ledger.abort("word_count", 2, "why")
    assert bench.commit(restated(bench, "1"), words(dog=1))
    assert race(zombie) == ["StaleAttempt"]
    assert counted(bench) == [("dog", 1, 3)]


# ---- a rebuild, whose states come to the same


def begun(bench: Bench) -> Rebuild:
    return bench.rebuilds.begin(bench.topology, "jobs/job.py", code("new"), "why")


def to_the_end(bench: Bench, expected: list[tuple[Any, ...]]) -> None:
    """Count what is left to count, and swap."""
    rebuild = begun(bench)
    while bench.rebuilds.next(rebuild) is not None:
        assert bench.rebuilt(rebuild, words(dog=1))
    assert isinstance(bench.rebuilds.swap(rebuild, bench.topology), Swapped)
    assert counted(bench) == expected


@pytest.mark.rule("R23")
def test_two_begin_a_rebuild(bench: Bench, start: Start) -> None:
    bench.whole(words(dog=1))
    (first := start("rebuild", at="rebuild.begun")).wait_until_held()
    second = start("rebuild", at=FREE)
    until(lambda: bench.rows(WAITING) == [(1,)], "the second does not wait")
    first.let_go()
    assert [first.answer(), second.answer()] == [1, 1]
    assert bench.rows("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'state\\_next%'") == [(1,)]


@pytest.mark.rule("R10", "R23")
def test_two_count_the_same_version(bench: Bench, start: Start) -> None:
    bench.whole(words(dog=1))
    begun(bench)
    (first := start("count", at="rebuild.before_commit")).wait_until_held()
    second = start("count", at=FREE)
    until(lambda: bench.rows(WAITING) == [(1,)], "the second does not wait")
    first.let_go()
    assert [first.answer(), second.answer()] == [True, False]
    to_the_end(bench, [("dog", 1, 1)])


@pytest.mark.rule("R17", "R23")
def test_a_batch_and_a_restate_are_committed_while_a_rebuild_counts(bench: Bench, start: Start) -> None:
    bench.whole(words(dog=9))
    begun(bench)
    (counts := start("count", at="rebuild.before_commit")).wait_until_held()
    bench.emitted(words(dog=1), "next")
    assert start("commit", txid=2, at=FREE).answer() is True
    again = restated(bench, "again")
    assert start("commit", txid=again.txid, at=FREE).answer() is True
    counts.let_go()
    assert counts.answer() is True  # the version that was the next when it began: the restate of it comes in its turn
    assert bench.rows("SELECT counted, to_count FROM report.rebuilds") == [(0, 2)]
    to_the_end(bench, [("dog", 2, 3)])


@pytest.mark.rule("R6", "R23")
def test_a_commit_waits_for_the_swap_and_finds_that_its_attempt_counts_no_more(bench: Bench, start: Start) -> None:
    bench.whole(words(dog=1))
    rebuild = begun(bench)
    assert bench.rebuilt(rebuild, words(dog=1))
    bench.emitted(words(dog=5), "next")
    (commits := start("commit", txid=2)).wait_until_held()
    (swaps := start("swap", at="rebuild.before_swap")).wait_until_held()
    with pytest.raises(Unavailable):
        bench.rebuilds.swap(rebuild, bench.topology)
    commits.let_go()
    until(lambda: bench.rows(WAITING) == [(1,)], "the commit does not wait")
    swaps.let_go()
    assert (swaps.answer(), commits.answer()) == ("Swapped", "StaleAttempt")
    assert counted(bench) == [("dog", 1, 1)]
    assert bench.ledger.batch("word_count", 2).status is BatchStatus.PLANNED


@pytest.mark.rule("R6", "R23")
def test_the_swap_waits_for_a_commit_and_then_for_its_batch(bench: Bench, start: Start) -> None:
    bench.whole(words(dog=1))
    assert bench.rebuilt(begun(bench), words(dog=1))
    bench.emitted(words(dog=1), "next")
    (commits := start("commit", txid=2, at="commit.before_commit")).wait_until_held()
    assert start("swap", at=FREE).answer() in ("Unavailable", "Watched")
    commits.let_go()
    assert commits.answer() is True
    assert start("swap", at=FREE).answer() == "Behind"
    to_the_end(bench, [("dog", 2, 2)])


@pytest.mark.rule("R10", "R23")
@pytest.mark.parametrize("point", sorted(name for name in failpoints.NAMES if name.startswith("rebuild.")))
def test_a_rebuild_is_killed(bench: Bench, start: Start, point: str) -> None:
    bench.whole(words(dog=1))
    rebuild = None if point == "rebuild.begun" else begun(bench)
    if rebuild and "swap" in point:
        assert bench.rebuilt(rebuild, words(dog=1))
    step = "rebuild" if rebuild is None else "swap" if "swap" in point else "count"
    (killed := start(step, at=point)).wait_until_held()
    killed.popen.kill()
    killed.popen.wait()
    if point == "rebuild.swapped":
        done = bench.rebuilds.done("word_count", code("new"), "why")
        assert done is not None
        assert (done.rebuild, done.txid, done.earlier) == (rebuild, 1, True)
    else:
        to_the_end(bench, [("dog", 1, 1)])
    assert bench.rows("SELECT status, counted FROM report.rebuilds") == [("swapped", 1)]
    bench.whole(words(dog=1), "next")
    assert counted(bench) == [("dog", 2, 2)]


# ---- retention


def past(bench: Bench) -> list[tuple[Any, ...]]:
    """What is left of it: rows that are folded, and contributions."""
    base = bench.rows("SELECT 'base', word, count, txid FROM contribution_base.word_count")
    return base + bench.rows("SELECT 'left', word, count, txid FROM contribution.word_count ORDER BY txid")


@pytest.mark.rule("R10", "R22")
def test_a_batch_is_committed_while_the_past_is_folded(bench: Bench, start: Start) -> None:
    """It does not wait for a slice that stands still."""
    for name in "123":
        bench.whole(words(dog=1), name)
    bench.emitted(words(dog=1), "4")
    committing = start("commit", "4", txid=4)
    committing.wait_until_held()
    folding = start("gc", at="gc.folded", txid=2)
    folding.wait_until_held()
    committing.let_go()
    assert committing.answer() is True
    assert counted(bench) == [("dog", 4, 4)]
    folding.let_go()
    assert folding.answer() == 2
    assert past(bench) == [("base", "dog", 2, 2), ("left", "dog", 1, 3), ("left", "dog", 1, 4)]


@pytest.mark.rule("R17", "R22")
def test_a_restate_that_comes_while_its_txid_is_folded_is_refused(bench: Bench, start: Start) -> None:
    for name in "123":
        bench.whole(words(dog=1), name)
    restating = start("restate", "again", at="initialize.before_lock")
    restating.wait_until_held()
    folding = start("gc", at="gc.folded", txid=2)
    folding.wait_until_held()
    restating.let_go()
    until(lambda: bench.rows(WAITING)[0][0] > 0)
    folding.let_go()
    assert (folding.answer(), restating.answer()) == (2, "CannotRestate")
    assert past(bench) == [("base", "dog", 2, 2), ("left", "dog", 1, 3)]


@pytest.mark.rule("R17", "R22")
def test_what_a_restate_that_is_being_committed_stands_for_is_not_folded(bench: Bench, start: Start) -> None:
    for name in "123":
        bench.whole(words(dog=1), name)
    again = restated(bench, "again")
    committing = start("commit", "again", at="commit.before_commit", txid=again.txid)
    committing.wait_until_held()
    assert start("gc", at=FREE, txid=3).answer() == 0
    committing.let_go()
    assert committing.answer() is True
    before = counted(bench)
    assert start("gc", at=FREE, txid=4).answer() == 4
    assert [row[0] for row in past(bench)] == ["base"]
    assert counted(bench) == before


@pytest.mark.rule("R17", "R22")
def test_a_restate_is_committed_between_the_looks_of_a_fold(bench: Bench, start: Start) -> None:
    """The fold has read which versions count, and then the one that replaces the first of them is committed."""
    for name in "123":
        bench.whole(words(dog=1), name)
    again = restated(bench, "again")
    folding = start("gc", at="gc.versions_read", txid=2)
    folding.wait_until_held()
    assert bench.commit(again, words(dog=1))
    folding.let_go()
    reached = folding.answer()
    bench.commit(restated(bench, "once more"), words(dog=1))
    as_of = bench.rows("SELECT word, count FROM report.as_of_word_count(4)")
    assert (reached, as_of, counted(bench)) == (0, [("dog", 3)], [("dog", 3, 5)])
    assert start("gc", at=FREE, txid=5).answer() == 5
    assert (past(bench), counted(bench)) == ([("base", "dog", 3, 5)], [("dog", 3, 5)])


@pytest.mark.rule("R22")
def test_two_fold_the_same_past(bench: Bench, start: Start) -> None:
    for name in "123":
        bench.whole(words(dog=1), name)
    first = start("gc", at="gc.folded", txid=2)
    first.wait_until_held()
    second = start("gc", at=FREE, txid=2)
    until(lambda: bench.rows(WAITING)[0][0] > 0)
    first.let_go()
    assert (first.answer(), second.answer()) == (2, 2)
    assert past(bench) == [("base", "dog", 2, 2), ("left", "dog", 1, 3)]


@pytest.mark.rule("R22")
@pytest.mark.parametrize("point", ["gc.before_commit", "gc.folded"])
def test_folding_is_killed(bench: Bench, start: Start, point: str) -> None:
    """Nothing of the slice is left, and the next call folds it."""
    for name in "123":
        bench.whole(words(dog=1), name)
    before = past(bench)
    folding = start("gc", at=point, txid=2)
    folding.wait_until_held()
    folding.popen.send_signal(signal.SIGKILL)
    folding.popen.wait()
    assert (past(bench), counted(bench)) == (before, [("dog", 3, 3)])
    assert start("gc", at=FREE, txid=2).answer() == 2
    assert past(bench) == [("base", "dog", 2, 2), ("left", "dog", 1, 3)]


# ---- a zombie wakes up late


@pytest.mark.rule("R1", "R3")
def test_a_zombie_plans_when_the_head_has_moved(bench: Bench, start: Start) -> None:
    (zombie := start("initialize", "zombie")).wait_until_held()
    bench.whole(words(dog=1), "quick")
    assert race(zombie) == [[2, 10, 20]]


@pytest.mark.rule("R5")
def test_a_zombie_begins_an_attempt_of_what_is_committed(bench: Bench, start: Start) -> None:
    batch = bench.planned()
    (zombie := start("attempt")).wait_until_held()
    bench.whole(words(dog=1))
    assert race(zombie) == ["AlreadyCommitted"]
    assert bench.ledger.batch("word_count", batch.txid).fence == 1


@pytest.mark.rule("R5", "R16")
def test_a_zombie_begins_an_attempt_of_what_is_aborted(bench: Bench, start: Start) -> None:
    bench.planned()
    (zombie := start("attempt")).wait_until_held()
    bench.ledger.abort("word_count", 1, "why")
    assert bench.planned().txid == 2
    assert race(zombie) == ["BatchAborted"]
    assert bench.ledger.batch("word_count", 2).fence == 0


@pytest.mark.rule("R5")
def test_a_zombie_offers_its_manifest(bench: Bench, start: Start) -> None:
    batch = bench.planned()
    bench.ledger.start_attempt(batch, run("run"), code())
    (zombie := start("manifest", at="emit.manifest_written")).wait_until_held()
    bench.emitted(words(dog=2))
    assert race(zombie) == ["StaleAttempt"]
    assert bench.commit(bench.ledger.batch("word_count", 1), words(dog=2))
    assert counted(bench) == [("dog", 2, 1)]


@pytest.mark.rule("R5", "R10")
@pytest.mark.parametrize(("meanwhile", "told"), [("emitted", "StaleAttempt"), ("committed", False)])
def test_a_zombie_commits(bench: Bench, start: Start, meanwhile: str, told: Any) -> None:
    bench.emitted(words(dog=1))
    (zombie := start("commit")).wait_until_held()
    newer = bench.emitted(words(dog=2))
    if meanwhile == "committed":
        bench.commit(newer, words(dog=2))
    assert race(zombie) == [told]
    bench.commit(newer, words(dog=2))
    assert counted(bench) == [("dog", 2, 1)]


@pytest.mark.rule("R16")
def test_a_zombie_aborts_what_is_committed(bench: Bench, start: Start) -> None:
    batch = bench.emitted(words(dog=1))
    (zombie := start("abort")).wait_until_held()
    bench.commit(batch, words(dog=1))
    assert race(zombie) == ["AlreadyCommitted"]
    assert bench.ledger.batch("word_count", 1).status is BatchStatus.COMMITTED


@pytest.mark.rule("R16")
def test_a_zombie_aborts_what_was_aborted_and_planned_anew(bench: Bench, start: Start) -> None:
    bench.planned()
    (zombie := start("abort")).wait_until_held()
    bench.ledger.abort("word_count", 1, "why")
    anew = bench.emitted(words(dog=1))
    assert race(zombie) == ["aborted"]
    assert bench.commit(anew, words(dog=1))


# ---- a commit that holds the batch's row and does not go on


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_lock, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(batch_lock, "WAIT_SECONDS", 0.2)


def stopped(bench: Bench, start: Start, *, dead: bool = False) -> Process:
    """Stopped by the kernel after its upsert: it holds its locks and hears nothing. `dead`: its lease is over."""
    bench.emitted(words(dog=1))
    if dead:
        die(bench)
    process = start("commit", at="commit.before_commit")
    process.wait_until_held()
    process.popen.send_signal(signal.SIGSTOP)
    return process


def wake(process: Process) -> Any:
    process.popen.send_signal(signal.SIGCONT)
    (answer,) = race(process)
    return answer


@pytest.mark.rule("R5")
@pytest.mark.usefixtures("impatient")
def test_a_newer_attempt_of_the_same_run_ends_a_commit_that_stands_still(bench: Bench, start: Start) -> None:
    zombie = stopped(bench, start)
    newer = bench.emitted(words(dog=2))
    assert newer.attempt == TransactionAttempt(1, 2)
    assert wake(zombie) == "Unavailable"
    assert counted(bench) == []
    assert bench.commit(newer, words(dog=2))
    assert counted(bench) == [("dog", 2, 1)]


@pytest.mark.rule("R5", "R10")
@pytest.mark.usefixtures("impatient")
def test_a_retried_commit_ends_the_one_that_stands_still(bench: Bench, start: Start) -> None:
    zombie = stopped(bench, start)
    batch = bench.ledger.batch("word_count", 1)
    arrow = {"word_count": [record_batch(bench.topology.aggregates[0], words(dog=1)["word_count"])]}
    assert bench.ledger.commit(bench.topology, batch, arrow, run("run")).applied
    assert wake(zombie) == "Unavailable"
    assert counted(bench) == [("dog", 1, 1)]


@pytest.mark.rule("R5", "R6")
@pytest.mark.usefixtures("impatient")
def test_others_wait_for_a_commit_while_its_lease_lives(bench: Bench, start: Start) -> None:
    zombie = stopped(bench, start)
    batch = bench.ledger.batch("word_count", 1)
    calls: list[Callable[[], Any]] = [
        lambda: bench.ledger.start_attempt(batch, run("other"), code()),
        lambda: bench.ledger.abort("word_count", 1, "why"),
        lambda: bench.commit(batch, words(dog=1)),
    ]
    for call in calls:
        with pytest.raises(LeaseHeld, match=r"attempt 1:1 of run is being committed; wait until it ends"):
            call()
    assert wake(zombie) is True
    assert counted(bench) == [("dog", 1, 1)]


@pytest.mark.rule("R5", "R6")
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("step", ["attempt", "abort", "adopt"])
def test_anyone_ends_a_commit_that_stands_still_once_its_lease_is_over(bench: Bench, start: Start, step: str) -> None:
    zombie = stopped(bench, start, dead=True)
    batch, other = bench.ledger.batch("word_count", 1), run("other")
    calls: dict[str, Callable[[], Any]] = {
        "attempt": lambda: bench.ledger.start_attempt(batch, other, code()),
        "abort": lambda: bench.ledger.abort("word_count", 1, "why"),
        "adopt": lambda: bench.ledger.adopt(batch, other),
    }
    assert calls[step]() is not None
    assert wake(zombie) == "Unavailable"
    assert counted(bench) == []


@pytest.mark.usefixtures("impatient")
def test_a_row_that_someone_else_holds_is_left_to_him(bench: Bench, postgres_url: str) -> None:
    bench.planned()
    person = raw_connection(postgres_url, application_name="txbatch commit word_count 1:7")
    with person.cursor() as cursor:
        cursor.execute("SELECT FROM txbatch.batch FOR UPDATE")
        with pytest.raises(Unavailable, match=r"txid 1 stays locked; see pg_stat_activity for who holds it"):
            bench.ledger.start_attempt(bench.ledger.batch("word_count", 1), run("run"), code())
        cursor.execute("SELECT 1")  # his session lives
    person.close()


def test_waiting_for_the_row_leaves_no_timeout_behind(bench: Bench) -> None:
    bench.planned()
    with transaction(bench.engine) as connection:
        batch_lock.locked_row(connection, "word_count", 1, None)
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar_one() == "1min"


@pytest.mark.parametrize("topology", ["a", "ü" * 25, "x" * 60])
def test_the_name_of_a_commit_is_not_cut(engine: Engine, topology: str) -> None:
    name = batch_lock.commit_name(topology, TransactionAttempt(123456789, 12))
    with engine.begin() as connection:
        connection.exec_driver_sql("SELECT set_config('application_name', %(name)s, true)", {"name": name})
        shown = connection.exec_driver_sql("SHOW application_name").scalar_one()
    assert (shown, shown.endswith(" 123456789:12")) == (name, True)


# ---- the answer to COMMIT is lost on the way


class Proxy:
    """Between us and the server's socket. Once `armed`, it hands COMMIT on, and cuts us off when its answer comes.

    If it is `hasty`, it cuts us off before.
    """

    hasty = False

    def __init__(self, url: str) -> None:
        parsed = make_url(url)
        self.server = f"{parsed.query['host']}/.s.PGSQL.{parsed.query['port']}"
        self.sockets = [socket.create_server(("127.0.0.1", 0))]
        address = {"host": "127.0.0.1", "port": str(self.sockets[0].getsockname()[1])}
        through = parsed.set(query={**address, "sslmode": "disable", "gssencmode": "disable"})
        self.url, self.armed, self.cut = through.render_as_string(hide_password=False), False, threading.Event()
        self.threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        self.threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        self.threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, server, lost = self.sockets[0].accept()[0], socket.socket(socket.AF_UNIX), threading.Event()
                self.sockets += [client, server]
                server.connect(self.server)
                self._start(self._ask, client, server, lost)
                self._start(self._answer, server, client, lost)

    def _ask(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        with suppress(OSError):
            while chunk := client.recv(65536):
                if self.armed and b"COMMIT\0" in chunk:
                    lost.set()
                server.sendall(chunk)
                if self.hasty and lost.is_set():
                    client.shutdown(socket.SHUT_RDWR)

    def _answer(self, server: socket.socket, client: socket.socket, lost: threading.Event) -> None:
        with suppress(OSError):
            while chunk := server.recv(65536):
                if lost.is_set():
                    self.cut.set()
                    break
                client.sendall(chunk)
            client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for each in self.sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self.threads:
            thread.join(10)


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    made = Proxy(postgres_url)
    yield made
    made.close()


@pytest.mark.rule("R10")
def test_the_answer_to_commit_is_lost_on_the_wire(bench: Bench, proxy: Proxy) -> None:
    """It is unknown until the ledger is asked; then it says that it is committed, and nothing counts twice."""
    batch, far = bench.emitted(words(dog=1)), Bench(connect(proxy.url), bench.topology)
    proxy.armed = True
    with pytest.raises(OutcomeUnknown, match="the answer to COMMIT was lost; try again"):
        far.commit(batch, words(dog=1))
    assert proxy.cut.is_set()
    proxy.armed = False
    assert far.commit(batch, words(dog=1)) is False
    assert counted(bench) == [("dog", 1, 1)]
    with pytest.raises(TerminalError, match="already committed as txid 1"):
        far.ledger.start_attempt(batch, run("run"), code())
    far.engine.dispose()


@pytest.mark.rule("R10")
def test_a_commit_that_is_still_under_way_is_waited_for(bench: Bench, proxy: Proxy, postgres_url: str) -> None:
    """A look without a lock shows the batch as it was before: only the next try, behind the row's lock, knows the outcome."""
    batch, far = bench.emitted(words(dog=1)), Bench(connect(proxy.url), bench.topology)
    bench.run(
        "CREATE FUNCTION txbatch.wait_at_commit() RETURNS trigger LANGUAGE plpgsql"
        " AS 'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END'",
        "CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON state.word_count DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION txbatch.wait_at_commit()",
    )
    gate, calls = raw_connection(postgres_url), Calls()
    gate.cursor().execute("SELECT pg_advisory_lock(7)")
    proxy.armed = proxy.hasty = True
    with pytest.raises(OutcomeUnknown, match="the answer to COMMIT was lost; try again"):
        far.commit(batch, words(dog=1))
    assert (counted(bench), bench.ledger.batch("word_count", 1).status) == ([], BatchStatus.EMITTED)
    calls.start("again", lambda: bench.commit(batch, words(dog=1)))
    until(lambda: bench.rows(WAITING) == [(2,)], "COMMIT does not wait for the gate, and the next try for COMMIT")
    gate.close()
    assert calls.join() == {"again": False}
    assert counted(bench) == [("dog", 1, 1)]
    far.engine.dispose()
