"""The coordinator: finds the batch of a run, or plans it (R1..R4). Deciding and asking only; the ledger stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from txbatch.core.called import told
from txbatch.core.errors import DefinitionError
from txbatch.core.ledger import Head, Ledger
from txbatch.core.plan import BatchPlan, OfInterval, Ranges, StreamPlan, Whole, is_range
from txbatch.core.protocol import Adopt, Use, Wait, WaitReason, check_parameters, decide_initialize, waited_for
from txbatch.core.spout import BatchCoordinator, PartitionedCoordinator, PartitionedSpout
from txbatch.core.stream import Stream
from txbatch.core.topology import Topology
from txbatch.core.transaction import Batch, Metadata, Run, canonical_json


@dataclass(frozen=True, slots=True)
class NothingNew:
    """The spout is not ready: no txid is used (R4)."""


@dataclass(frozen=True, slots=True)
class Yours:
    """All lower txids are final: the run's own batch may be committed (R6)."""


@dataclass(frozen=True, slots=True)
class FinishFirst:
    """Nobody but this run looks after a lower txid, which is to be committed before its own."""

    batch: Batch


Turn = Yours | Wait | FinishFirst


def initialize_transaction(ledger: Ledger, topology: Topology, run: Run) -> Batch | Wait | NothingNew:
    """Find the run's batch again, or plan it; adopt one that nobody looks after, if there is one.

    An adopted batch is finished first, and then this is asked again (see `protocol.is_adopted`). Returns a Wait when max_pending
    batches are in flight.
    """
    while True:
        head = ledger.head(topology.name, run)
        decision = decide_initialize(head, run, topology.max_pending)
        if isinstance(decision, Use):
            check_parameters(decision.batch, run)
            return decision.batch
        if isinstance(decision, Wait):
            return decision
        if isinstance(decision, Adopt):
            batch = ledger.adopt(decision.batch, run)
        else:
            metadata = plan_batch(topology, head, run)
            if metadata is None:
                return NothingNew()
            batch = ledger.plan(head, run, metadata, topology)
        if batch is not None:
            return batch


def take_turn(ledger: Ledger, own: Batch, run: Run) -> Turn:
    """Decide what stands before the run's own batch: nothing, a batch of another live run, or one to finish first (R6).

    An abandoned batch is adopted, or aborted when it has an interval: its own run plans it anew.
    """
    while (txid := ledger.turn_of(own.topology, own.txid)) is not None:
        lowest = ledger.batch(own.topology, txid)
        if waited_for(lowest, run):
            return Wait(lowest, WaitReason.TURN)
        adopted = ledger.adopt(lowest, run)
        if adopted is not None:
            return FinishFirst(adopted)
    return Yours()


def plan_batch(topology: Topology, head: Head, run: Run) -> Metadata | None:
    """Ask the spouts for the plan of the next txid, and return it as it is to be stored.

    None when no stream has anything new, or one that reads by time is not ready: its interval would be skipped. Raises
    DefinitionError for what is not JSON, is over the spouts' limits, or is a parameter that no spout declares, and
    TransientError, which names the stream, for what a coordinator raises that is no error of ours.
    """
    _check_declared(topology, run)
    streams: dict[str, StreamPlan] = {}
    idle: dict[str, StreamPlan] = {}
    for stream in topology.streams.values():
        last = _last_plan(stream, head)
        with told(f"{topology.name}: the coordinator of stream {stream.name!r}"):
            planned = _plan_stream(stream, head, last, run)
        if planned is not None:
            streams[stream.name] = planned
        elif stream.spout.by_interval:
            return None
        elif last is not None:
            idle[stream.name] = last
    if not streams:
        return None
    metadata = BatchPlan(streams, idle, dict(run.parameters)).to_json()
    canonical_json(metadata, sum(topology.streams[name].spout.metadata_bytes_max for name in streams | idle))
    return metadata


def _check_declared(topology: Topology, run: Run) -> None:
    for name in run.parameters:
        if name not in topology.parameters:
            known = ", ".join(topology.parameters) or "none"
            raise DefinitionError(f"topology {topology.name!r} has no parameter {name!r}; its spouts declare {known}")


