"""A stand-in for spark-submit, for jobs that group records as they are, or per batch: of a log, or of a spout with `batch`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from txbatch import PartitionedLogSpout, Spout
from txbatch.core.batch.manifest import Manifest, ReadPartition
from txbatch.core.batch.plan import StreamPlan
from txbatch.core.batch.transaction import Assignment, Metadata
from txbatch.core.errors import TerminalError, TransientError, TxbatchError
from txbatch.core.records.fields import decimal_scale
from txbatch.core.topology.nodes import Node
from txbatch.core.topology.persistent_aggregate import RECORDS_COLUMN, PersistentAggregate
from txbatch.core.topology.topology import Topology
from txbatch.core.topology.walks import per_batch
from txbatch.direct import operations
from txbatch.direct.append import appended
from txbatch.direct.emitter import came_late, partials_of
from txbatch.launch.job_file import Job, load_job
from txbatch.spouts import log_records
from txbatch.storage import parquet
from txbatch.storage.staging import AttemptFolder

ARROW = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "boolean": pa.bool_(),
}


class WithoutSpark:
    """What `Runner` takes for a Spark application."""

    killed, stage = False, ""

    def __init__(self, job: Job, *_: Any, **__: Any) -> None:
        self.job = job

    def start(self, *_: object) -> None:
        """It runs."""

    def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        """Run the job on an attempt's folder. TransientError for what the job raises."""
        try:
            emit_without_spark(self.job, folder, assignment)
        except TxbatchError:
            raise
        except Exception as error:
            raise TransientError(
                f"txbatch {assignment.topology} {assignment.attempt}: {type(error).__name__}: {error}"
            ) from error

    def emit_bulk(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        """One after the other; what fails says why in its folder."""
        for folder, assignment in attempts:
            try:
                self.emit(folder, assignment)
            except TxbatchError as error:
                folder.write_error("terminal" if isinstance(error, TerminalError) else "transient", str(error))

    def begin(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        """Do all of it at once."""
        self.emit_bulk(attempts)

    def wait(self) -> None:
        """It is done."""

    def let_end(self) -> None:
        """It goes on."""

    def close(self) -> None:
        """Nothing was started."""


class LikeTheDriver(WithoutSpark):
    """Leaves the reason of a failure in the folder, as the driver does."""

    def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        try:
            super().emit(folder, assignment)
        except TxbatchError as error:
            folder.write_error("transient", str(error))
            raise TransientError(str(error)) from error


def emit_without_spark(job: Job, folder: AttemptFolder, assignment: Assignment) -> None:
    """Reads, aggregates and writes the manifest."""
    stage(load_job(str(job.path)).topology, folder, assignment)


def stage(topology: Topology, folder: AttemptFolder, assignment: Assignment) -> None:
    """The same for a topology that is loaded."""
    states = {}
    for number, aggregate in enumerate(topology.aggregates):
        table = partials(aggregate, assignment)
        path = folder.path(f"partials/{number}/part.parquet")
        folder.filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
        pq.write_table(table, path, filesystem=folder.filesystem)
        states[aggregate.state.name] = parquet.describe(folder, number, aggregate)
    plans = assignment.plan.streams
    read = {name: read_partitions(topology.streams[name].spout, plan) for name, plan in plans.items()}
    late = None if assignment.look is None else came_late(topology, assignment.look)
    of = assignment.attempt, assignment.token, assignment.code, assignment.digest
    manifest = Manifest(topology.name, *of, read, states, came_late=late)
    folder.write_manifest(manifest)


def read_partitions(spout: Spout, planned: StreamPlan) -> dict[str, ReadPartition]:
    """Records and a fingerprint of each partition."""
    plans = [planned.only([name]) for name in planned.ranges]
    found = {name: records(spout, each.plan) for name, each in zip(planned.ranges, plans, strict=True)}
    return {name: ReadPartition(len(read), str(crc32(repr(read).encode()))) for name, read in found.items()}


def records(spout: Spout, plan: Metadata) -> list[tuple[Any, ...]]:
    """What a plan names."""
    if hasattr(spout, "batch"):
        return list(spout.batch(plan))
    assert isinstance(spout, PartitionedLogSpout)
    rows = [{"partition": name, **of, "segments": spout.log.segments(name)} for name, of in plan["partitions"].items()]
    return [record for row in rows for record in log_records.records_of(row, spout.nul, log_records.Place())]


def reaching(aggregate: PersistentAggregate, assignment: Assignment) -> Iterable[dict[str, Any]]:
    """The records of its node: what its spout gives, unless operations per batch stand before it, or the records are kept."""
    node = aggregate.stream
    plans = assignment.plan.streams
    if not (per_batch(node) or aggregate.state.appends):
        return named(node, node.roots[0].spout, plans[node.name])
    roots = (root for root in node.roots if root.name in plans)
    return operations.records(node, {root.name: {"": named(root, root.spout, plans[root.name])} for root in roots})


def named(node: Node, spout: Spout, planned: StreamPlan) -> list[dict[str, Any]]:
    """What a spout gives, by the names of a node's fields."""
    names = [field.name for field in node.fields]
    return [dict(zip(names, record, strict=True)) for record in records(spout, planned.plan)]


def partials(aggregate: PersistentAggregate, assignment: Assignment) -> pa.Table:
    """Return what an attempt contributes to a state, as Spark writes it."""
    reached = list(reaching(aggregate, assignment))
    found = dict(partials_of(aggregate, reached, assignment.position))
    rows = appended(reached, aggregate, assignment.position) if aggregate.state.appends else reached
    kept = Counter(tuple(record[each.name] for each in aggregate.keys) for record in rows)
    types = [each.type for each in aggregate.keys] + [each.partial.type for each in aggregate.partial_columns]
    columns = [each.name for each in aggregate.keys] + [each.name for each in aggregate.partial_columns]
    values = list(zip(*((*key, *partial) for key, partial in found.items()), strict=True)) or [()] * len(types)
    arrays = [
        pa.array(list(column), ARROW.get(type_) or pa.decimal128(38, decimal_scale(type_) or 0))
        for column, type_ in zip(values, types, strict=True)
    ]
    arrays.append(pa.array([kept[key] for key in found], pa.int64()))
    return pa.table(arrays, names=[*columns, RECORDS_COLUMN])
