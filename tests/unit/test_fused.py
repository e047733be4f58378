"""Several batches by one job: which may be, which of a job's attempts go on when it fails, and what comes of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from txbatch import (
    AppendState,
    CombinerAggregator,
    Count,
    FileSpout,
    FixedBatchSpout,
    Interval,
    IntervalSpout,
    LiveState,
    OpaquePartitionedLogSpout,
    OpaqueState,
    PartitionedLogSpout,
    Stream,
    Topology,
    window,
)
from txbatch.core.batch.heartbeat import Heartbeat
from txbatch.core.batch.plan import BatchPlan, Range, Ranges
from txbatch.core.batch.staging import AttemptFolder
from txbatch.core.batch.transaction import Assignment, Batch, BatchStatus, Metadata, Run, TransactionAttempt
from txbatch.core.errors import BadRecord, DefinitionError, Incomplete, IntervalNotOver, TransientError
from txbatch.core.protocol.bulk import (
    PIECES_MAX,
    Span,
    go_together,
    long_pass,
    pieces,
    planned_bytes,
    reason_against,
    spans,
)
from txbatch.core.sources.labels import labelled
from txbatch.launch.bulk import Attempt, Halving, Load
from txbatch.memory.application import MemoryApplication
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.run_locks import MemoryRunLocks
from txbatch.memory.runner import MemoryJob
from txbatch.memory.staging import MemoryStaging
from txbatch.run.runner import Runner
from txbatch.run.steps import Steps
from txbatch.spark.driver_memory import TooMuch

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
Define = Callable[[Stream], Any]


class Longest(CombinerAggregator):
    """One of a user's own."""

    partial = "words array<string>"

    def init(self, value: Any) -> Any:
        return [value]

    def combine(self, left: Any, right: Any) -> Any:
        return max(left, right)


def count(stream: Stream, state: str = "words") -> None:
    stream.group_by("line").persistent_aggregate(OpaqueState(state), count=Count())


def merged(stream: Stream) -> None:
    other = stream.topology.new_stream("other", FileSpout("/other"))  # type: ignore[attr-defined]
    count(stream.topology.merge(stream, other, name="both"))  # type: ignore[attr-defined]


def late_ones_aside(stream: Stream) -> None:
    spout = IntervalSpout("/times", "at timestamp", time="at")
    read = stream.topology.new_stream("times", spout)  # type: ignore[attr-defined]
    by_hour = read.with_watermark("at", "1 hour", late="side").group_by(window("at", "1 hour"))
    by_hour.persistent_aggregate(OpaqueState("hours"), count=Count())


@pytest.mark.parametrize(
    "define",
    [
        count,
        merged,
        lambda stream: count(stream.filter("line <> ''").each("upper(line)", "u string").project("line")),
        lambda stream: count(stream.flat_map(lambda record: record["line"].split(), "line string").repartition(2)),
        lambda stream: stream.persistent_aggregate(OpaqueState("all"), count=Count()),
        lambda stream: stream.group_by("line").persistent_aggregate(OpaqueState("w"), remove="line = ''", n=Count()),
        late_ones_aside,
    ],
)
def test_what_is_made_record_by_record_is_emitted_together(define: Define) -> None:
    topology = Topology("t")
    define(topology.new_stream("in", FileSpout("/in")))
    assert reason_against(topology) is None


@pytest.mark.parametrize(
    ("define", "why"),
    [
        (lambda stream: count(stream.transform(lambda frame: frame)), "state 'words': transform sees all records"),
        (lambda stream: count(stream.distinct()), "state 'words': distinct.* is made of all records of a batch"),
        (
            lambda stream: count(stream.state_query(LiveState("w", "line string, n int"), "line", fields=["n"])),
            "state 'words': state 'w' is looked up in as of the batch",
        ),
        (lambda stream: stream.persist(AppendState("kept")), "state 'kept' keeps records"),
        (
            lambda stream: stream.group_by("line").persistent_aggregate(OpaqueState("l"), longest=Longest("line")),
            "state 'l' combines by Python of the job",
        ),
        (lambda stream: count(stream.topology.new_stream("f", FixedBatchSpout("line string", 1, "a"))), "'f': FixedB"),
    ],
)
def test_what_is_not_says_why(define: Define, why: str) -> None:
    topology = Topology("t")
    define(topology.new_stream("in", FileSpout("/in")))
    assert (told := reason_against(topology)) is not None
    assert re.search(why, told)


