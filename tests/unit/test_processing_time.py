"""Processing time: when a batch was planned, as a field of its records; what moves with it, and what is refused (R28)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from refusals import refused
from support import LogSpout

from txbatch import Count, FixedBatchSpout, Max, OpaqueState, StateSpout, Stream, Topology, session_window, window
from txbatch.core.batch.plan import BatchPlan, Range, Ranges, Successive
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.definition.stored import StoredTopology as Defined
from txbatch.core.definition.stored import stream_watermarks
from txbatch.core.errors import DefinitionError
from txbatch.core.protocol.bulk import as_one_assignment, go_together
from txbatch.core.protocol.event_time import EventTimeFacts, advance, pin_watermarks
from txbatch.core.protocol.window_closing import decide_closing
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.topology.guarantee import guarantees
from txbatch.core.topology.walks import one_for_one
from txbatch.core.windows.watermark import BEGIN, Watermark
from txbatch.direct.emitter import counting
from txbatch.direct.operations import records
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.runner import run

TIMED = Watermark("planned_at", 0, planned=True)
TEN = datetime(2026, 1, 5, 10, tzinfo=UTC)
AT = micros_of(TEN)
PLANNED = BatchPlan({}, planned_at=AT)


def visits(name: str = "visits", topology: Topology | None = None, fields: str = "shop string") -> Stream:
    spout = FixedBatchSpout(fields, 3, *(TEN if "timestamp" in fields else each for each in "xyz"))
    return (topology or Topology("t")).new_stream(name, spout)


def test_each_record_has_when_its_batch_was_planned() -> None:
    stream = visits().with_processing_time("seen")
    assert [(each.name, each.type) for each in stream.fields] == [("shop", "string"), ("seen", "timestamp")]
    read = {"visits": {"": [{"shop": "x"}, {"shop": "y"}]}}
    assert list(records(stream.node, read, plan=PLANNED)) == [{"shop": "x", "seen": TEN}, {"shop": "y", "seen": TEN}]
    assert [each["seen"] for each in records(stream.node, read)] == [None, None]
    by_partition = stream.partition_aggregate(last=Max("seen"))
    assert list(records(by_partition.node, read, plan=PLANNED)) == [{"last": TEN}]
    assert one_for_one(stream.node) == stream.roots


def test_of_merged_streams_each_record_has_it_and_any_batch_moves_all() -> None:
    topology = Topology("t")
    both = topology.merge(visits("web", topology), visits("shop", topology, "place string"), name="both")
    stream = both.with_processing_time()
    aggregate = stream.group_by(window("planned_at", "1 minute")).persistent_aggregate(OpaqueState("s"), n=Count())
    read = {"web": {"": [{"shop": "x"}]}, "shop": {"": [{"place": "y"}]}}
    assert list(records(stream.node, read, plan=PLANNED)) == [{"shop": each, "planned_at": TEN} for each in "xy"]
    assert topology.watermarks == {"web": TIMED, "shop": TIMED}
    plan = BatchPlan({"web": Successive([7])}, planned_at=AT)
    known = EventTimeFacts({}, {}, lambda stream: [None], lambda reached: None)
    assert advance(topology.watermarks, plan, known, {}) == {"web": AT, "shop": AT}
    assert advance(topology.watermarks, replace(plan, planned_at=None), known, {}) == {}
    assert (aggregate.closes, aggregate.late) == (True, "merge")
    assert aggregate.late_before({"web": AT, "shop": AT}) == AT


def test_a_plan_says_it_in_a_format_of_its_own_and_no_earlier_than_what_is_committed() -> None:
    metadata = {"format": 2, "streams": {"a": {"plan": [7]}}}
    said = {**metadata, "format": 6, "planned_at": AT}
    assert pin_watermarks(metadata, {"a": TIMED}, {}, TEN, {}) == said
    assert pin_watermarks(metadata, {"a": TIMED}, {"a": AT}, TEN - timedelta(hours=1), {}) == said
    event = Watermark("at", 10)
    assert pin_watermarks(metadata, {"a": TIMED, "b": event}, {"b": 90}, TEN, {}) == {**said, "watermark": {"b": 90}}
    assert BatchPlan.from_json(said).to_json() == said
    assert "planned_at" not in pin_watermarks(metadata, {"b": event}, {"b": 90}, TEN, {})


def test_what_an_open_plan_may_count_in_stays_open() -> None:
    grouped = visits().with_processing_time().group_by(window("planned_at", "1 hour"))
    aggregate = grouped.persistent_aggregate(OpaqueState("s"), n=Count())
    timed = {"visits": TIMED}
    known = BatchPlan({}, watermark={"visits": 3, "other": 4}, planned_at=AT).marks(timed)
    assert known == {"visits": AT, "other": 4}
    of_before = BatchPlan({}, watermark={"visits": 3}).marks(timed)
    assert of_before == {}
    after = {"visits": AT + 7_200_000_000}
    assert decide_closing([aggregate], {}, after, [known]) == ({"s": AT}, {"s": ("window_start", BEGIN, AT)})
    assert decide_closing([aggregate], {}, after, [of_before]) == ({}, {})


class Log(LogSpout):
    """A source of which one pass reads any ranges."""

    def fused(self, plans: Sequence[Any]) -> Any:
        return {"partitions": {name: of for plan in plans for name, of in plan["partitions"].items()}}


def test_only_batches_of_one_time_are_emitted_by_one_job() -> None:
    topology = Topology("t")
    grouped = topology.new_stream("in", Log({})).with_processing_time().group_by("word")
    grouped.persistent_aggregate(OpaqueState("s"), n=Count())
    first, other = (BatchPlan({"in": Ranges({name: Range(0, 1)})}, planned_at=AT) for name in "ab")
    assert go_together(topology, first, other)
    assert not go_together(topology, first, replace(other, planned_at=AT + 1))
    attempts = [
        Assignment("t", TransactionAttempt(txid, 1), "token", plan.to_json(), "code")
        for txid, plan in enumerate((first, other), 1)
    ]
    together = as_one_assignment(topology, attempts)
    assert together is not None
    assert together.plan.planned_at == AT


def test_what_is_defined_is_told() -> None:
    stream = visits().with_processing_time()
    stream.group_by(window("planned_at", "10 minutes"), "shop").persistent_aggregate(OpaqueState("s"), n=Count())
    topology: Any = stream.topology
    (row,) = guarantees(topology)
    assert (row["windows"], row["watermark"]) == (
        "windows of 10 minutes by planned_at",
        "of processing time, planned_at",
    )
    nothing = Defined("", False, {}, {}, {}, None, None)
    assert stream_watermarks(topology, nothing) == {
        "visits": {"time": "planned_at", "delay": 0, "late": "merge", "planned": True}
    }
    assert Watermark("at", 10).to_json() == {"time": "at", "delay": 10, "late": "merge"}


def test_sessions_may_be_of_processing_time() -> None:
    stream = visits().with_processing_time()
    stream.group_by(session_window("planned_at", "1 day"), "shop").persistent_aggregate(OpaqueState("s"), n=Count())
    ledger = run(stream.topology)  # type: ignore[arg-type]
    assert sorted(key[0] for key in ledger.rows("s")) == ["x", "y", "z"]


def test_closed_windows_are_handed_on_in_memory_too() -> None:
    """Six batches by a clock that goes on by an hour each time that it is asked: all but the last window are closed."""
    hours = count()
    ledger = MemoryLedger(clock=lambda: TEN + timedelta(hours=next(hours)), lease_seconds=10**6)
    topology, below = Topology("t"), Topology("below")
    stream = topology.new_stream("visits", FixedBatchSpout("shop string", 1, *"xyzxyz")).with_processing_time()
    stream.group_by(window("planned_at", "1 hour")).persistent_aggregate(OpaqueState("s"), n=Count())
    fields = "window_start timestamp, n bigint, closed_by bigint"
    closed_windows = below.new_stream("closed", StateSpout("s", fields, emit="final"))
    closed_windows.persistent_aggregate(OpaqueState("b"), windows=Count(), last=Max("closed_by"))
    run(below, run(topology, ledger))
    assert [row.value[0] for row in ledger.rows("s").values()] == 6 * [1]
    assert ledger.rows("b")[()].value == (5, 6)


def test_a_time_that_a_step_makes_may_be_late() -> None:
    """That of the plan is not; by another one a record may be of a window that is closed: it counts, and is counted as late."""
    stream = visits().with_processing_time()
    earlier = stream.each(lambda record: record["planned_at"] - timedelta(hours=2), "earlier timestamp")
    of_plan = stream.group_by(window("planned_at", "1 hour")).persistent_aggregate(OpaqueState("a"), n=Count())
    of_step = earlier.group_by(window("earlier", "1 hour")).persistent_aggregate(OpaqueState("b"), n=Count())
    read, marks = {"visits": {"": [{"shop": "x"}]}}, BatchPlan({}, planned_at=AT).marks({"visits": TIMED})
    for aggregate, late in ((of_plan, 0), (of_step, 1)):
        reached = list(records(aggregate.stream, read, plan=PLANNED))
        assert counting(aggregate, reached, marks) == (reached, late)


# ---- what is refused


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda s: s.with_processing_time("shop"), ("TX102", "'visits'", "'shop'")),
        (lambda s: s.with_processing_time("SHOP"), ("TX102", "'visits'", "'SHOP'")),
        (lambda s: s.with_processing_time(""), ("TX101", "''")),
        (lambda s: s.with_processing_time(7), ("TX101", "7")),
        (lambda s: s.filter("true").with_processing_time(), ("TX107", "operation", "first")),
        (
            lambda s: s.with_processing_time().with_processing_time("b"),
            ("TX108", "'visits'", "watermark"),
        ),
        (
            lambda s: s.with_processing_time().with_watermark("planned_at", "1 hour"),
            ("TX108", "with_processing_time"),
        ),
        (lambda s: s.with_processing_time().group_by(window("seen", "1 hour")), ("TX103", "'seen'")),
        (
            lambda s: s.with_processing_time().group_by(window("planned_at", "1 hour", name="shop")),
            ("TX102", "window", "'shop'"),
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(make: Callable[[Any], Any], told: tuple[str, ...]) -> None:
    with refused(*told):
        make(visits())


def test_a_window_by_another_time_of_the_source_is_refused() -> None:
    stream = visits(fields="at timestamp").with_processing_time()
    told = "the window is by 'at', and the watermark by 'planned_at' does not say when it has ended; give both the same time"
    with pytest.raises(DefinitionError, match=told):
        stream.group_by(window("at", "1 hour"))


def test_one_window_is_of_one_time() -> None:
    topology = Topology("t")
    timed = visits("web", topology).with_processing_time("at")
    spout = FixedBatchSpout("shop string, at timestamp", 1, ("x", TEN))
    late = topology.new_stream("shop", spout).with_watermark("at", "1 hour")
    both = topology.merge(timed, late, name="both")
    told = "the window is by event time of one stream and by processing time of another; give both the same"
    with pytest.raises(DefinitionError, match=told):
        both.group_by(window("at", "1 hour"))


def test_a_stream_has_one_watermark_in_all_its_states() -> None:
    stream = visits(fields="at timestamp")
    by_event = stream.with_watermark("at", "1 hour").group_by(window("at", "1 hour"))
    by_event.persistent_aggregate(OpaqueState("a"), n=Count())
    by_plan = stream.with_processing_time().group_by(window("planned_at", "1 hour"))
    by_plan.persistent_aggregate(OpaqueState("b"), n=Count())
    told = "stream 'visits' has two watermarks, 1 hour behind at, late='merge' and of processing time, planned_at"
    with pytest.raises(DefinitionError, match=told):
        stream.topology.check()  # type: ignore[attr-defined]
