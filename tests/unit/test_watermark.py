"""The watermark: where it goes, what is late by it, what is refused; and at random, that it keeps what it says (R25)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from unit.test_window import PLAIN, TIMES, ZONED

from txbatch import AppendState, Count, FixedBatchSpout, Max, OpaqueState, Stream, Topology, window
from txbatch.core.batch.manifest import StagedState
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Interval
from txbatch.core.errors import BadRecord, DefinitionError
from txbatch.core.protocol.event_time import EventTimeFacts, advance, capped, pin_watermarks, whole_to
from txbatch.core.protocol.window_closing import decide_closing
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.topology.guarantee import guarantees
from txbatch.core.topology.late import check_kept_aside
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.walks import one_for_one
from txbatch.core.topology.watermarked import of_another_time
from txbatch.core.windows.watermark import BEGIN, Watermark, by_interval, of_interval
from txbatch.direct.emitter import counting, described
from txbatch.direct.operations import records

few = settings(max_examples=60, deadline=None)
HOUR = timedelta(hours=1)
SAYS = Watermark("at", 10)


def at(hour: int, minute: int = 0, day: int = 23) -> datetime:
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


def visits(name: str = "visits", topology: Topology | None = None, fields: str = "at timestamp, shop string") -> Stream:
    return (topology or Topology("t")).new_stream(name, FixedBatchSpout(fields, 3, (at(9), "x")))


# ---- where it goes


@pytest.mark.parametrize(
    ("before", "read", "behind", "after"),
    [
        (None, [500, 300], [], 290),
        (290, [200], [], 290),
        (290, [900], [310], 300),
        (290, [900], [100], 290),
        (290, [900], [None], 290),
        (290, [900, None], [], 890),
        (290, [None], [400], 290),
        (None, [], [400], None),
        (None, [BEGIN + 9], [], None),
        (None, [BEGIN + 10], [], BEGIN),
    ],
    ids=str,
)
def test_it_follows_the_least_of_what_was_read_and_what_is_behind(
    before: Any, read: Any, behind: Any, after: Any
) -> None:
    assert SAYS.after(before, iter(read), iter(behind)) == after


def test_by_interval_it_is_the_end_of_those_without_a_gap() -> None:
    hours = [Interval(at(hour), at(hour + 1)) for hour in (13, 10, 9, 14)]
    assert whole_to(hours, None) == at(11)
    assert whole_to([*hours, Interval(at(11), at(13))], None) == at(15)
    assert whole_to([], None) is None
    assert (SAYS.behind("at"), SAYS.behind("read_at"), SAYS.behind(None)) == (0, 10, 10)
    assert by_interval(None, 500, 0) == 500
    assert by_interval(None, 500, 10) == 490
    assert by_interval(600, 500, 10) == 600


def test_what_is_before_a_gap_below_the_watermark_holds_it_no_more() -> None:
    hours = [Interval(at(hour), at(hour + 1)) for hour in (13, 10, 9, 14, 1)]
    found = [whole_to(hours, micros_of(at(hour))) for hour in (2, 3, 11, 12, 15, 16)]
    assert found == [at(2), at(11), at(11), at(15), at(15), None]


def test_a_time_beyond_the_plan_counts_as_that_of_the_plan() -> None:
    assert capped(micros_of(datetime(2099, 1, 1, tzinfo=UTC)), at(9)) == micros_of(at(9))
    assert capped(micros_of(at(8)), at(9)) == micros_of(at(8))
    assert capped(None, at(9)) is None


def test_a_stream_that_is_not_in_the_batch_keeps_its_own() -> None:
    plan = BatchPlan.from_json({"format": 2, "streams": {"a": {"partitions": {"p": {"start": 0, "end": 1}}}}})
    known = EventTimeFacts({"b": 5, "a": 7}, {"a": [100]}, lambda stream: [], lambda reached: None)
    assert advance({"a": SAYS, "b": SAYS, "c": SAYS}, plan, known, {}) == {"a": 90, "b": 5}


def test_by_interval_another_time_than_that_of_the_interval_is_behind_by_the_delay() -> None:
    entry = {"plan": {}, "interval": [str(at(9)), str(at(10))]}
    plan = BatchPlan.from_json({"format": 2, "streams": {"a": entry, "b": entry}})
    known = EventTimeFacts({}, {}, lambda stream: [None], lambda reached: at(10))
    ten = micros_of(at(10))
    assert advance({"a": SAYS, "b": SAYS}, plan, known, {"a": 0, "b": 10}) == {"a": ten, "b": ten - 10}


def test_a_plan_says_those_of_its_topology_in_a_format_of_its_own() -> None:
    metadata = {"format": 2, "streams": {"a": {"plan": [7]}}}
    assert pin_watermarks(metadata, {"a": SAYS}, {}, at(9), {}) == metadata
    told = pin_watermarks(metadata, {"a": SAYS}, {"a": 90, "gone": 3}, at(9), {})
    assert told == {**metadata, "format": 5, "watermark": {"a": 90}}
    assert BatchPlan.from_json(told).watermark == {"a": 90}


def test_a_plan_of_an_interval_has_its_start_less_the_delay_whatever_is_committed() -> None:
    entry = {"plan": {}, "interval": [str(at(9)), str(at(10))]}
    metadata, nine = {"format": 2, "streams": {"a": entry}}, micros_of(at(9))
    for marks in ({}, {"a": nine + 5}, {"a": nine - 11}):
        for behind in (0, 10):
            found = pin_watermarks(metadata, {"a": SAYS}, marks, at(12), {"a": behind})
            assert BatchPlan.from_json(found).watermark == {"a": nine - behind}
    assert of_interval(BEGIN + 2, 10) == BEGIN


def test_records_are_behind_their_interval_unless_each_window_is_by_the_time_that_cuts_it() -> None:
    def behind(*times: str, cut_by: str = "at", of: str = "at") -> dict[str, int]:
        topology = Topology("t")
        spout = FixedBatchSpout("at timestamp, seen timestamp", 3, (at(9), at(9)))
        spout.by_interval, spout.time = True, cut_by  # type: ignore[misc,attr-defined]
        stream = topology.new_stream("visits", spout).with_watermark(of, "10 seconds")
        made = stream.each("at - interval 1 minute", "began timestamp").filter("at is not null")
        for time in times:
            grouped = made.group_by(window(time, "1 hour"))
            grouped.persistent_aggregate(OpaqueState(time), guarantee="at_least_once", visits=Count())
        return dict(topology.behind)

    assert behind("at") == {"visits": 0}
    assert behind("began") == behind("at", "began") == {"visits": 10_000_000}
    assert behind("seen", cut_by="at", of="seen") == {"visits": 10_000_000}


def test_a_step_that_keeps_a_time_makes_none() -> None:
    stream = visits().with_watermark("at", "1 hour")
    kept = (
        stream.distinct(),
        stream.first_n(3, "at"),
        stream.group_by("at", "shop").aggregate(n=Count()),
        stream.project("at"),
        stream.each("shop", "again string"),
    )
    for each in kept:
        assert of_another_time(each.node, "at") == frozenset(), each
    made = stream.map(("at", "shop"), "at timestamp, shop string")
    for each in (made, stream.topology.merge(stream, made, name="both")):
        assert of_another_time(each.node, "at") == {"visits"}


# ---- what is late


@few
@given(st.one_of(ZONED, PLAIN), TIMES, TIMES)
def test_a_window_is_late_once_its_end_is_not_after_the_watermark(made: Any, time: datetime, mark: datetime) -> None:
    try:
        (start,) = made.starts(time)
    except BadRecord:
        return
    end = made.end(start)
    assert (micros_of(start) < made.late_before(micros_of(mark))) == (end is not None and end <= mark)
    if end is not None:
        assert micros_of(start) < made.late_before(micros_of(end))
        assert micros_of(start) >= made.late_before(micros_of(end) - 1)


def test_of_windows_that_slide_those_that_have_ended_are_late() -> None:
    stream = visits().with_watermark("at", "1 minute")
    by = window("at", "1 hour", slide="30 minutes")
    aggregate = stream.group_by(by, "shop").persistent_aggregate(OpaqueState("visits"), visits=Count())
    read = {"visits": {"": [{"at": at(8, 20), "shop": "x"}, {"at": at(8, 40), "shop": "x"}]}}
    kept = list(records(aggregate.stream, read))
    assert len(kept) == 4
    marks = [{"visits": micros_of(at(*mark))} for mark in ((8, 29), (8, 30), (9,), (9, 30))]
    assert [counting(aggregate, kept, mark)[1] for mark in marks] == [0, 1, 3, 4]
    assert counting(aggregate, kept, {}) == (kept, 0)
    assert all(counting(aggregate, kept, mark)[0] == kept for mark in marks)
    assert described(read["visits"][""], "at").latest == micros_of(at(8, 40))
    assert described([{"at": None}], "at").latest is None


def test_without_a_watermark_or_a_window_nothing_is_said_of_late_records() -> None:
    without = visits().group_by(window("at", "1 hour")).persistent_aggregate(OpaqueState("a"), n=Count())
    alone = visits().with_watermark("at", "1 hour").group_by("shop").persistent_aggregate(OpaqueState("b"), n=Count())
    assert (without.late_before({"visits": 0}), alone.late_before({"visits": 0})) == (None, None)


def test_where_streams_are_merged_each_has_its_own_and_the_least_counts() -> None:
    topology = Topology("t")
    web, shop = visits("web", topology), visits("shop", topology, "seen timestamp, place string")
    both = topology.merge(web, shop, name="both").with_watermark("at", "1 minute")
    aggregate = both.group_by(window("at", "1 hour")).persistent_aggregate(OpaqueState("both"), n=Count())
    minute = 60_000_000
    assert topology.watermarks == {"web": Watermark("at", minute), "shop": Watermark("seen", minute)}
    nine, ten = micros_of(at(9)), micros_of(at(10))
    assert aggregate.late_before({"web": ten}) == BEGIN
    assert aggregate.late_before({"web": ten, "shop": nine}) == nine
    assert one_for_one(both.node) == (web.node, shop.node)
    assert (
        guarantees(topology)[-1]["watermark"] == "1 minute behind at, late='merge'; 1 minute behind seen, late='merge'"
    )


# ---- what is refused


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"time": "shop"}, ("TX104", "'shop'", "watermark", "timestamp")),
        ({"time": "when"}, ("TX103", "'when'")),
        ({"delay": "soon"}, ("TX108", "'soon'")),
        ({"delay": "0 seconds"}, ("TX108", "'0 seconds'", "1")),
        ({"delay": "1" * 5_000 + " seconds"}, ("TX108", "5,000", "10,000")),
        ({"delay": "1 month"}, ("TX108", "'1 month'")),
        ({"late": "never"}, ("TX108", "late='never'", "'merge'", "'drop'")),
    ],
    ids=lambda given: str(given)[:60],
)
def test_what_is_no_watermark_is_refused_by_name(given: Any, told: tuple[str, ...]) -> None:
    with refused(*told):
        visits().with_watermark(**{"time": "at", "delay": "1 hour", **given})


def hourly(late: str, *streams: Stream) -> PersistentAggregate:
    topology = streams[0].topology
    merged = (
        topology.merge(*streams, name="all")
        if len(streams) > 1
        else streams[0].with_watermark("at", "1 hour", late=late)
    )
    return merged.group_by(window("at", "1 hour"), "shop").persistent_aggregate(OpaqueState("hours"), n=Count())


def test_what_does_not_count_is_left_out_or_kept_in_a_state_of_its_own() -> None:
    marks = {"visits": micros_of(at(9))}
    reached = [{"at": at(hour, 30), "shop": "x", "window_start": at(hour)} for hour in (7, 8, 9)]
    dropping = hourly("drop", visits())
    assert counting(dropping, reached, marks) == (reached[2:], 2)
    assert counting(dropping, reached, {}) == (reached, 0)
    stream = visits()
    siding = hourly("side", stream)
    main, aside = stream.topology.aggregates  # type: ignore[attr-defined]
    assert (main, aside.state.name, isinstance(aside.state, AppendState)) == (siding, "hours_late", True)
    assert [field.name for field in aside.rows_of] == ["at", "shop", "window_start"]
    assert counting(aside, reached, marks) == (reached[:2], None)
    assert counting(main, reached, marks) == (reached[2:], 2)
    told = {name: StagedState((), 0, {}, kept, late) for name, kept, late in (("hours", 1, 2), ("hours_late", 2, None))}
    check_kept_aside("t", [main, aside], told)
    with refused("TX204", "'hours'", "3", "2"):
        check_kept_aside("t", [main, aside], {**told, "hours": StagedState((), 0, {}, 1, 3)})


def test_a_field_that_does_not_reach_the_state_is_in_no_late_row() -> None:
    """docs/explanation/security.md names this as the way to keep a field from readers of `report.<state>_late`."""
    stream = visits()
    kept = stream.with_watermark("at", "1 hour", late="side").project("at")
    kept.group_by(window("at", "1 hour")).persistent_aggregate(OpaqueState("hours"), n=Count())
    _, aside = stream.topology.aggregates  # type: ignore[attr-defined]
    assert [field.name for field in aside.rows_of] == ["at", "window_start"]


def test_what_is_left_out_is_by_a_window_that_is_a_key_and_by_one_policy() -> None:
    dropping = visits().with_watermark("at", "1 hour", late="drop")
    by_hour = dropping.group_by(window("at", "1 hour"), "shop").aggregate(n=Count())
    told = (
        "state 'most': late='drop' leaves records out by their window, which is no key here; group by the window last"
    )
    with pytest.raises(DefinitionError, match=told):
        by_hour.group_by("shop").persistent_aggregate(OpaqueState("most"), most=Max("n"))
    assert dropping.group_by("shop").persistent_aggregate(OpaqueState("all"), n=Count()).late == "merge"
    topology = Topology("t")
    streams = [
        visits(name, topology).with_watermark("at", "1 hour", late=late)
        for name, late in (("a", "drop"), ("b", "side"))
    ]
    with refused("TX108", "'hours'", "late='drop'", "late='side'"):
        hourly("", *streams)


def test_it_comes_first_and_once() -> None:
    filtered = visits().filter(lambda record: True)
    with refused("TX107", "with_watermark", "'at'", "'1 hour'"):
        filtered.with_watermark("at", "1 hour")
    with refused("TX108", "'visits'", "watermark"):
        visits().with_watermark("at", "1 hour").with_watermark("at", "2 hours")


def test_a_window_is_by_the_time_of_its_watermark() -> None:
    topology = Topology("t")
    fields = "at timestamp, seen timestamp"
    stream = visits("visits", topology, fields).with_watermark("at", "1 hour")
    told = r"group_by: the window is by 'seen', and the watermark by 'at' does not say when it has ended; give both the same"
    for each in (stream, stream.filter("at is null").each("1", "one int").peek(print).project("seen").repartition(2)):
        with pytest.raises(DefinitionError, match=told):
            each.group_by(window("seen", "1 hour"))
    with pytest.raises(DefinitionError, match=told):
        topology.merge(visits("web", topology, fields), stream, name="both").group_by(window("seen", "1 hour"))
    merged = topology.merge(visits("shop", topology, "when timestamp, at timestamp"), stream, name="all")
    assert merged.group_by(window("when", "1 hour"))
    assert stream.each("at - interval 1 day", "before timestamp").group_by(window("before", "1 hour"))
    assert stream.map("seen", "seen timestamp").group_by(window("seen", "1 hour"))


def test_a_stream_has_one_for_all_states() -> None:
    stream = visits()
    for name, delay in (("a", "1 hour"), ("b", "60 minutes"), ("c", "2 hours")):
        grouped = stream.with_watermark("at", delay).group_by(window("at", "1 hour"))
        grouped.persistent_aggregate(OpaqueState(name), n=Count())
    told = "topology 't': stream 'visits' has two watermarks, 1 hour behind at, .* and 2 hours behind at, "
    with pytest.raises(DefinitionError, match=told):
        stream.topology.check()  # type: ignore[attr-defined]


# ---- at random

# Of a record when it arrived and its event time; a window is named by its end.
Record = tuple[int, int]
SIZE, SLIDE, DELAY, PER_BATCH = 40, 20, 30, 4
STEPS = ["arrive", "arrive", "plan", "plan", "emit", "commit", "commit", "abort", "restate"]


@dataclass
class Planned:
    """A batch: by partition from where to where it reads, and the watermark by which its records are late."""

    txid: int
    ranges: dict[str, tuple[int, int]]
    watermark: int | None
    now: int
    status: str = "open"
    read: dict[str, tuple[int, int]] = field(default_factory=dict)
    counted: list[tuple[int, bool]] = field(default_factory=list)


@dataclass
class History:
    """Two partitions read in batches, of which some are killed, leave holes, are aborted, or are counted again.

    `wrong` says what is decided otherwise than by the rules.
    """

    random: Random
    pending: int
    wrong: str = ""
    straggle: bool = False
    now: int = 1_000
    mark: int | None = None
    closed_to: int = 0
    read: int = 0
    counted: int = 0
    late: int = 0
    log: dict[str, list[Record]] = field(default_factory=lambda: {"a": [], "b": []})
    consumed: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 0})
    last: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 0})
    missed: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 0})
    latest: dict[str, int | None] = field(default_factory=lambda: {"a": None, "b": None})
    batches: list[Planned] = field(default_factory=list)
    attempts: dict[int, list[tuple[int, bool]]] = field(default_factory=dict)

    @property
    def open(self) -> list[Planned]:
        return [each for each in self.batches if each.status == "open"]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now += self.random.randint(1, 20)
            getattr(self, self.random.choice(STEPS))()

    def arrive(self) -> None:
        """Some records, none further behind than the delay, unless they straggle."""
        most = 5 * DELAY if self.straggle else DELAY
        for name in self.random.choice(["a", "b", "ab"]):
            for _ in range(self.random.randint(1, 4)):
                self.now += 1
                self.log[name].append((self.now, self.now - self.random.randint(0, most)))

    def plan(self) -> None:
        if len(self.open) == self.pending:
            return
        starts = self.consumed | {name: end for each in self.open for name, (_, end) in each.ranges.items()}
        ends = {name: min(start + PER_BATCH, len(self.log[name])) for name, start in starts.items()}
        ranges = {name: (start, ends[name]) for name, start in starts.items() if start < ends[name]}
        if ranges:
            self.batches.append(Planned(len(self.batches) + 1, ranges, self.mark, self.now))

    def abort(self) -> None:
        if self.open and self.random.random() < 0.3:
            self._abort(self.random.choice(self.open))

    def _abort(self, batch: Planned) -> None:
        batch.status = "aborted"
        for name in batch.ranges:
            self.missed[name] = max(self.missed[name], batch.txid)

    def attempt(self, batch: Planned, ranges: dict[str, tuple[int, int]]) -> list[tuple[int, bool]]:
        """The windows in which each record counts, and whether it is late there."""
        mark = self.mark if self.wrong == "late by the attempt" else batch.watermark
        times = [time for name, (start, end) in ranges.items() for _, time in self.log[name][start:end]]
        return [(end, mark is not None and end <= mark) for time in times for end in ends_of(time)]

    def emit(self) -> None:
        """An attempt that is killed before its commit."""
        if self.open:
            batch = self.random.choice(self.open)
            self.attempts[batch.txid] = self.attempt(batch, batch.ranges)

    def commit(self) -> None:
        if not self.open:
            return
        batch = self.open[0]
        if any(self.consumed[name] != start for name, (start, _) in batch.ranges.items()):
            self._abort(batch)
            return
        holes = {name for name in batch.ranges if len(batch.ranges) > 1 and self.random.random() < 0.15}
        holes = set() if holes == batch.ranges.keys() else holes
        ranges = {name: of for name, of in batch.ranges.items() if name not in holes}
        counted = self.attempt(batch, ranges)
        assert holes or self.attempts.get(batch.txid, counted) == counted, "two attempts find other records late"
        self._count(counted, ranges, batch)

    def _count(self, counted: list[tuple[int, bool]], ranges: dict[str, tuple[int, int]], batch: Planned) -> None:
        for end, late in counted:
            assert late or end > self.closed_to, "a closed window changes"
        self.read += sum(len(ends_of(time)) for name, (a, b) in ranges.items() for _, time in self.log[name][a:b])
        self.counted += sum(not late for _, late in counted)
        self.late += sum(late for _, late in counted)
        for name in batch.ranges:
            if name in ranges:
                self.last[name], self.consumed[name] = batch.txid, ranges[name][1]
                times = [time for _, time in self.log[name][slice(*ranges[name])]]
                self.latest[name] = max([*times, *filter(None, [self.latest[name]])])
            else:
                self.missed[name] = max(self.missed[name], batch.txid)
        batch.status, batch.read, batch.counted = "committed", ranges, counted
        self._move(ranges)

    def _move(self, ranges: dict[str, tuple[int, int]]) -> None:
        behind = [] if self.wrong == "no hold" else [name for name in self.log if self.missed[name] > self.last[name]]
        says, before = Watermark("at", DELAY), self.mark
        self.mark = says.after(before, [self.latest[each] for each in ranges], [self.latest[each] for each in behind])
        assert before is None or (self.mark is not None and self.mark >= before), "it goes back"
        open_marks = [] if self.wrong == "closed by this batch" else [each.watermark or 0 for each in self.open]
        self.closed_to = max(self.closed_to, min([self.mark or 0, *open_marks]))

    def restate(self) -> None:
        """A position is counted again, by its own plan: what was late is late, however far the watermark is by now."""
        committed = [each for each in self.batches if each.status == "committed"]
        if committed:
            batch = self.random.choice(committed)
            assert self.attempt(batch, batch.read) == batch.counted, "a restate finds other records late"


def ends_of(time: int) -> list[int]:
    last = time - time % SLIDE
    return list(range(last + SLIDE, last + SIZE + 1, SLIDE))


def histories(number: int, pending: int, wrong: str = "", *, straggle: bool) -> Iterator[History]:
    for seed in range(number):
        history = History(Random(seed), pending, wrong, straggle)
        history.run(60)
        yield history


@pytest.mark.parametrize("straggle", [False, True], ids=["within the delay", "beyond it"])
@pytest.mark.parametrize("pending", [1, 3])
def test_over_histories_at_random_it_keeps_what_it_says(pending: int, straggle: bool) -> None:
    """No record that is behind by no more than the delay is late; nothing is lost; no closed window changes."""
    moved = late = 0
    for history in histories(1_000, pending, straggle=straggle):
        assert history.read == history.counted + history.late
        moved, late = moved + (history.mark is not None), late + history.late
    assert moved > 800
    assert bool(late) is straggle


@pytest.mark.parametrize(
    ("wrong", "straggle", "told"),
    [
        ("closed by this batch", True, "a closed window changes"),
        ("late by the attempt", True, "(two attempts find|a restate finds) other records late"),
        ("no hold", False, "it is late"),
    ],
)
def test_what_is_decided_otherwise_is_found(wrong: str, straggle: bool, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        all_late(histories(1_000, 3, wrong, straggle=straggle), straggle=straggle)


def all_late(found: Iterator[History], *, straggle: bool) -> None:
    for history in found:
        assert straggle or history.late == 0, "it is late"


def test_what_is_closed_stays_so_while_its_stream_has_no_watermark() -> None:
    """Another state goes on closing meanwhile; what closed before does not close again (R26)."""

    def aggregates(*with_watermark: str) -> list[PersistentAggregate]:
        topology = Topology("visits")
        for name in ("a", "b"):
            stream = visits(name, topology)
            stream = stream.with_watermark("at", "10 minutes") if name in with_watermark else stream
            stream.group_by(window("at", "1 hour")).persistent_aggregate(OpaqueState(name), visits=Count())
        return topology.aggregates

    hours = [micros_of(at(hour)) for hour in range(4)]
    closed_to, found = decide_closing(aggregates("a", "b"), {}, {"a": hours[1], "b": hours[1]}, [])
    assert found == dict.fromkeys("ab", ("window_start", BEGIN, hours[1]))
    closed_to, found = decide_closing(aggregates("b"), closed_to, {"b": hours[2]}, [])
    assert (closed_to, [*found]) == ({"a": hours[1], "b": hours[2]}, ["b"])
    closed_to, found = decide_closing(aggregates("a", "b"), closed_to, {"a": hours[3], "b": hours[2]}, [])
    assert (closed_to, found) == ({"a": hours[3], "b": hours[2]}, {"a": ("window_start", hours[1], hours[3])})
