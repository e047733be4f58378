"""Fused emission: one Spark job reads several batches together, and each record belongs to one batch (R5).

Each batch keeps a txid, attempt, fence, manifest and commit; only the pass over the source is shared. A batch must have the
same result read together or alone: nothing may depend on the rest of the frame.

>>> from txbatch import Count, FixedBatchSpout, OpaqueState, Topology
>>> topology = Topology("sentences")
>>> sentences = topology.new_stream("in", FixedBatchSpout("sentence string", 1, "how are you"))
>>> aggregate = sentences.group_by("sentence").persistent_aggregate(OpaqueState("sentences"), count=Count())
>>> print(reason_against(topology))
stream 'in': FixedBatchSpout reads batch by batch
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from txbatch.core.batch.plan import BatchPlan, OfInterval, Ranges, StreamPlan
from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import InvalidPlan
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.sources.spout import Spout
from txbatch.core.text import one_line
from txbatch.core.topology.late import LateState
from txbatch.core.topology.look_up import LiveState
from txbatch.core.topology.nodes import (
    Aggregate,
    Arguments,
    Distinct,
    Failed,
    FirstN,
    Join,
    Lookup,
    Merged,
    Node,
    Numbered,
    Source,
    Transform,
)
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.quarantine import QuarantineState
from txbatch.core.topology.topology import Topology
from txbatch.core.topology.watermarked import watermarks

# The most batches that are planned and emitted together. Sources by time are read once for all batches.
BATCHES_MAX = 400
# How many batches the first train has, for numbers soon, and how many times more each next train has: the commits of one
# train hide behind the emission of the next.
BATCHES_FIRST, GROWS = 16, 4
# If more bytes are read by time, once for each train, trains are as long as possible.
PASS_BYTES_MAX = 1_000_000
# The most planned bytes of the batches together.
BYTES_MAX = 8_000_000_000
# The most rows of a state's partials that come to the driver at once, of all batches together: keys times batches.
ROWS_MAX = 2_000_000
# The most bytes of partials.
PARTIALS_BYTES_MAX = 256_000_000
# The most rows by which a piece of time leads to batches.
PIECES_MAX = 100_000


def lengths() -> Iterator[int]:
    """Yield the number of batches planned and emitted together, train by train: each time more, up to the bound.

    >>> from itertools import islice
    >>> list(islice(lengths(), 4))
    [16, 64, 256, 400]
    """
    length = BATCHES_FIRST
    while True:
        yield min(length, BATCHES_MAX)
        length = min(GROWS * length, BATCHES_MAX)


def reason_against(topology: Topology) -> str | None:
    """Return why the topology's batches are emitted one by one; None if one job may emit several."""
    spouts = (_of_spout(name, stream.spout) for name, stream in topology.streams.items())
    states = (_of_state(aggregate) for aggregate in topology.aggregates)
    return next((why for why in (*spouts, *states) if why is not None), None)


def _of_spout(stream: str, spout: Spout) -> str | None:
    return None if spout.fusable else f"stream {stream!r}: {type(spout).__name__} reads batch by batch"


def _of_state(aggregate: PersistentAggregate) -> str | None:
    of = f"state {aggregate.state.name!r}"
    if isinstance(aggregate.state, QuarantineState):
        return f"{of} is a quarantine, which counts the failures of a batch"
    if aggregate.state.appends and not isinstance(aggregate.state, LateState):
        return f"{of} keeps records, by the batch that they are of"
    if aggregate.by_python:
        return f"{of} combines by Python of the job, batch by batch"
    if aggregate.sessions and watermarks(aggregate.stream):
        return f"{of} has sessions, in which what is late by the watermark of a batch is told apart"
    why = _of_node(aggregate.stream)
    return f"{of}: {why}" if why else None


def _of_node(node: Node) -> str | None:
    """Return the first step before the node that does not work record by record, or sees a state as of one batch."""
    match node:
        case Source():
            return None
        case Merged(inputs=inputs):
            return next((why for each in inputs if (why := _of_node(each))), None)
        case Join() | Distinct() | Numbered() | FirstN() | Aggregate():
            return f"{node} is made of all records of a batch"
        case Transform():
            return "transform sees all records of a batch"
        case Lookup(query=query) if isinstance(query.state, LiveState):
            return f"{query.state} is looked up in as of the batch"
        case Arguments() | Failed():
            return "its records are not those of a spout"
        case step:
            return _of_node(step.before)


