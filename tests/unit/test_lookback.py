"""Late records on the twin: which positions a run counts again by itself, and which are told (R17)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
from late_days import FIELDS, Days
from refusals import refused

from txbatch import Count, Interval, IntervalSpout, Topology, TransactionalState
from txbatch.core.batch.came_late import Late, Look
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.plan import BatchPlan, OfInterval
from txbatch.core.batch.transaction import Assignment, Batch, BatchStatus, Run
from txbatch.core.errors import (
    DatabaseRefused,
    EmissionFailed,
    FunctionFailed,
    LeaseHeld,
    OutcomeUnknown,
    SourceChanged,
    SourceMissing,
    SparkFailed,
    SpoutFailed,
    StaleAttempt,
    TaskEnded,
    TxbatchError,
    Unavailable,
)
from txbatch.core.protocol.lookback import (
    CountedPlan,
    Counting,
    FoundLate,
    LatePosition,
    differing,
    in_table,
    lookbacks,
    outstanding,
)
from txbatch.memory.application import MemoryApplication
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.run_locks import MemoryRunLocks
from txbatch.memory.runner import MemoryJob
from txbatch.memory.staging import MemoryStaging
from txbatch.run.look_back import LookBack
from txbatch.run.runner import Runner
from txbatch.run.steps import Steps
from txbatch.spouts.postgres_interval import _late_rows

pytestmark = pytest.mark.rule("R17")
DAY = timedelta(days=1)
DAY_MICROS = 86_400_000_000
FIRST = datetime(2024, 1, 1, tzinfo=UTC)
# The ways out of a position that a run never counts again by itself.
WITHOUT = '`txbatch restate days 1 --why "..." --accept-missing` counts without the file'
AS_NOW = '`txbatch restate days 1 --why "..."` counts the file as it is now'


def day(number: int) -> Interval:
    return Interval(FIRST + (number - 1) * DAY, FIRST + number * DAY)


class Case:
    """Days of files below a folder, counted on the twin."""

    def __init__(self, root: Path, lookback: str | None = "3 days") -> None:
        self.root, self.ledger, self.staging = root, MemoryLedger(), MemoryStaging()
        self.locks = MemoryRunLocks()
        self.define(lookback)

    def define(self, lookback: str | None) -> None:
        topology = Topology("days", max_pending=3)
        stream = topology.new_stream("in", Days(self.root, FIELDS, time="at", lookback=lookback)).project("name")
        stream.group_by("name").persistent_aggregate(TransactionalState("days"), count=Count())
        self.topology = topology
        self.steps = Steps(MemoryJob(topology.check()), self.ledger, self.staging, self.locks)

    def runner(self) -> Runner:
        return Runner(self.steps, MemoryApplication(self.topology, self.staging))

    def run(self, *numbers: int) -> list[int]:
        """Count days by one call, and return the txids."""
        with self.runner() as runner:
            done = [batch.txid for batch in runner.run_each(map(day, numbers))]
            self.told = [late.told("days") for late in runner.told]
        return done

    def comes(self, name: str, *lines: str) -> None:
        with (self.root / name).open("a") as file:
            file.writelines(f"2024-01-{line}\n" for line in lines)

    @property
    def restates(self) -> list[tuple[int, int, str | None]]:
        found = (each for each in self.ledger.tables.batches_of("days") if each.restate)
        return [(each.txid, each.position, each.reason) for each in found if each.status is BatchStatus.COMMITTED]

    @property
    def counts(self) -> dict[Any, Any]:
        return {key[0]: row.value[0] for key, row in self.ledger.rows("days").items()}


@pytest.fixture
def case(tmp_path: Path) -> Case:
    made = Case(tmp_path)
    made.comes("1.csv", "01T10:00Z,a", "01T11:00Z,b")
    assert made.run(1) == [1]
    return made


def test_late_records_are_counted_by_a_txid_of_their_own_once(case: Case) -> None:
    case.comes("x.csv", "02T10:00Z,b", *["01T10:00Z,a"] * 12)
    assert case.run(2) == [2, 3]
    assert case.restates == [(3, 1, "lookback: 12 records in x.csv")]
    assert case.counts == {"a": 13, "b": 2}
    assert (case.run(2), case.run(3)) == ([2], [4])
    assert (len(case.restates), case.told) == (1, [])


def test_several_positions_are_emitted_together_and_each_is_a_txid(case: Case) -> None:
    case.run(2, 3)
    case.comes("x.csv", *(f"0{number}T10:00Z,c" for number in (1, 2, 3, 4)))
    case.comes("y.csv", "02T10:00Z,c")
    assert case.run(4) == [4, 5, 6, 7]
    told = ["lookback: 1 record in x.csv", "lookback: 2 records in x.csv, y.csv", "lookback: 1 record in x.csv"]
    assert case.restates == [(txid, txid - 4, why) for txid, why in zip((5, 6, 7), told, strict=True)]
    assert case.counts["c"] == 5


def test_without_a_lookback_they_are_told_once_by_runs_and_kept(case: Case) -> None:
    case.define(None)
    case.comes("x.csv", "01T10:00Z,a")
    assert case.run(2) == [2]
    assert case.told == ['late for txid 1: 1 record in x.csv; `txbatch restate days 1 --why "..."` counts them']
    assert case.run(3) == [3]
    assert case.told == []
    assert [late.position for late in outstanding(case.ledger.found_late("days"))] == [1]
    case.define("3 days")
    assert case.run(4) == [4, 5]


def test_a_late_file_that_is_gone_again_is_told(case: Case) -> None:
    case.define(None)
    case.comes("x.csv", "01T10:00Z,a")
    case.run(2)
    (case.root / "x.csv").unlink()
    case.define("3 days")
    assert case.run(3) == [3]
    assert case.told == ["late for txid 1: 1 record in x.csv; x.csv is gone since"]
    case.comes("x.csv", "01T10:00Z,a")
    assert case.run(4) == [4, 5]


def test_an_outage_is_no_reason_to_leave_late_records_as_counted(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.comes("x.csv", "01T10:00Z,a")
    batch, run = attempt(case, 2)
    commits(case, (batch, run))

    def away(*_: object) -> NoReturn:
        raise Unavailable("the ledger does not answer")

    with monkeypatch.context() as outage:
        outage.setattr(case.ledger, "version", away)
        with pytest.raises(Unavailable):
            looked_back(case, batch, run)
    assert looked_back(case, batch, run) == [1]


def test_a_file_of_the_position_that_shrank_after_it_was_met_loses_no_counted_record(case: Case) -> None:
    case.define(None)
    case.comes("x.csv", "01T10:00Z,a")
    case.run(2)
    (case.root / "1.csv").write_text("2024-01-01T10:00Z,a\n")
    case.define("3 days")
    assert case.run(3) == [3]
    assert case.told == [f"late for txid 1: 1 record in x.csv; 1.csv is shorter since; {AS_NOW}"]
    assert (case.counts, case.restates) == ({"a": 1, "b": 1}, [])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda file: file.unlink(), f"1.csv is gone since; {WITHOUT}"),
        (lambda file: file.write_text("2024-01-01T10:00Z,a\n"), f"1.csv is shorter since; {AS_NOW}"),
    ],
)
def test_a_file_that_goes_or_shrinks_before_the_restate_is_planned_loses_no_counted_record(
    case: Case, change: Callable[[Path], object], told: str
) -> None:
    look_back, late = late_for_first(case)
    change(case.root / "1.csv")
    with case.runner() as runner:
        assert look_back.again(late, runner._finish_held) == []
    (left,) = look_back.told
    assert (left.why_not or "").endswith(f"days: stream 'in': {told}")
    assert (case.counts, case.restates) == ({"a": 1, "b": 1}, [])
    assert case.run(3) == [4], "the aborted restate blocks nothing"


def test_a_person_counts_a_shorter_file_again_whatever_the_reason_begins_with(case: Case) -> None:
    """A person has asked for the file as it is now: the reason alone made it a restate by a look back, which was refused."""
    (case.root / "1.csv").write_text("2024-01-01T10:00Z,a\n")
    with case.runner() as runner:
        (batch,) = runner.restate([1], "lookback: the file was mended")
    assert (batch.txid, batch.found_by, case.counts) == (2, None, {"a": 1})


def with_an_old_file(root: Path) -> Case:
    """The first day is counted, and a file that was last changed before it began."""
    case = Case(root)
    (root / "0.csv").write_text("2023-12-31T10:00Z,z\n")
    before = (FIRST - DAY).timestamp()
    os.utime(root / "0.csv", (before, before))
    case.comes("1.csv", "01T10:00Z,a", "01T11:00Z,b")
    assert case.run(1) == [1]
    return case


def test_where_retention_took_an_old_file_late_records_are_told_and_counted_by_a_person_alone(tmp_path: Path) -> None:
    """Each plan names each file. What is counted later, by a plan without the file, is counted again by itself."""
    case = with_an_old_file(tmp_path)
    (tmp_path / "0.csv").unlink()
    case.comes("x.csv", "01T10:00Z,a", "02T10:00Z,a")
    for number in (2, 3):
        assert case.run(number) == [number]
        assert case.told == [f"late for txid 1: 1 record in x.csv; 0.csv is gone since; {WITHOUT}"]
    assert (case.counts, case.restates) == ({"a": 2, "b": 1}, [])
    with case.runner() as runner:
        (batch,) = runner.restate([1], "late", accept_missing=True)
    assert (batch.txid, case.counts) == (4, {"a": 3, "b": 1})
    case.comes("x.csv", "01T12:00Z,c", "02T12:00Z,c")
    assert case.run(4) == [5, 6, 7]
    assert (case.counts, case.told) == ({"a": 3, "b": 1, "c": 2}, [])


def test_a_file_of_another_stream_that_is_gone_is_told_before_a_txid_is_used(tmp_path: Path) -> None:
    case = TwoFolders(tmp_path)
    case.comes("in/1.csv", "01T10:00Z,a")
    case.comes("more/1.csv", "02T10:00Z,c")
    case.comes("more/2.csv", "01T10:00Z,b")
    assert case.run(1) == [1]
    (tmp_path / "more" / "2.csv").unlink()
    case.comes("in/x.csv", "01T10:00Z,a")
    assert case.run(2) == [2]
    assert case.told == [f"late for txid 1: 1 record in x.csv; 2.csv is gone since; {WITHOUT}"]
    assert case.counts == {"a": 1, "b": 1, "c": 1}


class TwoFolders(Case):
    """The same with two streams, each of a folder."""

    def define(self, lookback: str | None) -> None:
        topology, streams = Topology("days", max_pending=3), []
        for name in ("in", "more"):
            (self.root / name).mkdir(exist_ok=True)
            days = Days(self.root / name, FIELDS, time="at", lookback=lookback)
            streams.append(topology.new_stream(name, days).project("name"))
        both = topology.merge(*streams, name="both")
        both.group_by("name").persistent_aggregate(TransactionalState("days"), count=Count())
        self.topology = topology
        self.steps = Steps(MemoryJob(topology.check()), self.ledger, self.staging, self.locks)


class ByFolders(Case):
    """The same with the days' files in folders of their own, as `day=2024-01-01/x.csv`."""

    def define(self, lookback: str | None) -> None:
        topology, of = Topology("days", max_pending=3), {"folder_time": "day"}
        days = Days(self.root, FIELDS, time="at", lookback=lookback, options=of)
        stream = topology.new_stream("in", days).project("name")
        stream.group_by("name").persistent_aggregate(TransactionalState("days"), count=Count())
        self.topology = topology
        self.steps = Steps(MemoryJob(topology.check()), self.ledger, self.staging, self.locks)

    def comes_on(self, number: int, name: str, *names: str) -> str:
        """A line of the day for each name, in a file of the day's folder."""
        folder = f"day=2024-01-0{number}"
        (self.root / folder).mkdir(exist_ok=True)
        self.comes(f"{folder}/{name}", *(f"0{number}T10:00Z,{each}" for each in names))
        return f"{folder}/{name}"


