"""What tests of several tiers use: topologies of a few lines, emit attempts without Spark, partials as Arrow."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
from slowness import Patience

from txbatch import Count, OpaqueState, PartitionedSpout, SpoutKind, Topology
from txbatch.core.aggregates.aggregator import CombinerAggregator
from txbatch.core.aggregates.merge import Partial, Total
from txbatch.core.batch.manifest import Manifest, ReadPartition, StagedState
from txbatch.core.batch.transaction import Assignment, Run, TransactionAttempt
from txbatch.core.records.fields import array_of, decimal_scale
from txbatch.core.sources.spout import BatchCoordinator, Emitter, Metadata, Spout
from txbatch.core.state.state import State
from txbatch.core.topology.persistent_aggregate import PersistentAggregate, ValueColumn

ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "float": pa.float32(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
}
Keyed = tuple[tuple[Any, ...], Partial]
T = TypeVar("T")


class LogSpout(PartitionedSpout):
    """Partitions of so many records each, which a test changes as it goes; each batch takes `size` of each."""

    fields = "word string"

    def __init__(
        self, partitions: Mapping[str, int], size: int = 10, kind: SpoutKind = SpoutKind.TRANSACTIONAL
    ) -> None:
        self.lengths, self.size, self.kind = dict(partitions), size, kind

    @property
    def identity(self) -> Metadata:
        return {"spout": "LogSpout"}

    def partitions(self) -> Sequence[str]:
        return sorted(self.lengths)

    def emit_partition_batch_new(
        self, attempt: TransactionAttempt, partition: str, last_metadata: Metadata | None
    ) -> Metadata | None:
        start = last_metadata["end"] if last_metadata else 0
        end = min(start + self.size, self.lengths[partition])
        return {"start": start, "end": end} if start < end else None

    def emit_partition_batch(self, *_: Any) -> Any:
        raise AssertionError("planned only")


class ListSpout(Spout, BatchCoordinator):
    """An unpartitioned spout that plans what the test gives it, batch by batch; then nothing."""

    fields = "word string"

    def __init__(self, *sizes: int, kind: SpoutKind = SpoutKind.TRANSACTIONAL) -> None:
        self.sizes, self.kind = list(sizes), kind

    @property
    def identity(self) -> Metadata:
        return {"spout": "ListSpout"}

    def coordinator(self) -> BatchCoordinator:
        return self

    def emitter(self) -> Emitter:
        raise AssertionError("planned only")

    def initialize_transaction(
        self, txid: int, prev_metadata: Metadata | None, curr_metadata: Metadata | None
    ) -> Metadata | None:
        number = prev_metadata["number"] + 1 if prev_metadata else 0
        start = prev_metadata["end"] if prev_metadata else 0
        return (
            {"number": number, "start": start, "end": start + self.sizes[number]} if number < len(self.sizes) else None
        )


def word_count(
    spout: Spout,
    name: str = "word_count",
    *,
    state: State | None = None,
    max_pending: int = 1,
    guarantee: str = "at_least_once",
    **aggregates: CombinerAggregator,
) -> Topology:
    """Words of one stream, counted."""
    topology = Topology(name, max_pending)
    grouped = topology.new_stream("words", spout).group_by("word")
    grouped.persistent_aggregate(state or OpaqueState(name), guarantee=guarantee, **(aggregates or {"count": Count()}))
    return topology


def run(name: str) -> Run:
    """A run as the CLI would name it."""
    return Run(name, run_id=name)


def read_all(assignment: Assignment) -> dict[str, dict[str, ReadPartition]]:
    """Every planned range, read whole: the fingerprint follows from the range alone, as a transactional source's does."""
    return {
        stream: {partition: read_whole(range_) for partition, range_ in planned.ranges.items()}
        for stream, planned in assignment.plan.streams.items()
    }


def read_whole(range_: Any) -> ReadPartition:
    """A range's records; one record of a plan that is none."""
    if not isinstance(range_, dict) or not {"start", "end"} <= range_.keys():
        return ReadPartition(1, "1")
    return ReadPartition(range_["end"] - range_["start"], str(range_["start"] * 1000 + range_["end"]))


def manifest_of(
    topology: Topology, assignment: Assignment, partials: Mapping[str, Sequence[Keyed]], **changes: Any
) -> Manifest:
    """The manifest of an attempt that staged these partials; `changes` replace what it says."""
    honest = Manifest(
        topology=assignment.topology,
        attempt=assignment.attempt,
        token=assignment.token,
        code=assignment.code,
        metadata_digest=assignment.digest,
        streams=read_all(assignment),
        states={each.state.name: staged(each, partials[each.state.name]) for each in topology.aggregates},
    )
    return replace(honest, **changes)


def staged(aggregate: PersistentAggregate, partials: Sequence[Keyed]) -> StagedState:
    """What a manifest says of these partials, reckoned without Arrow."""
    totals = {
        column.name: _total(column, [partial[number] for _, partial in partials])
        for number, column in enumerate(aggregate.partial_columns)
    }
    return StagedState((), len(partials), totals)


def _total(column: ValueColumn, values: list[Any]) -> str | None:
    total = column.partial.total
    parts = [int(value is not None) for value in values] if total is Total.PRESENT else values
    parts = [len(value or ()) for value in values] if total is Total.ELEMENTS else parts
    return total.together(parts)


def record_batch(aggregate: PersistentAggregate, partials: Iterable[Keyed]) -> pa.RecordBatch:
    """Partials as Spark would stage them."""
    rows = [key + partial for key, partial in partials]
    typed = [(key.name, key.type) for key in aggregate.keys]
    typed += [(column.name, column.partial.type) for column in aggregate.partial_columns]
    arrays = [pa.array([row[number] for row in rows], arrow_type(type_)) for number, (_, type_) in enumerate(typed)]
    return pa.record_batch(arrays, names=[name for name, _ in typed])


def arrow_type(type_: str) -> Any:
    """The Arrow type in which Spark writes a field's type."""
    if (element := array_of(type_)) is not None:
        return pa.list_(arrow_type(element))
    scale = decimal_scale(type_)
    return ARROW[type_] if scale is None else pa.decimal128(int(type_[8:].split(",")[0]), scale)


def code(text: str = "code") -> str:
    """A job's fingerprint."""
    return hashlib.sha256(text.encode()).hexdigest()


def until(seen: Callable[[], T], complaint: str = "it was not seen", *, seconds: float = 240, every: float = 0.1) -> T:
    """Wait for something to be seen, and return it; the complaint fails the test. A busy machine is given more seconds."""
    patience = Patience(seconds)
    while not (found := seen()):
        assert patience.lasts(), complaint
        time.sleep(every)
    return found