def test_what_is_to_be_read_whole_goes_together_and_what_has_holes_does_not() -> None:
    """As restates and rebuilds plan; in a job of several nothing is left out."""
    topology = Topology("t")
    topology.new_stream("in", FileSpout("/in"))
    one, two = (Ranges({name: Range(0, 3)}) for name in ("a", "b"))
    whole = BatchPlan({"in": one}, whole=True)
    assert go_together(topology, whole, BatchPlan({"in": two}))
    assert not go_together(topology, whole, BatchPlan({"in": replace(two, unreadable={"c": "gone"})}))


def test_a_spout_that_reads_in_its_own_way_is_left_alone() -> None:
    class Own(FileSpout):
        def emit_batch(self, *given: Any) -> Any:
            raise AssertionError

    assert not Own("/in").fusable
    assert Own("/in").fused([{"partitions": {}}, {"partitions": {}}]) is None


def day(number: int, **files: int) -> Metadata:
    """The plan of a day, which names these files."""
    start = MIDNIGHT + timedelta(days=number)
    interval = [start.isoformat(), (start + timedelta(days=1)).isoformat()]
    return {"plan": {"interval": interval, "files": files}, "interval": interval}


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        (day(0, a=5), day(1, a=5), True),
        (day(7, a=5), day(0, a=5), True),
        (day(0, a=5), day(0, a=5), False),
        (day(0, a=5), day(1, a=6), False),
        (day(0, a=5), day(1, a=5, b=1), False),
    ],
)
def test_days_go_together_that_read_the_same_files(one: Metadata, other: Metadata, *, together: bool) -> None:
    topology = Topology("t")
    topology.new_stream("in", IntervalSpout("/in", "at timestamp, line string", time="at"))
    plans = [BatchPlan.from_json({"format": 2, "streams": {"in": each}}) for each in (one, other)]
    assert go_together(topology, *plans) is together
    assert planned_bytes(topology, plans) == (5 if together else None)


def test_files_go_together_that_are_each_in_one_batch() -> None:
    topology = Topology("t")
    topology.new_stream("in", FileSpout("/in"))
    one, two, again = (
        BatchPlan.from_json({"format": 2, "streams": {"in": {"partitions": {name: {"start": 0, "end": 3}}}}})
        for name in ("a", "b", "a")
    )
    assert (go_together(topology, one, two), go_together(topology, one, again)) == (True, False)
    assert planned_bytes(topology, [one, two]) == 6


class Said(FileSpout):
    """Gives `said` for the plan of several."""

    fusable = True
    said: Any = None

    def fused(self, plans: Sequence[Metadata]) -> Metadata | None:
        return cast("Metadata | None", self.said)


def said_of_two(said: Any, *partitions: str) -> bool:
    """Whether batches of a partition each go together by what their spout says."""
    topology = Topology("t")
    topology.new_stream("in", Said("/in")).spout.said = said  # type: ignore[attr-defined]
    one, two = (BatchPlan({"in": Ranges({name: Range(0, 10)})}) for name in partitions)
    return go_together(topology, one, two)


@pytest.mark.parametrize(
    "said",
    [
        {"p": {"start": 0, "end": 1000}, "q": {"start": 0, "end": 10}},
        {"p": {"start": 0, "end": 10}},
        {"p": {"start": 0, "end": 10}, "q": {"start": 0, "end": 10}, "r": {"start": 0, "end": 1}},
        {"p": {"start": 0, "end": 10}, "q": {"start": 0, "end": 10, "records": 7}},
        {},
    ],
)
def test_a_spout_that_names_other_ranges_for_several_than_for_each_is_refused(said: Any) -> None:
    with refused("TX119", "'in'"):
        said_of_two({"partitions": said}, "p", "q")


@pytest.mark.parametrize("said", [[], {"partitions": []}, {"partitions": {"p": 7}}, "p"])
def test_what_is_no_plan_of_partitions_is_refused(said: Any) -> None:
    with pytest.raises(DefinitionError, match=r"^TX119 \(no retry helps\): stream .in.: fused.. of Said (gave|names)"):
        said_of_two(said, "p", "q")


def test_the_ranges_of_each_in_any_order_go_together_unless_two_have_the_same_partition() -> None:
    """Whatever the spout says of that."""
    both = {"partitions": {name: {"end": 10, "start": 0} for name in ("q", "p")}}
    assert said_of_two(both, "p", "q")
    assert not said_of_two(None, "p", "q")
    assert not said_of_two(both, "p", "p")