def test_late_files_in_folders_of_earlier_intervals_are_counted(tmp_path: Path) -> None:
    """A run reads its own folder alone: a lookback was refused beside `folder_time`."""
    case = ByFolders(tmp_path)
    for number in (1, 2):
        case.comes_on(number, "a.csv", "a")
    assert case.run(1, 2) == [1, 2]
    new, grown = case.comes_on(1, "x.csv", "b", "b"), case.comes_on(2, "a.csv", "c")
    case.comes_on(3, "a.csv", "a")
    assert case.run(3) == [3, 4, 5]
    assert case.restates == [(4, 1, f"lookback: new records in {new}"), (5, 2, f"lookback: new records in {grown}")]
    assert case.counts == {"a": 3, "b": 2, "c": 1}
    assert (case.run(4), case.told) == ([6], [])


def test_folders_further_back_are_not_looked_into_and_files_that_are_gone_are_told(tmp_path: Path) -> None:
    case = ByFolders(tmp_path, "1 day")
    for number in (1, 2):
        case.comes_on(number, "a.csv", "a")
    case.run(1, 2)
    case.comes_on(1, "x.csv", "b")
    assert (case.run(3), case.told) == ([3], [])
    (tmp_path / "day=2024-01-02" / "a.csv").unlink()
    case.define("3 days")
    late = case.comes_on(2, "x.csv", "b")
    assert case.run(4) == [4, 5]
    (told,) = case.told
    assert told.startswith(f"late for txid 2: new records in {late}; day=2024-01-02/a.csv is gone since; ")
    assert [position for _, position, _ in case.restates] == [1]
    case.define(None)
    case.comes_on(3, "x.csv", "b")
    assert (case.run(5), case.told) == ([6], []), "`txbatch status` and `verify` tell of it"


