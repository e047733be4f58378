"""Fused emission: which batches one Spark job reads together, each record then belonging to one of them (R5).

Each batch keeps its txid, attempt, fence, manifest and commit; what is shared is the pass over the source. It must be the same
to each batch whether it is read so or alone: so nothing may depend on what else is in the frame.

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

# So many batches are planned and emitted together, of so many planned bytes. What is read by time is read once for all of them.
BATCHES_MAX = 400
# So many are planned and emitted first, for numbers that are there soon, and so many times more each time behind them: the
# commits of one train hide behind the emission of the next.
BATCHES_FIRST, GROWS = 16, 4
# Where so many bytes are read by time, once for each train, no train is shorter than it must be.
PASS_BYTES_MAX = 1_000_000
BYTES_MAX = 8_000_000_000
# So many rows of partials of a state come to the driver at once, of all batches together: keys times batches.
ROWS_MAX = 2_000_000
# So many bytes of them do.
PARTIALS_BYTES_MAX = 256_000_000
# So many rows say which batch has which piece of time.
PIECES_MAX = 100_000


def lengths() -> Iterator[int]:
    """Yield how many batches are planned and emitted together, train by train: each time more, to the bound.

    >>> from itertools import islice
    >>> list(islice(lengths(), 4))
    [16, 64, 256, 400]
    """
    length = BATCHES_FIRST
    while True:
        yield min(length, BATCHES_MAX)
        length = min(GROWS * length, BATCHES_MAX)


def reason_against(topology: Topology) -> str | None:
    """Return why the topology's batches are emitted one by one; None: several may be by one job."""
    spouts = (_of_spout(name, stream.spout) for name, stream in topology.streams.items())
    states = (_of_state(aggregate) for aggregate in topology.aggregates)
    return next((why for why in (*spouts, *states) if why is not None), None)


def _of_spout(stream: str, spout: Spout) -> str | None:
    return None if spout.fusable else f"stream {stream!r}: {type(spout).__name__} reads batch by batch"


def _of_state(aggregate: PersistentAggregate) -> str | None:
    of = f"state {aggregate.state.name!r}"
    if isinstance(aggregate.state, QuarantineState):
        return f"{of} is a quarantine, which counts the failures of a batch"
    if aggregate.state.appends:
        return f"{of} keeps records, by the batch that they are of"
    if aggregate.by_python:
        return f"{of} combines by Python of the job, batch by batch"
    if aggregate.sessions and watermarks(aggregate.stream):
        return f"{of} has sessions, in which what is late by the watermark of a batch is told apart"
    why = _of_node(aggregate.stream)
    return f"{of}: {why}" if why else None


def _of_node(node: Node) -> str | None:
    """Return what on the way to the node does not work record by record, or sees a state as of one batch."""
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
    """True if both plans may be read in one pass, in which nothing is left out: so may those that are to be read whole."""
    plans = [first, other]
    if any(each.as_of or _has_holes(each) for each in plans) or first.static != other.static:
        return False
    if first.planned_at != other.planned_at or first.base or other.base:
        return False
    return all(_fused(topology, name, plans) is not None for name in {**first.streams, **other.streams})


def _has_holes(plan: BatchPlan) -> bool:
    return any(of.unreadable for of in plan.streams.values())


def planned_bytes(topology: Topology, plans: Sequence[BatchPlan]) -> int | None:
    """Return how many bytes these plans read, in one pass if they are several; None where a spout does not know."""
    found = 0
    for name in _names(plans):
        fused = _fused(topology, name, plans)
        size = None if fused is None else topology.streams[name].spout.planned_bytes(fused.plan)
        if size is None:
            return None
        found += size
    return found


def adds_bytes(topology: Topology, plan: BatchPlan) -> int:
    """Return how many bytes are read more for this plan when it is read with others: of what is read by time, none."""
    parts = {name: of for name, of in plan.streams.items() if not isinstance(of, OfInterval)}
    return sum(topology.streams[name].spout.planned_bytes(of.plan) or 0 for name, of in parts.items())


def long_pass(topology: Topology, plan: BatchPlan) -> bool:
    """True if what is read by time is too much, or nobody knows how much, to be read once more than it must be."""
    if not any(isinstance(of, OfInterval) for of in plan.streams.values()):
        return False
    size = planned_bytes(topology, [plan])
    return size is None or size - adds_bytes(topology, plan) > PASS_BYTES_MAX


def as_one_assignment(topology: Topology, attempts: Sequence[Assignment]) -> Assignment | None:
    """Return an assignment that reads in one pass what these read, as the one that was planned first.

    None where they do not go together.
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
    """True if each record of the spout has the time of its batch, also of one that is read alone: none may be of no batch."""
    return spout.by_interval and spout.fusable and not spout.reads_gaps


def spans(attempts: Sequence[Assignment], stream: str) -> list[Span]:
    """Return the time of each batch's records, of a stream that is read by time. No moment is of two."""
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
    """Return an origin, a width, and which spans reach into the n-th piece of time of that width: a record need look at no more.

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
    """Return a stream's plan that reads what those of several batches read; None where its spout has none.

    DefinitionError for one that does not name just the ranges that they name.
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
            return OfInterval(fused, [min(_bounds(mine, 0)), max(_bounds(mine, 1))]) if _apart(mine) else None
        case _:
            return None


def _as_planned(told: str, fused: Any, plans: Sequence[StreamPlan]) -> Ranges | None:
    """Return what a spout says of several batches, if it names their ranges; None where a partition is in two of them."""
    named = [item for of in plans for item in of.ranges.items()]
    ranges = dict(named)
    if len(ranges) < len(named):
        return None
    partitions = fused.get("partitions") if isinstance(fused, Mapping) else None
    if not isinstance(partitions, Mapping):
        raise InvalidPlan(
            f"{told} gave {one_line(repr(fused))}, no 'partitions'; return the ranges of all plans, or None"
        )
    if partitions != ranges:
        other = min({*partitions, *ranges}, key=lambda each: (partitions.get(each) == ranges.get(each), each))
        what = f"{other!r} is {partitions.get(other)} there and {ranges.get(other)} in the plan of its batch"
        raise InvalidPlan(
            f"{told} names other ranges than the plans that it was given: {one_line(what)}; return just theirs"
        )
    return Ranges.from_json(fused)


def _apart(plans: Sequence[StreamPlan]) -> bool:
    """True if no two plans by time have a moment in common."""
    ends = sorted(tuple(map(datetime.fromisoformat, of.interval)) for of in plans if isinstance(of, OfInterval))
    return all(before[1] <= after[0] for before, after in pairwise(ends))


def _bounds(plans: Sequence[StreamPlan], end: int) -> list[str]:
    return [each.interval[end] for each in plans if isinstance(each, OfInterval)]