def said_of_one_partition(said: Any) -> bool:
    """Whether two batches of the same partition go together by what their spout says."""
    topology = Topology("t")
    topology.new_stream("in", Said("/in")).spout.said = said  # type: ignore[attr-defined]
    return go_together(topology, *(BatchPlan({"in": Ranges({"p": Range(n, n + 5)})}) for n in (0, 5)))


def test_batches_of_the_same_partition_go_together_if_each_range_has_a_label() -> None:
    plans = [{"partitions": {"p": {"start": n, "end": n + 5}}} for n in (0, 5)]
    assert said_of_one_partition(labelled(plans))
    assert said_of_one_partition({**labelled(plans), "more": 7})
    assert not said_of_one_partition(plans[0])


@pytest.mark.parametrize(
    ("labels", "ranges", "why"),
    [
        ({"x": [0, "p"]}, {"x": (0, 5)}, "gave other labels"),
        ({"x": [0, "p"], "y": [0, "p"]}, {"x": (0, 5), "y": (0, 5)}, "gave other labels"),
        ({"x": [0, "p"], "y": [2, "p"]}, {"x": (0, 5), "y": (5, 10)}, "gave other labels"),
        ({"x": [0, "p"], "y": [1, "q"]}, {"x": (0, 5), "y": (5, 10)}, "gave other labels"),
        ({"x": [0, "p"], "y": [1, "p"], "z": [1, "p"]}, {"x": (0, 5), "y": (5, 10)}, "gave other labels"),
        ({"x": "p", "y": [1, "p"]}, {"x": (0, 5), "y": (5, 10)}, "gave other labels"),
        (7, {"x": (0, 5), "y": (5, 10)}, "gave other labels"),
        ({"x": [1, "p"], "y": [0, "p"]}, {"x": (0, 5), "y": (5, 10)}, "names other ranges"),
        ({"x": [0, "p"], "y": [1, "p"]}, {"x": (0, 5), "y": (5, 9)}, "names other ranges"),
        ({"x": [0, "p"], "y": [1, "p"]}, {"x": (0, 5)}, "names other ranges"),
    ],
)
def test_labels_that_are_not_one_for_each_range_are_refused(labels: Any, ranges: Any, why: str) -> None:
    partitions = {label: {"start": start, "end": end} for label, (start, end) in ranges.items()}
    with pytest.raises(DefinitionError, match=rf"^TX119 .*stream 'in': fused\(\) of Said {why}"):
        said_of_one_partition({"partitions": partitions, "of": labels})


@pytest.mark.parametrize("spout", [PartitionedLogSpout, OpaquePartitionedLogSpout])
def test_batches_of_a_log_go_together_unless_a_subclass_reads_in_its_own_way(spout: Any) -> None:
    class Own(spout):  # type: ignore[misc]
        def emit_batch(self, *given: Any) -> Any:
            raise AssertionError

    topology = Topology("t")
    topology.new_stream("in", spout("/in"))
    plans = [BatchPlan({"in": Ranges({"0": Range(n, n + 5), "1": Range(n, n)})}) for n in (0, 5)]
    assert reason_against(topology) is None
    assert go_together(topology, *plans)
    assert Own("/in").fused([{"partitions": {}}, {"partitions": {}}]) is None


def test_no_moment_is_of_two_batches() -> None:
    topology = Topology("t")
    topology.new_stream("in", AnyTime("/in", "at timestamp, line string", time="at"))
    plans = [BatchPlan.from_json({"format": 2, "streams": {"in": day(number, a=5)}}) for number in (0, 1, 1)]
    assert go_together(topology, *plans[:2])
    assert not go_together(topology, *plans[1:])
    attempts = [Assignment("t", TransactionAttempt(txid, 1), "", plan.to_json(), "") for txid, plan in enumerate(plans)]
    with pytest.raises(AssertionError, match="txids 1 and 2 have a time in common"):
        spans(attempts, "in")


