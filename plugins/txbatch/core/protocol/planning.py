"""The plan of a new txid: the spouts are asked, without Spark and under no lock, and the answers are checked (R3, R4, R17)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from copy import deepcopy
from datetime import datetime
from typing import Any, Self, assert_never

from txbatch.core.batch.plan import BatchPlan, OfInterval, Ranges, StreamPlan, Whole
from txbatch.core.batch.transaction import Interval, Metadata, Restate, Run, canonical_json
from txbatch.core.errors import (
    DefinitionError,
    InvalidPlan,
    NoInterval,
    PartitionUnreadable,
    RecordsGone,
    SchemaMismatch,
    SourceNotReady,
    UnknownField,
)
from txbatch.core.naming import naming_stream
from txbatch.core.protocol import restate
from txbatch.core.protocol.ledger import Head, PositionVersion
from txbatch.core.sources.partition_checks import planned_records
from txbatch.core.sources.spout import BatchCoordinator, PartitionedCoordinator, PartitionedSpout
from txbatch.core.stored_json import is_range
from txbatch.core.topology.look_up import Versioned
from txbatch.core.topology.stream import Stream
from txbatch.core.topology.topology import Topology
from txbatch.core.upstream.look_ups import cuts, states_asked
from txbatch.core.upstream.ranges import UpstreamState
from txbatch.core.upstream.readers import check_acyclic
from txbatch.core.upstream.upstream import Upstream, UpstreamCoordinator, check_again, exported


class Coordinators:
    """The coordinators of several plans, made by one look at the sources. Each coordinator is created at the first use.

    All coordinators are closed when the `with` block ends.
    """

    def __init__(self) -> None:
        self._made, self._ending = dict[str, BatchCoordinator](), ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def of(self, stream: Stream) -> BatchCoordinator:
        """Return the coordinator of a stream."""
        if stream.name not in self._made:
            made = stream.spout.coordinator()
            self._ending.enter_context(
                naming_stream(f"{stream.topology.name}: the coordinator of stream {stream.name!r}")
            )
            self._ending.callback(made.close)
            self._ending.enter_context(made.one_look())
            self._made[stream.name] = made
        return self._made[stream.name]


def plan_batch(
    topology: Topology, head: Head, run: Run, upstream: Upstream | None = None, by: Coordinators | None = None
) -> Metadata | None:
    """Ask the spouts for the plan of the next txid, and return the metadata for the ledger. State spouts ask `upstream`.

    Return None if no stream has anything new, or if a stream by time is not ready: the interval would be skipped. Raise
    DefinitionError if a plan is not JSON or over the spouts' limits, or if no spout declares a parameter. If a coordinator
    raises an error from outside txbatch, raise TransientError, with the name of the stream.
    """
    _check_declared(topology, run)
    facts = _facts(upstream, states_asked(topology))
    if upstream is not None and exported(topology):
        check_acyclic(topology, upstream.readers())
    streams: dict[str, StreamPlan] = {}
    idle: dict[str, StreamPlan] = {}
    for stream in topology.streams.values():
        last = _last_plan(stream, head)
        with naming_stream(f"{topology.name}: the coordinator of stream {stream.name!r}"):
            planned = _plan_stream(stream, head, last, run, by, upstream, facts)
        if planned is not None:
            streams[stream.name] = planned
        elif stream.spout.by_interval:
            return None
        elif last is not None:
            idle[stream.name] = last
    if not streams:
        return None
    as_of = cuts(topology, facts, {})
    return _stored(topology, BatchPlan(streams, idle, dict(run.parameters), static=_versions(topology), as_of=as_of))


def plan_restate(
    topology: Topology,
    head: Head,
    version: PositionVersion,
    asked: Restate,
    upstream: Upstream | None = None,
    by: Coordinators | None = None,
) -> Metadata:
    """Return the plan by which a committed batch is counted again (R17). Raise TerminalError if the batch may not be restated."""
    restate.check_topology(topology)
    restate.check_version(version, asked)
    return plan_again(topology, head, version, asked, upstream, by)


def plan_again(
    topology: Topology,
    head: Head,
    version: PositionVersion,
    asked: Restate,
    upstream: Upstream | None = None,
    by: Coordinators | None = None,
) -> Metadata:
    """Return the metadata of a plan that reads again the records of a position's batch.

    By interval, the plan is new, for the interval as of now. By offset, the plan has the same records as the spouts find them
    now: an error names missing records. Static states are looked up as of now, live states as of the txid fixed by the
    batch. The batch also fixes the watermarks for late records (R25), the processing time (R28) and the record numbers (R29).
    """
    plan, streams = version.first.plan, dict[str, StreamPlan]()
    facts = _facts(upstream, states_asked(topology, plan.streams))
    for name, planned in plan.streams.items():
        if name not in topology.streams:
            raise SchemaMismatch(
                f"{topology.name}: txid {asked.position} read stream {name!r}, which is not defined any more"
            )
        with naming_stream(f"{topology.name}: the coordinator of stream {name!r}"):
            again = _again(topology.streams[name], planned, head, version, asked, by)
        if not isinstance(again, Ranges) or again.partitions or again.unreadable:
            streams[name] = again
    if not any(planned.ranges for planned in streams.values()):
        raise PartitionUnreadable(f"{topology.name}: nothing of what txid {asked.position} read is left: {streams}")
    if facts is not None:
        check_again(topology, facts, streams)
    whole, as_of = not asked.accept_missing, cuts(topology, facts, plan.as_of)
    now = BatchPlan(
        streams,
        {},
        plan.parameters,
        whole=whole,
        static=_versions(topology),
        as_of=as_of,
        watermark=plan.watermark,
        planned_at=plan.planned_at,
        base=plan.base,
    )
    return _stored(topology, now)


def _again(
    stream: Stream, planned: StreamPlan, head: Head, version: PositionVersion, asked: Restate, by: Coordinators | None
) -> StreamPlan:
    match planned:
        case Ranges():
            if by is not None:
                by.of(stream)  # the spout shares its look at the source, for all versions
            with stream.spout.one_look() if isinstance(stream.spout, PartitionedSpout) else nullcontext():
                return _ranges_again(stream, restate.ranges_again(stream.name, planned, version), asked)
        case OfInterval(before, interval):
            stream.spout.check_again(before)
            of = Interval(*map(datetime.fromisoformat, interval))
            as_then = Run("restate", interval=of, parameters=version.first.plan.parameters)
            anew = _plan_stream(stream, head, None, as_then, by)
            if anew is None:
                raise SourceNotReady(f"{head.topology}: stream {stream.name!r} is not ready for {of}; try again")
            return anew
        case Whole(plan):
            again = stream.spout.plan_again("", plan)
            _check_json(stream, again)
            return Whole(again)
        case _:
            assert_never(planned)


def _ranges_again(stream: Stream, ranges: Ranges, asked: Restate) -> Ranges:
    """Return the ranges as the spout finds them now. Raise the spout's error if a range is missing and may not be."""
    found, missing = dict[str, Any](), dict[str, str]()
    for name, range_ in ranges.ranges.items():
        try:
            found[name] = stream.spout.plan_again(name, range_)
        except (PartitionUnreadable, RecordsGone) as error:
            if not asked.accept_missing:
                raise type(error)(
                    f"txid {asked.position} is counted again whole or not at all: {error}; or say --accept-missing"
                ) from error
            missing[name] = error.text
    planned = {**ranges.rest, "partitions": found, **({"unreadable": missing} if missing else {})}
    _check_json(stream, planned)
    _check_ranges(stream, planned)
    return Ranges.from_json(planned)