def test_two_runs_that_look_into_the_same_folder_count_it_once(tmp_path: Path) -> None:
    case = ByFolders(tmp_path)
    case.comes_on(1, "a.csv", "a")
    case.run(1)
    (first, one), (second, other) = attempt(case, 2), attempt(case, 3)
    commits(case, (first, one), (second, other))
    case.comes_on(1, "x.csv", "b")
    counting = Counting()
    counting.add(first)
    (late,) = LookBack(case.steps, one).due(counting)
    asked = [LookBack(case.steps, run).run_of(late) for run in (one, other)]
    planned = case.steps.find_or_plan(asked[0])
    assert isinstance(planned, Batch)
    assert not isinstance(case.steps.find_or_plan(asked[1]), Batch), "the first one counts it"
    emitted = case.steps.emit_batch(planned, asked[0], MemoryApplication(case.topology, case.staging).emit)
    commits(case, (emitted, asked[0]))
    assert looked_back(case, second, other) == []
    assert case.counts == {"a": 1, "b": 1}


def test_a_run_of_an_earlier_interval_leaves_later_ones_to_later_runs(case: Case) -> None:
    case.run(3)
    case.comes("x.csv", "01T10:00Z,a", "02T10:00Z,a", "03T10:00Z,a")
    assert case.run(2) == [3, 4]
    assert case.restates == [(4, 1, "lookback: 1 record in x.csv")]
    assert case.told[0].startswith("late for txid 2: 1 record in x.csv; ")
    assert case.run(4) == [5, 6]
    assert case.restates[1:] == [(6, 2, "lookback: 1 record in x.csv")]


