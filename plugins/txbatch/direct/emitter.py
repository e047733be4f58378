"""Emits batches in the calling process, without Spark: for spouts with `batch`, and operations in Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from types import MappingProxyType
from typing import Any

from txbatch.core.aggregates.merge import Partial
from txbatch.core.aggregates.merger import Merger
from txbatch.core.batch.came_late import CameLate, Look
from txbatch.core.batch.manifest import Manifest, ReadPartition, StagedState
from txbatch.core.batch.plan import StreamPlan
from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import (
    REFUSED,
    BadKey,
    BadRecord,
    NeedsSpark,
    PartitionUnreadable,
    QuarantineFull,
    TxbatchError,
)
from txbatch.core.naming import naming, naming_stream
from txbatch.core.protocol.window_closing import Marks, largest
from txbatch.core.records.comparing import grouped_by
from txbatch.core.records.fields import parse_fields
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.sources.spout import SpoutKind
from txbatch.core.stored_json import digest
from txbatch.core.text import describe_record
from txbatch.core.topology.late import LateState
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.quarantine import QuarantineState, check_number
from txbatch.core.topology.storable import check_storable
from txbatch.core.topology.stream import Stream
from txbatch.core.topology.topology import Topology
from txbatch.core.windows.watermark import MERGE
from txbatch.direct.append import appended
from txbatch.direct.batch_operations import Record
from txbatch.direct.functions import holds, init_of, record_of, refused
from txbatch.direct.look_up import NO_TABLES, Tables
from txbatch.direct.operations import Read, records
from txbatch.direct.sessions import own_sessions

# Of a digest as many as make a number that fits a manifest.
FINGERPRINT_DIGITS = 30


def emit_batch(
    topology: Topology,
    assignment: Assignment,
    exports: Mapping[str, Sequence[tuple[Any, ...]]] = MappingProxyType({}),
    tables: Tables = NO_TABLES,
) -> tuple[Manifest, dict[str, list[tuple[Any, Partial]]]]:
    """Read the planned ranges, run the operations, aggregate to partials, like Spark. `exports` holds the records of states.

    `tables` holds the rows of states for look-ups.
    """
    found = {
        name: _read(topology.streams[name], planned, exports.get(name))
        for name, planned in assignment.plan.streams.items()
    }
    read = {name: parts for name, (parts, _) in found.items()}
    with _named(assignment):
        counted, partials = _counted(topology, assignment, read, tables)
    times = {name: says.time for name, says in topology.watermarks.items() if not says.planned}
    manifest = Manifest(
        assignment.topology,
        assignment.attempt,
        assignment.token,
        assignment.code,
        assignment.digest,
        streams={
            name: {at: described(part, times.get(name), assignment.planned_at) for at, part in parts.items()}
            for name, (parts, _) in found.items()
        },
        states={
            name: StagedState((), len(partials[name]), {}, len(records), late)
            for name, (records, late) in counted.items()
        },
        unreadable={name: holes for name, (_, holes) in found.items() if holes},
        came_late=None if assignment.look is None else came_late(topology, assignment.look),
    )
    return manifest, partials


def came_late(topology: Topology, look: Look) -> CameLate:
    """Return the late records of spouts with a method `late_batch`, beside the method `batch`."""
    came = {}
    for name, arrived in look.arrived.items():
        late_batch = getattr(topology.streams[name].spout, "late_batch", None)
        if late_batch is not None and (found := late_batch(look.intervals, arrived)):
            came[name] = found
    return came


def _counted(
    topology: Topology, assignment: Assignment, read: Read, tables: Tables
) -> tuple[dict[str, tuple[list[Record], int | None]], dict[str, list[tuple[Any, Partial]]]]:
    """Return two mappings by state: the counted records with the number of late records (see `counting`), and the partials."""
    plan, marks = assignment.plan, assignment.plan.marks(topology.watermarks)
    kept = {each.state.name: list(records(each.stream, read, tables, plan)) for each in topology.aggregates}
    for state in (each.state for each in topology.aggregates if isinstance(each.state, QuarantineState)):
        failed = kept[state.name]
        check_number(_of(assignment), state, len(failed), next(iter(failed), None))
    counted = {each.state.name: counting(each, kept[each.state.name], marks) for each in topology.aggregates}
    partials = {
        each.state.name: partials_of(each, counted[each.state.name][0], assignment.position, each.late_before(marks))
        for each in topology.aggregates
    }
    return counted, partials


def _of(assignment: Assignment) -> str:
    return f"{assignment.topology} {assignment.attempt}"


@contextmanager
def _named(assignment: Assignment) -> Iterator[None]:
    """Context manager. Name the attempt in txbatch's errors about the attempt's records."""
    try:
        yield
    except QuarantineFull:  # which names it
        raise
    except TxbatchError as error:
        raise error.retold(f"{_of(assignment)}: {error.text}") from error.__cause__


def described(part: list[Record], time: str | None = None, planned_at: int | None = None) -> ReadPartition:
    """Describe the records read of a partition. `time` is the field of a watermark, `planned_at` the plan's time."""
    found = [] if time is None else [record[time] for record in part]
    times = [micros_of(each) for each in found if each is not None]
    ahead = None if time is None or planned_at is None else sum(each > planned_at for each in times)
    return ReadPartition(len(part), str(int(digest(str(part))[:FINGERPRINT_DIGITS], 16)), largest(times), ahead)