def go_together(topology: Topology, first: BatchPlan, other: BatchPlan) -> bool:
    """True if both plans may be read in one pass without leaving anything out; plans to be read whole may, too."""
    plans = [first, other]
    if any(each.as_of or _has_holes(each) for each in plans) or first.static != other.static:
        return False
    if first.planned_at != other.planned_at or first.base or other.base:
        return False
    return all(_fused(topology, name, plans) is not None for name in {**first.streams, **other.streams})


def _has_holes(plan: BatchPlan) -> bool:
    return any(of.unreadable for of in plan.streams.values())


def planned_bytes(topology: Topology, plans: Sequence[BatchPlan]) -> int | None:
    """Return how many bytes the plans read, several plans in one pass; None if a spout has no number."""
    found = 0
    for name in _names(plans):
        fused = _fused(topology, name, plans)
        size = None if fused is None else topology.streams[name].spout.planned_bytes(fused.plan)
        if size is None:
            return None
        found += size
    return found


def adds_bytes(topology: Topology, plan: BatchPlan) -> int:
    """Return how many more bytes a pass reads if the plan is added: none, of a stream by time whose pass reads gaps, too."""
    spouts = {name: topology.streams[name].spout for name in plan.streams}
    adds = {
        name: of
        for name, of in plan.streams.items()
        if not isinstance(of, OfInterval) or strictly_by_time(spouts[name])
    }
    return sum(spouts[name].planned_bytes(of.plan) or 0 for name, of in adds.items())


def long_pass(topology: Topology, plan: BatchPlan) -> bool:
    """True if the streams by time are too large for a needless second pass, or of unknown size."""
    if not any(isinstance(of, OfInterval) for of in plan.streams.values()):
        return False
    size = planned_bytes(topology, [plan])
    return size is None or size - adds_bytes(topology, plan) > PASS_BYTES_MAX


def as_one_assignment(topology: Topology, attempts: Sequence[Assignment]) -> Assignment | None:
    """Return one assignment, named as the first attempt, that reads the records of several attempts in one pass.

    Return None if the attempts do not go together.
    """
    first, plans = attempts[0], [each.plan for each in attempts]
    if not all(go_together(topology, plans[0], plan) for plan in plans[1:]):
        return None
    streams = {name: _fused(topology, name, plans) for name in _names(plans)}
    known = {name: plan for name, plan in streams.items() if plan is not None}
    if len(known) < len(streams):
        return None
    plan = BatchPlan(known, static=first.plan.static, planned_at=first.plan.planned_at)
    planned_at = min((each.planned_at for each in attempts if each.planned_at is not None), default=None)
    of = first.code, first.position, planned_at
    return Assignment(first.topology, first.attempt, first.token, plan.to_json(), *of)


@dataclass(frozen=True, slots=True)
class Span:
    """The time of a batch's records, from `start` to before `end`, in microseconds since 1970."""

    txid: int
    start: int
    end: int


def strictly_by_time(spout: Spout) -> bool:
    """True if each record of the spout has a time in the batch's interval, even if the batch is read alone."""
    return spout.by_interval and spout.fusable and not spout.reads_gaps


def spans(attempts: Sequence[Assignment], stream: str) -> list[Span]:
    """Return the span of each batch in a stream by time. No moment belongs to two batches."""
    found = []
    for each in attempts:
        planned = each.plan.streams.get(stream)
        if isinstance(planned, OfInterval):
            start, end = (micros_of(datetime.fromisoformat(moment)) for moment in planned.interval)
            found.append(Span(each.attempt.txid, start, end))
    in_order = sorted(found, key=lambda each: each.start)
    for before, after in pairwise(in_order):
        if before.end > after.start:
            raise AssertionError(f"stream {stream!r}: txids {before.txid} and {after.txid} have a time in common")
    return found