def attempt(case: Case, number: int) -> tuple[Batch, Run]:
    """A run up to the manifest of its batch."""
    run, application = Run(f"run {number}", interval=day(number)), MemoryApplication(case.topology, case.staging)
    batch = case.steps.initialize_transaction(run)
    assert isinstance(batch, Batch)
    return case.steps.emit_batch(batch, run, application.emit), run


def commits(case: Case, *attempts: tuple[Batch, Run]) -> None:
    """Bring attempts to the success of their batches."""
    for batch, run in attempts:
        case.steps.success(case.steps.commit(batch, run).batch)


def looked_back(case: Case, batch: Batch, run: Run) -> list[int]:
    """What a run decides to count again after the commit of its batch."""
    counting = Counting()
    counting.add(batch)
    return [late.position for late in LookBack(case.steps, run).due(counting)]


def test_two_runs_that_meet_the_same_file_count_it_once(case: Case) -> None:
    """Both read before the other one committed, and both decide before the other one plans."""
    case.comes("x.csv", "01T10:00Z,a")
    (first, one), (second, other) = attempt(case, 2), attempt(case, 3)
    commits(case, (first, one), (second, other))
    assert [late.found_by for late in case.ledger.found_late("days")] == [3, 2]
    counting = Counting()
    counting.add(first)
    look_back = LookBack(case.steps, one)
    (late,) = look_back.due(counting)
    assert (late.records, late.found_by) == (1, 3)
    asked = [LookBack(case.steps, run).run_of(late) for run in (one, other)]
    planned = case.steps.find_or_plan(asked[0])
    assert isinstance(planned, Batch)
    assert not isinstance(case.steps.find_or_plan(asked[1]), Batch), "the first one counts it"
    assert looked_back(case, second, other) == []
    assert looked_back(case, first, one) == [1], "until it is committed"
    emitted = case.steps.emit_batch(planned, asked[0], MemoryApplication(case.topology, case.staging).emit)
    case.steps.success(case.steps.commit(emitted, asked[0]).batch)
    assert case.restates == [(4, 1, "lookback: 1 record in x.csv")]
    assert not isinstance(case.steps.find_or_plan(asked[1]), Batch), "the first one has counted it"
    assert case.run(4) == [5]


def test_a_batch_in_flight_that_has_read_the_file_is_not_late(case: Case) -> None:
    case.comes("x.csv", "02T10:00Z,a", "03T10:00Z,a")
    (first, one), (second, other) = attempt(case, 2), attempt(case, 3)
    commits(case, (first, one), (second, other))
    assert [(each.position, each.is_counted) for each in case.ledger.found_late("days")] == [(2, True)]
    assert looked_back(case, second, other) == []