def counting(
    aggregate: PersistentAggregate, reached: list[Record], watermark: Marks
) -> tuple[list[Record], int | None]:
    """Return the counted records of a state, and the number of records late by a plan's watermarks (R25)."""
    of = aggregate.state.of if isinstance(aggregate.state, LateState) else aggregate
    before = of.late_before(watermark)
    if of.window is None or before is None:
        return reached, None
    parts: dict[bool, list[Record]] = {False: [], True: []}
    for record in reached:
        start = record[of.window.name]
        parts[start is not None and micros_of(start) < before].append(record)
    if of is not aggregate:
        return parts[True], None
    return reached if aggregate.late == MERGE else parts[False], len(parts[True])


def _read(
    stream: Stream, planned: StreamPlan, exported: Sequence[tuple[Any, ...]] | None
) -> tuple[dict[str, list[Record]], dict[str, str]]:
    """Return the records of each partition, and the reasons why an opaque spout leaves out unreadable partitions (R13)."""
    fields = parse_fields(stream.spout.fields)
    if exported is not None:
        return {at: [record_of(record, fields) for record in exported] for at in planned.ranges}, {}
    if not hasattr(stream.spout, "batch"):
        raise NeedsSpark(
            f"stream {stream.name!r}: {type(stream.spout).__name__} needs Spark, a FixedBatchSpout does not"
        )
    found: dict[str, list[Record]] = {}
    holes = dict(planned.unreadable)
    for partition in planned.ranges:
        try:
            with naming_stream(f"{stream.topology.name}: batch() of stream {stream.name!r}"):
                batch = list(stream.spout.batch(planned.only([partition]).plan))
            found[partition] = [record_of(record, fields) for record in batch]
        except PartitionUnreadable as error:
            if stream.spout.kind is not SpoutKind.OPAQUE:
                raise
            holes[partition] = error.text
    return found, holes


def partials_of(
    aggregate: PersistentAggregate, kept: Iterable[Record], position: int = 0, late_before: int | None = None
) -> list[tuple[Any, Partial]]:
    """Return a state's partials at a position, by key, from the records reaching the state. A global value has the key ().

    Sessions are made from the batch alone. No session holds both late records and records in time.
    """
    found: dict[Any, Partial] = {} if aggregate.keys else {(): _zero(aggregate)}
    combine = Merger(aggregate.partial_merges)
    kept = own_sessions(aggregate, kept, late_before)
    for record in appended(kept, aggregate, position) if aggregate.state.appends else kept:
        key = tuple(grouped_by(record[field.name]) for field in aggregate.keys)
        if None in key:
            shown = f" in {describe_record(record)}" if aggregate.stream.show_records else ""
            raise BadKey(f"state {aggregate.state.name!r}: a key is null{shown}; {REFUSED}")
        try:
            partial = _partial(aggregate, record)
            found[key] = combine.on_the_way(found[key], partial) if key in found else partial
        except BadRecord as error:
            show = aggregate.stream.show_records
            shown = f"; the record is {describe_record(record)}" if show else ""
            raise error.retold(f"state {aggregate.state.name!r}: {refused(error, show=show)}{shown}") from (
                error if show else None
            )
    with naming(f"state {aggregate.state.name!r}"):
        for key, partial in found.items():
            check_storable(aggregate, key, combine.checked(partial))
    return list(found.items())


def _partial(aggregate: PersistentAggregate, record: Record) -> Partial:
    """Return a record's partial, with the marks of removal if keys may be removed."""
    show = aggregate.stream.show_records
    if aggregate.removable and holds("remove", aggregate.remove, record, show=show):
        return (*(None for _ in aggregate.columns), True, False)
    made = (init_of(each, record, show=show, of=f"value {name!r}: ") for name, each in aggregate.aggregates.items())
    values = tuple(chain.from_iterable(made))
    return (*values, False, True) if aggregate.removable else values


def _zero(aggregate: PersistentAggregate) -> Partial:
    return tuple(part for each in aggregate.aggregates.values() for part in each.zero())