def _facts(upstream: Upstream | None, states: Collection[str]) -> Mapping[str, UpstreamState] | None:
    """Return how far the states are that a plan asks about; None without a ledger."""
    if upstream is None:
        return None
    return upstream.facts(states) if states else {}


def _versions(topology: Topology) -> dict[str, Metadata]:
    """Return the present version of each static state with versions."""
    found = {}
    for name, state in topology.looked_up.items():
        if isinstance(state.reader, Versioned):
            with naming_stream(f"{topology.name}: version() of {state}"):
                found[name] = state.reader.version()
    return found


def _stored(topology: Topology, plan: BatchPlan) -> Metadata:
    """Return a plan as JSON for the ledger. Raise DefinitionError if the plan is over the spouts' limits."""
    metadata = plan.to_json()
    names = {**plan.streams, **plan.idle}
    canonical_json(metadata, sum(topology.streams[name].spout.metadata_bytes_max for name in names))
    return metadata


def _check_declared(topology: Topology, run: Run) -> None:
    for name in run.parameters:
        if name not in topology.parameters:
            known = ", ".join(topology.parameters) or "none"
            raise UnknownField(f"topology {topology.name!r} has no parameter {name!r}; its spouts declare {known}")


def _last_plan(stream: Stream, head: Head) -> StreamPlan | None:
    """Return the last plan of a stream without partitions, which the next plan continues."""
    if head.prev is None or isinstance(stream.spout, PartitionedSpout):
        return None
    return {**head.prev.plan.idle, **head.prev.plan.streams}.get(stream.name)