def test_what_an_aborted_batch_met_the_next_one_meets(case: Case) -> None:
    case.comes("x.csv", "01T10:00Z,a")
    batch, _ = attempt(case, 2)
    case.ledger.abort("days", batch.txid, "wrong")
    assert case.run(3) == [3, 4]
    assert case.restates == [(4, 1, "lookback: 1 record in x.csv")]


def test_another_run_in_the_way_leaves_them_to_the_next_one(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.comes("x.csv", "01T10:00Z,a")
    finish = Runner._finish_held

    def held(runner: Runner, run: Run) -> Any:
        if run.restate is None:
            return finish(runner, run)
        raise LeaseHeld("somebody is at work")

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "_finish_held", held)
        assert case.run(2) == [2]
    assert case.told == ["late for txid 1: 1 record in x.csv; the next run counts them: somebody is at work"]
    assert case.run(3) == [3, 4]


@pytest.mark.parametrize("kind", [FunctionFailed, SpoutFailed, SparkFailed, EmissionFailed, SourceChanged])
def test_an_emission_that_fails_is_told_and_blocks_no_later_position(
    case: Case, monkeypatch: pytest.MonkeyPatch, kind: type[TxbatchError]
) -> None:
    case.run(2)
    case.comes("x.csv", "01T10:00Z,secret", "02T10:00Z,a")
    emit = MemoryApplication.emit

    def fails(application: MemoryApplication, folder: Any, assignment: Assignment) -> None:
        if assignment.position == 1:
            raise kind("int() of 'secret'")
        emit(application, folder, assignment)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryApplication, "emit", fails)
        done = case.run(3)
    assert done[0] == 3
    assert [position for _, position, _ in case.restates] == [2]
    (told,) = case.told
    assert told.startswith("late for txid 1: 1 record in x.csv; ")
    assert ("secret" in told) == (kind is SourceChanged), "a reason shows no record"
    assert not [each for each in case.ledger.tables.batches_of("days") if not each.status.final]
    case.run(4)
    assert [position for _, position, _ in case.restates] == [2, 1]


class Killed(Exception):
    """The end of a call."""


@pytest.mark.parametrize("shrinks", [True, False])
def test_a_restate_of_a_killed_call_is_held_to_the_same(
    case: Case, monkeypatch: pytest.MonkeyPatch, shrinks: bool
) -> None:
    """The next call finishes it: not from a shorter file, and not for ever if it fails."""
    case.comes("x.csv", "01T10:00Z,a")
    emit, error = MemoryApplication.emit, list[Exception]([Killed()])

    def fails(application: MemoryApplication, folder: Any, assignment: Assignment) -> None:
        if assignment.position == 1 and error:
            raise error[0]
        emit(application, folder, assignment)

    monkeypatch.setattr(MemoryApplication, "emit", fails)
    if shrinks:
        listed = IntervalSpout._found

        def shortened(spout: IntervalSpout, interval: Any) -> Any:
            found = listed(spout, interval)
            if interval[0] == day(1).start.isoformat():
                (case.root / "1.csv").write_text("2024-01-01T10:00Z,a\n")
            return found

        monkeypatch.setattr(IntervalSpout, "_found", shortened)
    with pytest.raises(Killed):
        case.run(2)
    error[:] = [] if shrinks else [FunctionFailed("it raises")]
    assert case.run(3)[0] == 4, "txid 3 is aborted"
    assert (case.counts, case.restates) == ({"a": 1, "b": 1}, [])
    assert len(case.told) == 1


@pytest.mark.parametrize("kind", [Unavailable, DatabaseRefused, OutcomeUnknown, TaskEnded])
def test_what_is_no_fault_of_the_emission_fails_the_run(case: Case, kind: type[TxbatchError]) -> None:
    look_back, late = late_for_first(case)

    def fails(run: Run) -> list[Batch]:
        raise kind("away")

    with pytest.raises(kind):
        look_back.again(late, fails)
    assert look_back.told == []


def late_for_first(case: Case) -> tuple[LookBack, LatePosition]:
    """The look back of a second day's run that met a late record of the first day."""
    case.comes("x.csv", "01T10:00Z,a")
    (batch, run), counting = attempt(case, 2), Counting()
    commits(case, (batch, run))
    counting.add(batch)
    look_back = LookBack(case.steps, run)
    (late,) = look_back.due(counting)
    return look_back, late


def test_a_restate_that_a_person_aborts_is_told(case: Case) -> None:
    look_back, late = late_for_first(case)

    def aborted(run: Run) -> list[Batch]:
        planned = case.steps.find_or_plan(run)
        assert isinstance(planned, Batch)
        case.ledger.abort("days", planned.txid, "not now")
        raise StaleAttempt("days 3/1 is not the newest attempt")

    assert look_back.again(late, aborted) == []
    (told,) = look_back.told
    assert told.why_not == "the next run counts them: days 3/1 is not the newest attempt"