class AnyTime(IntervalSpout):
    """Takes whatever it is given."""

    def fused(self, plans: Sequence[Metadata]) -> Metadata | None:
        return plans[0]


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9)), min_size=1, max_size=9), st.integers(-500, 500))
def test_each_moment_meets_its_own_batch_and_at_most_its(lengths: list[tuple[int, int]], at: int) -> None:
    """Also in gaps, before 1970, and beside batches of other lengths."""
    spans = []
    for txid, (length, gap) in enumerate(lengths, 1):
        spans.append(Span(txid, at, at + length))
        at += length + gap
    origin, width, found = pieces(spans)
    for moment in range(spans[0].start, spans[-1].end + 3):
        met = [span for piece, span in found if piece == (moment - origin) // width]
        owners = [span.txid for span in met if span.start <= moment < span.end]
        assert owners == [span.txid for span in spans if span.start <= moment < span.end]


def test_a_second_among_years_makes_no_billion_of_pieces() -> None:
    second, year = 1_000_000, 365 * 86_400_000_000
    _, _, found = pieces([Span(1, 0, second), Span(2, second, 9 * year)])
    assert len(found) <= PIECES_MAX + 4


class Folder:
    """What `Halving` asks of an attempt's folder."""

    def __init__(self, txid: int, superseded: str | None = None) -> None:
        self.txid, self.superseded, self.said = txid, superseded, ""

    def read_heartbeat(self) -> Heartbeat:
        return Heartbeat(9, superseded=self.superseded)

    def said_something(self) -> bool:
        return bool(self.said)


class Jobs:
    """Spark jobs over attempts, some of which fail; `said` is what a job says of one alone."""

    def __init__(self, number: int, failing: Sequence[int], said: str = "txid {} fails") -> None:
        self.folders = {txid: Folder(txid) for txid in range(1, number + 1)}
        self.failing, self.said, self.jobs = set(failing), said, list[list[int]]()

    def run(self) -> dict[int, str]:
        halving = Halving(self.together, self.alone, str, 2 * len(self.folders).bit_length())
        halving.emit([cast("Attempt", (folder, None)) for folder in self.folders.values()])
        return {txid: folder.said for txid, folder in self.folders.items()}

    def together(self, attempts: Sequence[Attempt]) -> None:
        folders = [cast(Folder, folder) for folder, _ in attempts]
        self.jobs.append([folder.txid for folder in folders])
        if failed := self.failing & set(self.jobs[-1]):
            raise BadRecord(self.said.format(min(failed)))
        for folder in folders:
            folder.said = "manifest"

    def alone(self, attempt: Attempt) -> str | None:
        folder = cast(Folder, attempt[0])
        self.jobs.append([folder.txid])
        failed = BadRecord(self.said.format(folder.txid))
        folder.said = str(failed) if folder.txid in self.failing else "manifest"
        return None if folder.said == "manifest" else folder.said


class Full(Jobs):
    """Jobs that take no more than 10 rows; each batch has as many as `rows` says, or 2."""

    def __init__(self, number: int, failing: Sequence[int] = (), **rows: int) -> None:
        super().__init__(number, failing)
        self.rows = {txid: rows.get(f"txid_{txid}", 2) for txid in self.folders}
        self.load = Load()

    def run(self) -> dict[int, str]:
        attempts = [
            (folder, Assignment("t", TransactionAttempt(txid, 1), "", {}, "")) for txid, folder in self.folders.items()
        ]
        Halving(self.together, self.alone, str, 2 * len(attempts).bit_length(), self.load).emit(
            cast("list[Attempt]", attempts)
        )
        return {txid: folder.said for txid, folder in self.folders.items()}

    def together(self, attempts: Sequence[Attempt]) -> None:
        rows = {each[1].attempt.txid: self.rows[each[1].attempt.txid] for each in attempts}
        if sum(rows.values()) > 10:
            self.jobs.append(list(rows))
            raise TooMuch("t", {txid: number / 10 for txid, number in rows.items()})
        super().together(attempts)


def test_what_is_too_much_at_once_goes_on_in_pieces_that_are_known_and_later_jobs_begin_so() -> None:
    jobs = Full(64)
    assert set(jobs.run().values()) == {"manifest"}
    assert [len(each) for each in jobs.jobs] == [64, *[5] * 12, 4]
    later = Full(64)
    later.load = jobs.load
    assert set(later.run().values()) == {"manifest"}
    assert [len(each) for each in later.jobs] == [4] * 16


def test_a_huge_batch_among_small_ones_is_emitted_by_itself_and_the_others_together() -> None:
    jobs = Full(6, txid_3=40)
    assert set(jobs.run().values()) == {"manifest"}
    assert jobs.jobs == [[1, 2, 3, 4, 5, 6], [1, 2], [3], [4, 5, 6]]


def test_what_is_too_much_takes_no_try_from_what_fails() -> None:
    """Many that are each too much, and one that fails."""
    jobs = Full(40, failing=[33], **{f"txid_{txid}": 6 for txid in range(1, 41)})
    said = jobs.run()
    assert [txid for txid, each in said.items() if each != "manifest"] == [33]


@pytest.mark.parametrize("failing", [(1,), (7,), (3, 12)])
def test_what_fails_is_found_by_halves_and_fails_alone(failing: tuple[int, ...]) -> None:
    said = Jobs(12, failing).run()
    assert {txid for txid, each in said.items() if each != "manifest"} == set(failing)


def test_where_all_fail_alike_nobody_tries_each() -> None:
    jobs = Jobs(300, range(1, 301), "line 7 is no number")
    said = jobs.run()
    assert len(jobs.jobs) <= 12
    assert sum(map(bool, said.values())) <= 2


def test_one_failure_of_several_jobs_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    Jobs(4, [1], "line 7 is no number").run()
    assert capsys.readouterr().err.splitlines() == [
        "txbatch: 4 batches by one job: TX301 (no retry helps): line 7 is no number",
        "txbatch: 2 batches by one job: it failed in the same way",
    ]


def test_there_is_an_end_to_jobs_that_fail() -> None:
    jobs = Jobs(300, range(1, 301))
    jobs.run()
    assert len(jobs.jobs) <= 40


def test_a_superseded_attempt_is_left_out() -> None:
    jobs = Jobs(4, ())
    jobs.folders[2].superseded = "2:2"
    assert jobs.run() == {1: "manifest", 2: "", 3: "manifest", 4: "manifest"}
    assert jobs.jobs == [[1, 3, 4]]


class Days(IntervalSpout):
    """A record of each hour; `bad` days cannot be read."""

    bad: frozenset[int] = frozenset()

    def __init__(self, root: Path) -> None:
        super().__init__(root, "at timestamp, line string", time="at")

    def batch(self, plan: Metadata) -> list[tuple[Any, ...]]:
        start, end = map(datetime.fromisoformat, plan["interval"])
        if start.day in self.bad:
            raise BadRecord(f"day {start.day} is damaged")
        hours = (end - start) // timedelta(hours=1)
        return [(start + timedelta(hours=hour), f"hour {hour}") for hour in range(hours)]


class Application(MemoryApplication):
    """Notes what is emitted together, and what alone; `before` is called once, when several have begun."""

    before: Callable[[], None] | None = None

    def __init__(self, topology: Topology, staging: MemoryStaging) -> None:
        super().__init__(topology, staging)
        self.together, self.alone, self.inside = list[list[str]](), list[str](), False
        self.started: list[int] = []

    def start(self, plans: Sequence[BatchPlan], code: str) -> None:
        self.started.append(len(plans))

    def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        if not self.inside:
            self.alone.append(str(assignment.attempt))
        super().emit(folder, assignment)

    def emit_bulk(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        self.together.append([str(assignment.attempt) for _, assignment in attempts])
        hook, self.before = self.before, None
        if hook is not None:
            hook()
        self.inside = True
        try:
            super().emit_bulk(attempts)
        finally:
            self.inside = False


class Case:
    """A runner of days over the ledger in memory."""

    def __init__(self, folder: Path, **options: Any) -> None:
        (folder / "a").touch()
        self.spout, self.topology = Days(folder), Topology("days", **options)
        stream = self.topology.new_stream("in", self.spout)
        stream.group_by("line").persistent_aggregate(OpaqueState("hours"), count=Count())
        self.ledger, self.staging = MemoryLedger(), MemoryStaging()
        self.begin()

    def begin(self) -> None:
        """A new process."""
        self.application = Application(self.topology, self.staging)
        self.steps = Steps(MemoryJob(self.topology), self.ledger, self.staging, MemoryRunLocks())
        self.runner = Runner(self.steps, self.application)

    def run(self, days: int) -> list[int]:
        starts = [MIDNIGHT + timedelta(days=number) for number in range(days)]
        each = [Interval(start, start + timedelta(days=1)) for start in starts]
        return [batch.txid for batch in self.runner.run_each(each)]

    def batches(self) -> list[Batch]:
        return list(self.ledger.tables.batches_of("days"))

    @property
    def count(self) -> int:
        rows = self.ledger.rows("hours")
        return rows["hour 0",].value[0] if rows else 0


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_the_application_starts_before_the_attempts_and_only_for_something_to_emit(case: Case) -> None:
    begun: list[int] = []

    def start_attempt(ledger: MemoryLedger, batch: Batch, run: Run, code: str) -> Assignment:
        begun.append(len(case.application.started))
        return original(ledger, batch, run, code)

    original = MemoryLedger.start_attempt
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryLedger, "start_attempt", start_attempt)
        assert case.run(3) == [1, 2, 3]
    assert (begun, case.application.started) == ([1, 1, 1], [3])
    case.begin()
    assert case.run(3) == [1, 2, 3]
    assert case.application.started == []


def test_days_are_emitted_together_and_committed_each_by_its_own_txid(case: Case) -> None:
    """Also more than max_pending. Called again, nothing is emitted: all is found."""
    assert case.run(5) == [1, 2, 3, 4, 5]
    assert (case.application.together, case.application.alone) == ([["1:1", "2:1", "3:1", "4:1", "5:1"]], [])
    assert case.count == 5
    assert all(batch.succeeded for batch in case.batches())
    assert len({batch.lease_run for batch in case.batches()}) == 5, "each is its own run"
    assert case.run(7) == [1, 2, 3, 4, 5, 6, 7]
    assert case.application.together[1:] == [["6:1", "7:1"]]
    assert case.count == 7


def test_a_batch_that_succeeded_is_final_to_a_call_that_finds_it_again(
    case: Case, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As the task commit of a run in Airflow that caught up does with each."""
    caplog.set_level(logging.INFO)
    success, told = Steps.success, list[int]()
    monkeypatch.setattr(Steps, "success", lambda steps, batch: told.append(batch.txid) or success(steps, batch))
    assert case.run(3) == case.run(3) == [1, 2, 3]
    assert told == [1, 2, 3]
    assert [line for line in caplog.messages if "already" in line] == [
        f"days: already committed as txid {txid}" for txid in (1, 2, 3)
    ]


def test_a_day_that_fails_keeps_back_those_behind_it_which_are_not_emitted_again(case: Case) -> None:
    case.spout.bad = frozenset({3})
    with refused("TX301", "day 3"):
        case.run(5)
    assert [str(batch.status) for batch in case.batches()] == [*["committed"] * 2, "planned", *["emitted"] * 2]
    assert case.application.alone == ["3:2"]
    case.begin()
    case.spout.bad = frozenset()
    assert case.run(6) == [3, 4, 5, 1, 2, 3, 4, 5, 6]
    assert (case.application.alone, case.count) == (["3:3", "6:1"], 6)


def test_when_it_is_aborted_the_others_are_committed(case: Case) -> None:
    case.spout.bad = frozenset({3})
    with pytest.raises(BadRecord):
        case.run(4)
    case.ledger.abort("days", 3, "damaged")
    case.begin()
    with refused("TX301", "day 3"):
        case.run(5)
    assert case.count == 3
    assert case.batches()[3].status is BatchStatus.COMMITTED


def test_one_that_is_superseded_is_left_to_who_took_it_and_the_others_go_on(case: Case) -> None:
    """A newer attempt of the same run, which another process begins while the job is at work."""

    def overtake() -> None:
        batch = case.ledger.batch("days", 2)
        case.steps.start_attempt(batch, Run(batch.lease_run or ""), "in memory", case.steps.job.loaded())

    case.application.before = overtake
    assert case.run(3) == [1, 2, 3]
    assert case.application.alone == ["2:3"]
    assert case.count == 3


def test_a_killed_call_goes_on_together(case: Case) -> None:
    """What it planned and did not emit, the next call emits by one job."""

    class KilledError(BaseException):
        """As by SIGKILL."""

    def kill() -> None:
        raise KilledError

    case.application.before = kill
    with pytest.raises(KilledError):
        case.run(4)
    case.begin()
    assert case.run(4) == [1, 2, 3, 4, 1, 2, 3, 4]
    assert (case.application.together, case.application.alone) == ([["1:2", "2:2", "3:2", "4:2"]], [])


def test_restates_of_a_call_are_emitted_together_also_when_it_was_killed(case: Case) -> None:
    """Each is its own run; the next call for the same goes on with them."""

    class KilledError(BaseException):
        """As by SIGKILL."""

    def kill() -> None:
        raise KilledError

    assert case.run(3) == [1, 2, 3]
    case.application.before = kill
    with pytest.raises(KilledError):
        list(case.runner.restate([3, 1], "late"))
    assert len({batch.lease_run for batch in case.batches()[3:]}) == 2
    case.begin()
    assert [(batch.txid, batch.position) for batch in case.runner.restate([1, 3], "late")] == [(4, 1), (5, 3)] * 2
    assert (case.application.together, case.application.alone) == ([["4:2", "5:2"]], [])
    assert [batch.txid for batch in case.runner.restate([1, 3], "late")] == [6, 7]
    assert case.count == 3


def test_when_the_job_as_a_whole_fails_each_is_emitted_by_itself(case: Case) -> None:
    def fail() -> None:
        raise TransientError("Spark ended")

    case.application.before = fail
    assert case.run(3) == [1, 2, 3]
    assert case.application.alone == ["1:2", "2:2", "3:2"]
    assert case.ledger.tables.attempts_of(case.batches()[0])[0].error == "TX002 (try again): Spark ended"


def test_a_train_is_no_longer_than_its_bound(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txbatch.core.protocol.bulk.BATCHES_MAX", 2)
    assert case.run(5) == [1, 2, 3, 4, 5]
    assert [len(each) for each in case.application.together] == [2, 2]
    assert case.application.alone == ["5:1"]


def test_an_interval_that_is_refused_keeps_no_earlier_one_back(case: Case) -> None:
    future = Interval(datetime.now(UTC) + timedelta(days=1), datetime.now(UTC) + timedelta(days=2))
    days = [Interval(MIDNIGHT, MIDNIGHT + timedelta(days=1)), future]
    done = []
    with pytest.raises(Exception, match="is not over"):
        done.extend(batch.txid for batch in case.runner.run_each(days))
    assert case.count == 1


def test_nothing_is_planned_ahead_of_what_goes_one_by_one(case: Case) -> None:
    case.topology.streams["in"].distinct().group_by("line").persistent_aggregate(OpaqueState("once"), count=Count())
    case.begin()
    assert case.run(3) == [1, 2, 3]
    assert (case.application.together, case.application.alone) == ([], ["1:1", "2:1", "3:1"])


class Beside(Application):
    """Emits when it is waited for, as another process may; notes that, and the commits."""

    def __init__(self, topology: Topology, staging: MemoryStaging) -> None:
        super().__init__(topology, staging)
        self.done, self.begun = list[str](), list[tuple[AttemptFolder, Assignment]]()

    def begin(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        assert not self.begun, "one thing at a time"
        self.begun = list(attempts)
        self.done.append("begin " + " ".join(str(assignment.attempt.txid) for _, assignment in attempts))

    def wait(self) -> None:
        begun, self.begun = self.begun, []
        self.done.append("wait")
        self.emit_bulk(begun)

    def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        assert not self.begun, "one thing at a time"
        super().emit(folder, assignment)


class Trains(Case):
    """Days in trains of two, then of four; `at` some txids commits raise."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.at = dict[int, list[BaseException]]()
        super().__init__(folder, **options)

    def begin(self) -> None:
        super().begin()
        self.application = self.beside = Beside(self.topology, self.staging)
        self.runner = Runner(self.steps, self.application)

    @property
    def statuses(self) -> str:
        return "".join(str(batch.status)[0] for batch in self.batches())


@pytest.fixture
def trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trains:
    monkeypatch.setattr("txbatch.core.protocol.bulk.BATCHES_FIRST", 2)
    monkeypatch.setattr("txbatch.core.protocol.bulk.BATCHES_MAX", 4)
    case, commit = Trains(tmp_path, max_pending=2), MemoryLedger.commit

    def commit_or_raise(ledger: MemoryLedger, topology: Topology, batch: Batch, *given: Any) -> Any:
        case.beside.done.append(f"commit {batch.txid}")
        if case.at.get(batch.txid):
            raise case.at[batch.txid].pop()
        return commit(ledger, topology, batch, *given)

    monkeypatch.setattr(MemoryLedger, "commit", commit_or_raise)
    return case


def test_a_train_is_committed_while_the_next_one_which_is_longer_is_emitted(trains: Trains) -> None:
    """Its success, too. More are in flight than max_pending, which is for those of others."""
    assert trains.run(8) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert trains.beside.done == [
        *["begin 1 2", "wait"],
        *["begin 3 4 5 6", "commit 1", "commit 2", "wait"],
        *["begin 7 8", "commit 3", "commit 4", "commit 5", "commit 6", "wait"],
        *["commit 7", "commit 8"],
    ]
    assert all(batch.succeeded for batch in trains.batches())
    assert (trains.beside.alone, trains.count) == ([], 8)


def test_what_this_call_has_emitted_is_committed_without_asking_for_it_again(
    trains: Trains, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryLedger, "newest_attempt", None)
    assert trains.run(4) == [1, 2, 3, 4]


def test_one_that_is_aborted_behind_its_emission_is_planned_anew(trains: Trains) -> None:
    starts = [MIDNIGHT, MIDNIGHT + timedelta(days=1)]
    going = trains.runner.run_each([Interval(start, start + timedelta(days=1)) for start in starts])
    assert next(going).txid == 1
    trains.ledger.abort("days", 2, "by hand")
    assert [batch.txid for batch in going] == [3]
    assert trains.statuses == "cac"


def test_a_call_knows_how_many_are_planned_behind_each(trains: Trains) -> None:
    starts = [MIDNIGHT + timedelta(days=number) for number in range(8)]
    each = trains.runner.run_each([Interval(start, start + timedelta(days=1)) for start in starts])
    assert [trains.runner.behind for _ in each] == [5, 4, 5, 4, 3, 2, 1, 0]


def test_a_commit_that_fails_stops_the_train_and_what_is_emitted_beside_it_is_kept(
    trains: Trains, caplog: pytest.LogCaptureFixture
) -> None:
    trains.at[2] = [BadRecord("2 is bad")]
    with refused("TX301", "2"):
        trains.run(8)
    assert trains.statuses == "ceeeee"
    assert "behind txid 2 stay open: txids 3 to 6; mend it" in caplog.text
    trains.begin()
    assert trains.run(8) == [2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 7, 8]
    assert [each for each in trains.beside.done if each.startswith("begin")] == ["begin 7 8"]
    assert (trains.beside.alone, trains.count) == ([], 8)


def test_nothing_is_planned_behind_a_train_of_which_one_is_not_emitted(trains: Trains) -> None:
    """Spark does one thing at a time, and what fails keeps back all behind it."""
    trains.spout.bad = frozenset({2})
    with refused("TX301", "day 2"):
        trains.run(8)
    assert trains.statuses == "cp"
    assert trains.beside.done == ["begin 1 2", "wait", "commit 1"]


def test_a_batch_that_is_to_be_emitted_again_waits_until_spark_is_free(trains: Trains) -> None:
    trains.at[2] = [Incomplete("what it staged is lost")] * 2
    assert trains.run(4) == [1, 2, 3, 4]
    assert trains.beside.done[2:6] == ["begin 3 4", "commit 1", "commit 2", "wait"]
    assert (trains.beside.alone, trains.count) == (["2:2"], 4)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError()])
