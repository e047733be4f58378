"""A run that was taken for dead, and is there again: what became of its batch decides whether it goes on, plans anew or ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from refusals import refused
from support import ListSpout, run, word_count

from txbatch import Spout
from txbatch.core.batch.transaction import Batch, BatchStatus, Interval, Restate, Run
from txbatch.core.errors import BrokenChain
from txbatch.core.protocol.coordinator import Yours, initialize_transaction, take_turn
from txbatch.core.protocol.decisions import Wait
from txbatch.memory.application import MemoryApplication
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.run_locks import MemoryRunLocks
from txbatch.memory.runner import MemoryJob
from txbatch.memory.staging import MemoryStaging
from txbatch.run.advance import Advance, Finished
from txbatch.run.steps import Steps

START, DAY = datetime(2024, 1, 1, tzinfo=UTC), timedelta(days=1)


def of_day(number: int) -> Run:
    return Run(f"day {number}", interval=Interval(START + number * DAY, START + (number + 1) * DAY))


class Daily(ListSpout):
    """A word a day."""

    by_interval = True

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        return {**curr_metadata, "start": 0, "end": 1}

    def batch(self, plan: Any) -> list[tuple[str]]:
        return [("dog",)]


class Listed(ListSpout):
    """Batches that follow each other, of a word each."""

    def batch(self, plan: Any) -> list[tuple[str]]:
        return [("dog",)]


class Filed(Daily):
    """A word of each of the day's files."""

    def __init__(self, *files: str) -> None:
        super().__init__()
        self.files = list(files)

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        return {**curr_metadata, "files": [*self.files]}

    def batch(self, plan: Any) -> list[tuple[str]]:
        return [("dog",) for _ in plan["files"]]

    def lacking(self, before: Any, again: Any) -> list[str]:
        return [each for each in before["files"] if each not in again["files"]]


@contextmanager
def once(call: Callable[[], object], *, seconds: float, name: str) -> Iterator[None]:
    call()
    yield


class Case:
    """A topology, by the day unless it has another spout; the clock of its ledger is this object's."""

    def __init__(self, spout: Spout | None = None) -> None:
        self.now = START + 100 * DAY
        self.ledger, self.staging = MemoryLedger(clock=lambda: self.now), MemoryStaging()
        self.topology = word_count(spout or Daily(), max_pending=2)
        self.steps = Steps(MemoryJob(self.topology), self.ledger, self.staging, MemoryRunLocks(), once)
        self.application = MemoryApplication(self.topology, self.staging)

    def advance(self, of: int | Run) -> Any:
        return Advance(self.steps, of if isinstance(of, Run) else of_day(of), self.application.emit).to_commit()

    def emitted(self, of: Run) -> Any:
        planned = self.steps.initialize_transaction(of)
        assert isinstance(planned, Batch)
        return self.steps.emit_batch(planned, of, self.application.emit)

    def overtaken(self) -> None:
        """The first day's run sleeps, and the second day's aborts its batch as abandoned."""
        self.now += DAY
        own = initialize_transaction(self.ledger, self.topology, of_day(2))
        assert isinstance(own, Batch)
        assert take_turn(self.ledger, own, of_day(2)) == Yours()
        assert self.ledger.batch("word_count", 1).status is BatchStatus.ABORTED


@pytest.fixture
def case() -> Case:
    return Case()


@pytest.mark.parametrize("asleep", ["before it commits", "while it emits"])
def test_a_run_whose_batch_was_aborted_as_abandoned_plans_its_records_again(
    case: Case, monkeypatch: pytest.MonkeyPatch, asleep: str
) -> None:
    commit, emit, slept = Steps.commit, case.application.emit, list[str]()

    def sleep() -> None:
        if not slept:
            slept.append(asleep)
            case.overtaken()

    def committing(*given: Any) -> Any:
        sleep()
        return commit(*given)

    def emitting(*given: Any) -> Any:
        sleep()
        return emit(*given)

    if asleep == "while it emits":
        monkeypatch.setattr(case.application, "emit", emitting)
    else:
        monkeypatch.setattr(Steps, "commit", committing)
    assert isinstance(case.advance(1), Wait), "for the second day's batch, which has a lower txid"
    again = case.ledger.batch("word_count", 3)
    assert (again.key, again.status) == (of_day(1).key, BatchStatus.EMITTED)