def test_a_newer_try_of_the_same_restate_ends_this_one(case: Case) -> None:
    look_back, late = late_for_first(case)

    def superseded(run: Run) -> list[Batch]:
        assert isinstance(case.steps.find_or_plan(run), Batch)
        raise StaleAttempt("a newer one is at work")

    with pytest.raises(StaleAttempt):
        look_back.again(late, superseded)
    assert look_back.told == []


def test_a_try_that_fails_aborts_nothing_of_a_newer_try(case: Case) -> None:
    """R5: two tries of one task of Airflow do overlap."""
    look_back, late = late_for_first(case)

    def fails(run: Run) -> list[Batch]:
        planned = case.steps.find_or_plan(run)
        assert isinstance(planned, Batch)
        first = case.steps.start_attempt(planned, run, *case.steps.code_now())
        with case.steps.failure_told(*first):
            case.steps.start_attempt(planned, run, *case.steps.code_now())
            raise FunctionFailed("it raises")
        raise AssertionError

    with refused("TX404", "attempt 3:1", "3:2"):
        look_back.again(late, fails)
    assert look_back.told == []
    assert case.ledger.batch("days", 3).status is BatchStatus.PLANNED


def test_a_later_file_for_a_position_counted_by_the_same_run_is_left_to_the_next_run(case: Case) -> None:
    look_back, late = late_for_first(case)
    with case.runner() as runner:
        assert [batch.txid for batch in look_back.again(late, runner._finish_held)] == [3]
    case.comes("y.csv", "01T10:00Z,a")
    commits(case, attempt(case, 3))
    (later,) = outstanding(case.ledger.found_late("days"))
    assert later.found_by == 4
    with case.runner() as runner:
        assert [batch.txid for batch in look_back.again(later, runner._finish_held)] == [3]
    (told,) = look_back.told
    assert (told.files, told.why_not) == ({"y.csv": 1}, "the next run counts them: txid 3 of this run was before them")
    assert case.run(4) == [5, 6]


def test_a_run_of_intervals_apart_looks_back_from_each(case: Case) -> None:
    counting = Counting()
    for number in (1, 2, 3, 30):
        counting.add(batch_of(number))
    assert [number for number in range(1, 32) if counting.within(day(number), DAY_MICROS)] == [1, 2, 3, 29, 30]
    assert counting.whole == Interval(day(1).start, day(30).end)


def batch_of(number: int) -> Batch:
    interval = [day(number).start.isoformat(), day(number).end.isoformat()]
    plan = BatchPlan({"in": OfInterval({"interval": interval, "files": {}}, interval)})
    return Batch("days", number, BatchStatus.COMMITTED, plan.to_json(), "key")


def test_one_batch_of_a_train_looks(case: Case) -> None:
    case.comes("x.csv", *(f"0{number}T10:00Z,a" for number in range(1, 6)))
    assert case.run(2, 3, 4, 5) == [2, 3, 4, 5, 6]
    assert sorted(case.ledger.tables.came_late) == [("days", 1), ("days", 2)]