def _plan_stream(
    stream: Stream,
    head: Head,
    last: StreamPlan | None,
    run: Run,
    by: Coordinators | None,
    upstream: Upstream | None = None,
    facts: Mapping[str, UpstreamState] | None = None,
) -> StreamPlan | None:
    with _coordinator(stream, by) as coordinator:
        _check_reads(stream, coordinator)
        if isinstance(coordinator, PartitionedCoordinator):
            coordinator.offsets = head.offsets.get(stream.name, {})
        if isinstance(coordinator, UpstreamCoordinator):
            coordinator.upstream, coordinator.facts = upstream, facts or {}
        if not coordinator.is_ready(head.next_txid):
            return None
        asked = _asked(stream, run)
        plan = coordinator.initialize_transaction(head.next_txid, deepcopy(last.plan) if last else None, asked)
    if plan is None:
        return None
    _check_json(stream, plan)
    if isinstance(coordinator, PartitionedCoordinator):
        _check_ranges(stream, plan)
        return Ranges.from_json(plan)
    if not asked or not stream.spout.by_interval:
        return Whole(plan)
    return OfInterval(plan, asked["interval"], planned_records(f"stream {stream.name!r}: the interval", plan))


@contextmanager
def _coordinator(stream: Stream, by: Coordinators | None) -> Iterator[BatchCoordinator]:
    """Context manager. Yield a stream's coordinator: shared by several plans, or a new one, closed when the block ends."""
    if by is not None:
        yield by.of(stream)
        return
    with closing(stream.spout.coordinator()) as coordinator:
        yield coordinator


def _check_reads(stream: Stream, coordinator: BatchCoordinator) -> None:
    """Raise DefinitionError if only one of spout and coordinator has partitions: no later plan could continue theirs."""
    partitioned = isinstance(coordinator, PartitionedCoordinator)
    if partitioned != isinstance(stream.spout, PartitionedSpout):
        of, planned = (
            f"stream {stream.name!r}: {type(stream.spout).__name__}",
            f"its coordinator, {type(coordinator).__name__},",
        )
        raise InvalidPlan(
            f"{of} has no partitions, and {planned} plans them; make it a PartitionedSpout"
            if partitioned
            else f"{of} is a PartitionedSpout, and {planned} is no PartitionedCoordinator; give one, or make it a plain Spout"
        )


def _check_json(stream: Stream, plan: Any) -> None:
    """Raise DefinitionError, with the name of the stream, if the ledger would change the plan when storing the plan."""
    try:
        canonical_json(plan, stream.spout.metadata_bytes_max)
        for text in _texts(plan):
            if not isinstance(text, str):
                raise InvalidPlan(f"metadata is not JSON: the key {text!r} is no string")
            if "\0" in text:
                raise InvalidPlan(f"metadata holds U+0000 in {text!r}, which PostgreSQL cannot show; encode it")
    except (DefinitionError, RecursionError) as error:
        raise InvalidPlan(f"stream {stream.name!r}: {error}") from error


def _check_ranges(stream: Stream, plan: Any) -> None:
    """Raise DefinitionError, with the name of the stream, if a plan has no partitions or a range lacks an end."""
    if not isinstance(plan, Mapping) or not isinstance(plan.get("partitions"), Mapping):
        raise InvalidPlan(
            f"stream {stream.name!r}: {plan!r} was planned; a PartitionedCoordinator plans 'partitions', a range for each name"
        )
    for partition, range_ in plan["partitions"].items():
        if not is_range(range_):
            raise InvalidPlan(
                f"stream {stream.name!r}: partition {partition!r} was planned as {range_!r}; a range has 'start' and 'end'"
            )


def _texts(value: Any) -> Iterator[Any]:
    """Yield all texts in a JSON value, and all keys, whether texts or not."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from value
        yield from _texts(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _asked(stream: Stream, run: Run) -> Metadata | None:
    """Build `curr_metadata` for the spout: the run's interval, and the run's parameters declared by the spout."""
    parameters = {name: value for name, value in run.parameters.items() if name in stream.spout.parameters}
    asked = {**_interval(stream, run), **({"parameters": parameters} if stream.spout.parameters else {})}
    return asked or None


def _interval(stream: Stream, run: Run) -> Metadata:
    if not stream.spout.by_interval:
        return {}
    if run.interval is None:
        raise NoInterval(
            f"stream {stream.name!r} reads by time, and run {run.name!r} has no data interval; "
            "trigger it with a logical date, or give --interval START END"
        )
    return {"interval": [run.interval.start.isoformat(), run.interval.end.isoformat()]}