@pytest.mark.parametrize("why", ["wrong day", "abandoned by its team; nobody found it so"])
def test_a_run_whose_batch_a_person_aborted_ends(case: Case, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """Whatever reason the person gives: the words of a reason decide nothing."""
    commit = Steps.commit

    def aborted(*given: Any) -> Any:
        case.ledger.abort("word_count", 1, why)
        return commit(*given)

    monkeypatch.setattr(Steps, "commit", aborted)
    with refused("TX404"):
        case.advance(1)


@pytest.mark.parametrize("aborted", ["before it commits", "while it emits"])
def test_a_run_whose_adopted_batch_a_person_aborted_goes_on_with_its_own(
    monkeypatch: pytest.MonkeyPatch, aborted: str
) -> None:
    """The abort of another run's batch gives up nothing of this run (R6)."""
    case = Case(Listed(1, 1))
    case.steps.initialize_transaction(run("dead"))
    case.now += DAY
    commit, emit, asked = Steps.commit, case.application.emit, iter([True])

    def abort() -> None:
        if next(asked, False):
            assert case.ledger.batch("word_count", 1).lease_run == "heir"
            case.ledger.abort("word_count", 1, "wrong")

    def committing(*given: Any) -> Any:
        abort()
        return commit(*given)

    def emitting(*given: Any) -> Any:
        abort()
        return emit(*given)

    if aborted == "while it emits":
        monkeypatch.setattr(case.application, "emit", emitting)
    else:
        monkeypatch.setattr(Steps, "commit", committing)
    finished = case.advance(run("heir"))
    assert isinstance(finished, Finished)
    assert (finished.batch.txid, finished.batch.key, finished.applied) == (2, "run:heir", True)


@pytest.mark.parametrize("told", ["by the commit", "by the abort"])
def test_a_run_whose_batch_an_older_try_aborted_by_a_broken_chain_plans_anew(
    monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    """Two tries of one run share an attempt; the older one aborts the batch and dies before it plans anew (R6)."""
    case = Case(Listed(1, 1, 1))
    for name in "12":
        assert isinstance(case.emitted(run(name)), Batch)
    case.ledger.abort("word_count", 1, "wrong")
    broken = case.ledger.batch("word_count", 2)
    ledger, commit = case.ledger, Steps.commit

    def older_try() -> None:
        monkeypatch.setattr(Steps, "commit", commit)
        monkeypatch.setattr(case.ledger, "abort", abort)
        with pytest.raises(BrokenChain):
            case.steps.commit(broken, run("2"))

    def committing(*given: Any) -> Any:
        older_try()
        return commit(*given)

    def aborting(*given: Any, **options: Any) -> Any:
        older_try()
        return abort(*given, **options)

    abort = ledger.abort
    if told == "by the commit":
        monkeypatch.setattr(Steps, "commit", committing)
    else:
        monkeypatch.setattr(case.ledger, "abort", aborting)
    finished = case.advance(run("2"))
    assert isinstance(finished, Finished)
    assert (finished.batch.txid, finished.applied) == (3, True)
    assert case.ledger.batch("word_count", 2).status is BatchStatus.ABORTED


@pytest.mark.parametrize("swapped", ["before it commits", "while it commits", "while it emits"])
def test_a_run_whose_attempt_a_swap_of_states_has_ended_emits_again(
    case: Case, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    """As the swap of a rebuild does (R23): the batch is planned, with another token and the same number."""
    commit, check, emit = Steps.commit, Steps._check_whole, case.application.emit

    def swap() -> None:
        monkeypatch.setattr(Steps, "commit", commit)
        monkeypatch.setattr(Steps, "_check_whole", check)
        monkeypatch.setattr(case.application, "emit", emit)
        batches, at = case.ledger.tables.batches, ("word_count", 1)
        batches[at] = replace(batches[at], status=BatchStatus.PLANNED, token="another")

    def committing(*given: Any) -> Any:
        swap()
        return commit(*given)

    def checking(*given: Any) -> None:
        swap()
        check(*given)

    def emitting(*given: Any) -> None:
        emit(*given)
        swap()

    match swapped:
        case "before it commits":
            monkeypatch.setattr(Steps, "commit", committing)
        case "while it commits":
            monkeypatch.setattr(Steps, "_check_whole", checking)
        case _:
            monkeypatch.setattr(case.application, "emit", emitting)
    finished = Advance(case.steps, of_day(1), lambda *given: case.application.emit(*given)).to_commit()
    assert isinstance(finished, Finished)
    assert (finished.batch.txid, finished.batch.fence, finished.applied) == (1, 2, True)


def test_a_run_whose_batch_was_committed_meanwhile_is_told_so(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another try of the same run, between what this one read and its own commit."""
    check = Steps._check_whole

    def committed(steps: Steps, batch: Batch, *given: Any) -> None:
        monkeypatch.setattr(Steps, "_check_whole", check)
        assert steps.commit(batch, of_day(1)).applied
        check(steps, batch, *given)

    monkeypatch.setattr(Steps, "_check_whole", committed)
    finished = case.advance(1)
    assert isinstance(finished, Finished)
    assert (finished.batch.txid, finished.applied) == (1, False)


def test_a_restate_is_compared_with_the_version_that_it_replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another restate of the position, with a lower txid, commits between the look at the version and the commit (R17)."""
    spout = Filed("a")
    case = Case(spout)
    case.advance(1)
    runs = [replace(run(name), restate=Restate(1, "a file came late")) for name in ("lower", "upper")]
    spout.files = ["a", "b"]
    lower = case.emitted(runs[0])
    spout.files = ["a"]
    upper, commit = case.emitted(runs[1]), case.ledger.commit

    def overtaken(*given: Any) -> Any:
        monkeypatch.setattr(case.ledger, "commit", commit)
        assert case.steps.commit(lower, runs[0]).applied
        return commit(*given)

    monkeypatch.setattr(case.ledger, "commit", overtaken)
    with refused("TX402", "txid 3", "txid 2"):
        case.steps.commit(upper, runs[1])
    monkeypatch.setattr(case.ledger, "commit", commit)
    assert case.steps.commit(lower, runs[0]).applied
    with refused("TX603", "b of stream"):
        case.steps.commit(upper, runs[1])
    assert case.ledger.batch("word_count", 3).status is BatchStatus.ABORTED
    assert [row.value for row in case.ledger.rows("word_count").values()] == [(2,)]