def _last_plan(stream: Stream, head: Head) -> StreamPlan | None:
    """Return the plan that the next one of a stream without partitions continues."""
    if head.prev is None or isinstance(stream.spout, PartitionedSpout):
        return None
    return {**head.prev.plan.idle, **head.prev.plan.streams}.get(stream.name)


def _plan_stream(stream: Stream, head: Head, last: StreamPlan | None, run: Run) -> StreamPlan | None:
    coordinator = stream.spout.coordinator()
    try:
        _check_reads(stream, coordinator)
        if isinstance(coordinator, PartitionedCoordinator):
            coordinator.offsets = head.offsets.get(stream.name, {})
        if not coordinator.is_ready(head.next_txid):
            return None
        asked = _asked(stream, run)
        plan = coordinator.initialize_transaction(head.next_txid, deepcopy(last.plan) if last else None, asked)
    finally:
        coordinator.close()
    if plan is None:
        return None
    _check_json(stream, plan)
    if isinstance(coordinator, PartitionedCoordinator):
        _check_ranges(stream, plan)
        return Ranges.from_json(plan)
    return OfInterval(plan, asked["interval"]) if asked and stream.spout.by_interval else Whole(plan)


def _check_reads(stream: Stream, coordinator: BatchCoordinator) -> None:
    """Raise DefinitionError for a coordinator that plans in another way than its spout reads: nobody could carry it on."""
    partitioned = isinstance(coordinator, PartitionedCoordinator)
    if partitioned != isinstance(stream.spout, PartitionedSpout):
        of, planned = (
            f"stream {stream.name!r}: {type(stream.spout).__name__}",
            f"its coordinator, {type(coordinator).__name__},",
        )
        raise DefinitionError(
            f"{of} has no partitions, and {planned} plans them; make it a PartitionedSpout"
            if partitioned
            else f"{of} is a PartitionedSpout, and {planned} is no PartitionedCoordinator; give one, or make it a plain Spout"
        )


def _check_json(stream: Stream, plan: Any) -> None:
    """Raise DefinitionError, which names the stream, for a plan that would not come back from the ledger as it is."""
    try:
        canonical_json(plan, stream.spout.metadata_bytes_max)
        for text in _texts(plan):
            if not isinstance(text, str):
                raise DefinitionError(f"metadata is not JSON: the key {text!r} is no string")
            if "\0" in text:
                raise DefinitionError(f"metadata holds U+0000 in {text!r}, which PostgreSQL cannot show; encode it")
    except (DefinitionError, RecursionError) as error:
        raise DefinitionError(f"stream {stream.name!r}: {error}") from error


def _check_ranges(stream: Stream, plan: Any) -> None:
    """Raise DefinitionError, which names the stream, for a plan without partitions and for a range without both ends."""
    if not isinstance(plan, Mapping) or not isinstance(plan.get("partitions"), Mapping):
        raise DefinitionError(
            f"stream {stream.name!r}: {plan!r} was planned; a PartitionedCoordinator plans 'partitions', a range for each name"
        )
    for partition, range_ in plan["partitions"].items():
        if not is_range(range_):
            raise DefinitionError(
                f"stream {stream.name!r}: partition {partition!r} was planned as {range_!r}; a range has 'start' and 'end'"
            )


def _texts(value: Any) -> Iterator[Any]:
    """Yield all texts in a JSON value, and all its keys, whether they are texts or not."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from value
        yield from _texts(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _asked(stream: Stream, run: Run) -> Metadata | None:
    """Build `curr_metadata` for the spout: the run's interval, and those of its parameters that the spout declares."""
    parameters = {name: value for name, value in run.parameters.items() if name in stream.spout.parameters}
    asked = {**_interval(stream, run), **({"parameters": parameters} if stream.spout.parameters else {})}
    return asked or None


def _interval(stream: Stream, run: Run) -> Metadata:
    if not stream.spout.by_interval:
        return {}
    if run.interval is None:
        raise DefinitionError(
            f"stream {stream.name!r} reads by time, and run {run.name!r} has no data interval; "
            "trigger it with a logical date, or give --interval START END"
        )
    return {"interval": [run.interval.start.isoformat(), run.interval.end.isoformat()]}