def pieces(of: Sequence[Span]) -> tuple[int, int, list[tuple[int, Span]]]:
    """Return an origin, a width, and by number of a piece of time the spans in the piece: a record need look at no more spans.

    >>> origin, width, found = pieces([Span(1, 0, 24), Span(2, 24, 47), Span(3, 60, 84)])
    >>> origin, width, [(number, span.txid) for number, span in found]
    (0, 23, [(0, 1), (1, 1), (1, 2), (2, 2), (2, 3), (3, 3)])
    """
    origin, end = min(each.start for each in of), max(each.end for each in of)
    width = max(min(each.end - each.start for each in of), -(-(end - origin) // PIECES_MAX))
    found = [
        (number, each)
        for each in of
        for number in range((each.start - origin) // width, (each.end - 1 - origin) // width + 1)
    ]
    return origin, width, found


def _names(plans: Sequence[BatchPlan]) -> list[str]:
    return list(dict.fromkeys(name for plan in plans for name in plan.streams))


def _fused(topology: Topology, name: str, plans: Sequence[BatchPlan]) -> StreamPlan | None:
    """Return a stream's plan that reads the records of several batches; None if the spout has no such plan.

    Raise DefinitionError if the spout's plan does not name exactly the ranges of the batches.
    """
    mine = [plan.streams[name] for plan in plans if name in plan.streams]
    if len(mine) == 1:
        return mine[0]
    fused = topology.streams[name].spout.fused([each.plan for each in mine])
    match mine[0]:
        case _ if fused is None:
            return None
        case Ranges():
            return _as_planned(
                f"stream {name!r}: fused() of {type(topology.streams[name].spout).__name__}", fused, mine
            )
        case OfInterval():
            return (
                OfInterval(fused, [min(_bounds(mine, 0)), max(_bounds(mine, 1))], _sum(mine)) if _apart(mine) else None
            )
        case _:
            return None


def _as_planned(told: str, fused: Any, plans: Sequence[StreamPlan]) -> Ranges | None:
    """Return the spout's plan of several batches, if exactly their ranges are named.

    None if a partition is in two batches and the spout's plan has no labels: then a record's batch is unknown.
    """
    partitions = fused.get("partitions") if isinstance(fused, Mapping) else None
    if not isinstance(partitions, Mapping):
        raise InvalidPlan(
            f"{told} gave {one_line(repr(fused))}, no 'partitions'; return the ranges of all plans, or None"
        )
    labels = fused.get("of")
    named = (
        _labelled(told, labels, plans) if labels is not None else [item for of in plans for item in of.ranges.items()]
    )
    ranges = dict(named)
    if len(ranges) < len(named):
        return None
    if partitions != ranges:
        other = min({*partitions, *ranges}, key=lambda each: (partitions.get(each) == ranges.get(each), each))
        what = f"{other!r} is {partitions.get(other)} there and {ranges.get(other)} in the plan of its batch"
        raise InvalidPlan(
            f"{told} names other ranges than the given plans: {one_line(what)}; return the ranges of the given plans"
        )
    return Ranges.from_json(fused)


def _labelled(told: str, labels: Any, plans: Sequence[StreamPlan]) -> list[tuple[str, Any]]:
    """Return the range of each label. Raise DefinitionError unless each range of the plans has one label."""
    ranges = {(number, name): range_ for number, of in enumerate(plans) for name, range_ in of.ranges.items()}
    try:
        places = {label: (number, name) for label, (number, name) in labels.items()}
        found = [(label, ranges.pop(place)) for label, place in places.items()]
    except (AttributeError, KeyError, TypeError, ValueError):
        found, ranges = [], {(-1, ""): None}
    if ranges:
        raise InvalidPlan(
            f"{told} gave other labels than one for each range of the plans: {one_line(repr(labels))}; return labelled(plans)"
        )
    return found


def _apart(plans: Sequence[StreamPlan]) -> bool:
    """True if no two plans by time have a moment in common."""
    ends = sorted(tuple(map(datetime.fromisoformat, of.interval)) for of in plans if isinstance(of, OfInterval))
    return all(before[1] <= after[0] for before, after in pairwise(ends))


def _sum(plans: Sequence[StreamPlan]) -> int | None:
    """Return the number of records in all intervals; None if a plan does not say how many."""
    records = [each.records for each in plans if isinstance(each, OfInterval) and each.records is not None]
    return sum(records) if len(records) == len(plans) else None


def _bounds(plans: Sequence[StreamPlan], end: int) -> list[str]:
    return [each.interval[end] for each in plans if isinstance(each, OfInterval)]