def test_an_attempt_before_the_first_commit_does_not_look_and_a_later_one_meets_what_came(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.comes("1.csv", "01T10:00Z,a")
    first, one = attempt(case, 1)
    case.comes("x.csv", "01T10:00Z,b")
    second, other = attempt(case, 2)
    commits(case, (first, one), (second, other))
    assert sorted(case.ledger.tables.came_late) == [("days", 1)]
    assert case.run(3) == [3, 4]
    assert case.restates == [(4, 1, "lookback: 1 record in x.csv")]
    assert case.counts == {"a": 1, "b": 1}


def test_an_attempt_that_could_not_compare_files_did_not_look(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.comes("x.csv", "01T10:00Z,a")

    def fails(spout: Days, before: Any, now: Any) -> dict[str, int]:
        raise SourceMissing("a folder is away")

    with monkeypatch.context() as patch:
        patch.setattr(Days, "arrived", fails)
        assert case.run(2) == [2]
    assert sorted(case.ledger.tables.came_late) == [("days", 1)]
    assert case.run(3) == [3, 4]
    assert case.restates == [(4, 1, "lookback: 1 record in x.csv")]


FOUND = FoundLate(
    *(7, "in", 1, day(1), 1, BatchStatus.COMMITTED, "run", {"x": Late(3, 0)}, {"x": [90, 5]}, {"x": [60, 5]}),
)


@pytest.mark.parametrize(
    ("changes", "records"),
    [
        ({}, 3),
        ({"counted": {}}, 3),
        ({"counted": {"x": [0, 5]}}, 3),
        ({"counted": {"x": [90, 5]}}, None),
        ({"counted": {"x": 95}}, None),
        ({"status": BatchStatus.EMITTED}, None),
        ({"version": 5, "status": BatchStatus.EMITTED, "run": "other"}, 3),
        ({"version": 5, "status": BatchStatus.EMITTED, "run": "other", "counted": {"x": [90, 5]}}, None),
        ({"version": 8, "status": BatchStatus.PLANNED, "run": "other"}, None),
        ({"version": 8, "status": BatchStatus.PLANNED, "run": "mine"}, 3),
    ],
)
def test_what_is_outstanding(changes: dict[str, Any], records: int | None) -> None:
    found = outstanding([replace(FOUND, **changes)], lambda run: run == "mine")
    assert [late.records for late in found] == ([] if records is None else [records])


@pytest.mark.parametrize(
    ("size", "told"), [(59, "3 records in x"), (60, "3 records in x"), (61, "up to 3 records in x")]
)
def test_records_that_the_position_may_have_counted_are_no_number(size: int, told: str) -> None:
    """The file grew, and the position was planned between the last look and the batch that met them."""
    (late,) = outstanding([replace(FOUND, files={"x": Late(3, 60)}, counted={"x": [size, 5]})])
    assert (late.what, late.why) == (told, f"lookback: {told}")


def test_records_that_two_batches_met_count_once_and_those_behind_them_too() -> None:
    again = replace(FOUND, found_by=8, files={"x": Late(3, 0)})
    behind = replace(FOUND, found_by=9, files={"x": Late(4, 90), "y": Late(1, 0)}, seen={"x": [200, 6], "y": [9, 6]})
    (late,) = outstanding([behind, again, FOUND])
    assert (late.files, late.records, late.found_by) == ({"x": 7, "y": 1}, 8, 9)


@pytest.mark.parametrize(
    ("now", "arrived", "told"),
    [
        ({"a": [9, 1, 7], "b": [5, 1, 7]}, (), None),
        ({"a": [9, 2, 7]}, (), None),
        ({"b": [9, 1, 7]}, (), "a is gone since; `again --accept-missing` counts without the file"),
        ({"a": [8, 2, 7]}, (), "a is shorter since; `again` counts the file as it is now"),
        ({"a": [9, 2, 6]}, (), "a was replaced since; `again` counts the file as it is now"),
        ({"a": [12, 2, 6]}, (), "a was replaced since; `again` counts the file as it is now"),
        ({"a": [12, 2, 6]}, ("a",), None),
        ({"a": 9}, (), None),
    ],
)
def test_a_file_that_is_not_what_it_was(now: dict[str, Any], arrived: tuple[str, ...], told: str | None) -> None:
    assert differing({"a": [9, 1, 7]}, now, arrived, "again") == told


@pytest.mark.parametrize(
    ("counted", "seen", "later", "why_not", "told"),
    [
        (7, 7, 2, None, "late for txid 1: 2 records in sale; `txbatch restate days 1"),
        (7, 6, 1, "1 row was changed or replaced since", "changed for txid 1: 1 row in sale; `txbatch restate days 1"),
        (7, 5, 1, "1 row was changed or replaced since and 1 row is gone since", "changed for txid 1: 1 row in sale; "),
        (7, 6, 3, "1 row was changed or replaced since", "late for txid 1: 2 records in sale; 1 row was changed"),
        (7, 9, 0, None, "late for txid 1: 2 records in sale; `txbatch restate days 1"),
    ],
)
def test_a_row_that_was_changed_is_neither_late_nor_gone(
    counted: int, seen: int, later: int, why_not: str | None, told: str
) -> None:
    """An UPDATE is a row that went and a row that came, and no reason to count the position again by itself."""
    rows = _late_rows(counted, seen, later)
    late = in_table("in", "sale", CountedPlan(1, 1, day(1), batch_of(1).plan), rows)
    assert late is not None
    assert late.why_not == why_not
    assert late.told("days").startswith(told)


@pytest.mark.parametrize(("seen", "later"), [(7, 0), (6, 0), (0, 0)])
def test_rows_that_are_gone_alone_are_told_by_status(seen: int, later: int) -> None:
    assert in_table("in", "sale", CountedPlan(1, 1, day(1), batch_of(1).plan), _late_rows(7, seen, later)) is None


def test_the_lookback_of_a_run_is_before_its_interval() -> None:
    counting = Counting([day(5)])
    assert [counting.within(day(number), 3 * 86_400_000_000) for number in range(1, 8)] == [
        *(False, True, True, True),
        *(True, False, False),
    ]
    assert counting.within(Interval(datetime(1, 1, 2, tzinfo=UTC), day(1).end), 10_000 * 365 * 86_400_000_000)
    assert not Counting().within(day(1), 1)


@pytest.mark.parametrize("lookback", ["", "3", "3 ducks", "0 days", "-1 day", "1 month", 3])
def test_a_length_that_is_none_is_refused(lookback: Any, tmp_path: Path) -> None:
    with refused("TX108", "lookback"):
        IntervalSpout(tmp_path, FIELDS, time="at", lookback=lookback)


def test_the_lookback_is_not_the_source(tmp_path: Path) -> None:
    spouts = [IntervalSpout(tmp_path, FIELDS, time="at", lookback=each) for each in (None, "3 days")]
    assert spouts[0].identity == spouts[1].identity


def changed(root: Path, change: Callable[[Path], object], **options: Any) -> dict[str, int]:
    """What has arrived in a folder by a change."""
    spout = IntervalSpout(root, FIELDS, time="at", **options)
    before = {"files": spout._found(DAY)}
    change(root)
    return spout.arrived(before, {"files": spout._found(DAY)})


def test_files_that_arrive(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("one\n")
    (tmp_path / "b.csv").write_text("one\n")
    (tmp_path / "empty.csv").touch()

    def change(root: Path) -> None:
        (root / "a.csv").write_text("one\ntwo\n")
        (root / "b.csv").write_text("two\none\n")
        (root / "c.csv").write_text("one\n")
        (root / "d.csv").touch()
        (root / "empty.csv").write_text("one\n")

    assert changed(tmp_path, change) == {"a.csv": 4, "c.csv": 0, "empty.csv": 0}


@pytest.mark.parametrize(
    ("before", "now", "since"),
    [
        ("one\ntw", "one\ntwo\nthree\n", 4),
        ("one\ntwo", "one\ntwo\nthree\n", 7),
        ("one\rtw", "one\rtwo\rthree\r", 4),
        ("one\r", "one\r\ntwo\r\n", 4),
        ("on", "one\n", 0),
    ],
)
def test_a_line_that_was_unfinished_is_new(tmp_path: Path, before: str, now: str, since: int) -> None:
    (tmp_path / "a.csv").write_bytes(before.encode())
    assert changed(tmp_path, lambda root: (root / "a.csv").write_bytes(now.encode())) == {"a.csv": since}


def test_a_record_read_from_an_unfinished_line_is_counted_again(case: Case) -> None:
    whole = (case.root / "1.csv").read_text()
    (case.root / "1.csv").write_text(f"{whole}2024-01-02T10:00Z,a")
    assert case.run(2) == [2]
    (case.root / "1.csv").write_text(f"{whole}2024-01-02T10:00Z,ab\n")
    assert case.run(3) == [3, 4]
    assert case.restates == [(4, 2, "lookback: up to 1 record in 1.csv")]
    assert case.counts == {"a": 1, "b": 1, "ab": 1}


def test_of_files_without_lines_new_ones_arrive_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"one"\n')

    def change(root: Path) -> None:
        (root / "a.csv").write_text('"one"\n"two"\n')
        (root / "b.csv").write_text('"one"\n')

    assert changed(tmp_path, change, options={"multiline": True}) == {"b.csv": 0}


def test_an_attempt_is_told_what_to_look_for_and_its_manifest_has_what_came() -> None:
    look = Look(((1, 0, 5), (2, 5, 9)), {"in": {"x": 3}})
    assert Look.from_json(look.to_json()) == look
    with pytest.raises(ValueError, match="no count"):
        Manifest.from_json(
            {**_MANIFEST, "came_late": {"in": {"1": {"x": [-1, 0]}}}},
        )
    came = {"in": {1: {"x": Late(2, 3)}}}
    manifest = replace(Manifest.from_json(_MANIFEST), came_late=came)
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert Manifest.from_json(_MANIFEST).came_late is None


_MANIFEST: dict[str, Any] = {
    "topology": "days",
    "attempt": {"txid": 1, "attempt_id": 1},
    **dict.fromkeys(("token", "code", "metadata_digest"), "x"),
    **{name: {} for name in ("streams", "states", "unreadable")},
}


def test_lookbacks_are_of_streams_that_have_one(tmp_path: Path) -> None:
    case = Case(tmp_path)
    assert lookbacks(case.topology) == {"in": 3 * 86_400_000_000}
    case.define(None)
    assert lookbacks(case.topology) == {}