def test_who_stops_the_call_waits_for_nothing_and_the_next_one_goes_on(trains: Trains, error: BaseException) -> None:
    """As by Ctrl-C, or by SIGKILL: what was being emitted is emitted again."""
    trains.at[2] = [error]
    with pytest.raises(type(error)):
        trains.run(8)
    assert trains.beside.done == ["begin 1 2", "wait", "begin 3 4 5 6", "commit 1", "commit 2"]
    assert trains.statuses == "cepppp"
    trains.begin()
    assert trains.run(8) == [2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 7, 8]
    assert [each for each in trains.beside.done if each.startswith("begin")] == ["begin 3 4 5 6", "begin 7 8"]
    assert (trains.beside.alone, trains.count) == ([], 8)


def test_a_call_that_is_left_in_the_middle_waits_for_nothing(trains: Trains) -> None:
    starts = [MIDNIGHT + timedelta(days=number) for number in range(8)]
    going = trains.runner.run_each([Interval(start, start + timedelta(days=1)) for start in starts])
    assert next(iter(going)).txid == 1
    going.close()  # type: ignore[attr-defined]
    assert trains.beside.done == ["begin 1 2", "wait", "begin 3 4 5 6", "commit 1"]
    assert trains.statuses == "cepppp"


def test_runs_behind_the_last_that_has_a_batch_are_asked_again_when_the_train_is_committed(trains: Trains) -> None:
    """An interval that is not over is refused once those before it are committed."""
    future = datetime.now(UTC) + timedelta(days=1)
    starts = [*(MIDNIGHT + timedelta(days=number) for number in range(3)), future]
    with pytest.raises(IntervalNotOver):
        list(trains.runner.run_each([Interval(start, start + timedelta(days=1)) for start in starts]))
    assert (trains.statuses, trains.count) == ("ccc", 3)


def test_what_is_read_by_a_long_pass_is_not_read_more_often_than_it_must_be(
    trains: Trains, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each train reads all files, as its records are found by their time."""
    (trains.spout.root / "a").write_text("much")
    monkeypatch.setattr("txbatch.core.protocol.bulk.PASS_BYTES_MAX", 3)
    assert trains.run(5) == [1, 2, 3, 4, 5]
    assert [len(each) for each in trains.beside.together] == [4]
    assert trains.beside.alone == ["5:1"]


def test_a_long_pass_is_one_by_time() -> None:
    topology = Topology("t")
    topology.new_stream("in", FileSpout("/in"))
    assert not long_pass(topology, BatchPlan({"in": Ranges({"a": Range(0, 10**12)})}))
