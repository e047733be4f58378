"""Several attempts by one job of the driver, each staged in its own folder; where that fails, by halves, down to one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from txbatch.core.errors import NewerFormat, TransientError
from txbatch.core.fused import as_one
from txbatch.core.heartbeat import Heartbeat, of_several
from txbatch.core.manifest import ReadPartition, StagedState
from txbatch.core.topology import Topology
from txbatch.core.transaction import Assignment
from txbatch.spark.aggregate import BatchAggregator
from txbatch.spark.fused import FusedReader, opened_fused, partials_of_each
from txbatch.spark.state_query import Tables
from txbatch.storage import parquet
from txbatch.storage.staging import AttemptFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Attempt = tuple[AttemptFolder, Assignment]
# By stream and partition what an attempt read, and by state what it staged.
Staged = tuple[dict[str, dict[str, ReadPartition]], dict[str, StagedState]]


@dataclass
class Halving:
    """Emits attempts together; those that fail, by halves, and the last one `alone`, which returns why it failed.

    `why` says that of a job. Where it says of a job what it said of a batch alone, all fail by one cause: they are left to their
    own runs, as they are after too many jobs that failed.
    """

    together: Callable[[Sequence[Attempt]], None]
    alone: Callable[[Attempt], str | None]
    why: Callable[[Exception], str]
    left: int
    told: set[str] = field(default_factory=set)

    def emit(self, attempts: Sequence[Attempt]) -> None:
        """Emit those that may go on and have said nothing yet."""
        going = [each for each in attempts if may_go_on(each) and not each[0].said_something()]
        if not going or not self.left:
            return
        if len(going) == 1:
            failure = self.alone(going[0])
            self.told |= {failure} if failure else set()
            return
        try:
            self.together(going)
        except Exception as error:
            failure = self.why(error)
            self.left = 0 if failure in self.told else self.left - 1
            print(f"txbatch: {len(going)} batches by one job: {failure}", file=sys.stderr, flush=True)
            half = len(going) // 2
            self.emit(going[:half])
            self.emit(going[half:])


def may_go_on(attempt: Attempt) -> bool:
    """True unless a newer attempt took its place, or nobody can tell: it is left out then."""
    try:
        return not attempt[0].read_heartbeat().superseded
    except (TransientError, NewerFormat):
        return False


def heartbeat(folders: Sequence[AttemptFolder]) -> Heartbeat:
    """Return the heartbeat of a job that emits these attempts; TransientError where none can be read."""
    return of_several(found for folder in folders if (found := _read(folder)) is not None)


def _read(folder: AttemptFolder) -> Heartbeat | None:
    try:
        return folder.read_heartbeat()
    except (TransientError, NewerFormat):
        return None


def stage(spark: SparkSession, topology: Topology, attempts: Sequence[Attempt]) -> dict[int, Staged]:
    """Read and aggregate several batches by one job, and write each one's partials into its folder. Return that by txid.

    TransientError where they do not go together.
    """
    assignments = [assignment for _, assignment in attempts]
    fused = as_one(topology, assignments)
    if fused is None:
        raise TransientError(f"{topology.name}: these batches cannot be read together")
    with ExitStack() as emitters:
        readers = {
            name: emitters.enter_context(opened_fused(spark, topology.streams[name], fused, assignments))
            for name in fused.plan.streams
        }
        read = {name: reader.audit_each() for name, reader in readers.items()}
        tables = Tables(fused.plan.static, planned_at=fused.plan.planned_at)
        states = _write_partials(topology, attempts, readers, tables)
    return {
        txid: ({name: of_stream[txid] for name, of_stream in read.items() if txid in of_stream}, states[txid])
        for txid in states
    }


def _write_partials(
    topology: Topology, attempts: Sequence[Attempt], readers: Mapping[str, FusedReader], tables: Tables
) -> dict[int, dict[str, StagedState]]:
    """Write the partials of every state and batch, once all are made and the source is known to be unchanged."""
    txids = [assignment.attempt.txid for _, assignment in attempts]
    together = [BatchAggregator(aggregate, readers, tables) for aggregate in topology.aggregates]
    made = [partials_of_each(each, txids) if each.has_records else {} for each in together]
    for reader in readers.values():
        reader.check_unchanged()
    tables.check_unchanged(topology.looked_up.values())
    for aggregator in together:
        aggregator.check_counted()
    staged: dict[int, dict[str, StagedState]] = {txid: {} for txid in txids}
    watermarks = topology.watermarks
    for folder, assignment in attempts:
        txid, marks = assignment.attempt.txid, assignment.plan.marks(watermarks)
        own = {name: reader.each[txid] for name, reader in readers.items() if txid in reader.each}
        for number, (aggregate, partials) in enumerate(zip(topology.aggregates, made, strict=True)):
            aggregator = BatchAggregator(aggregate, own, tables)
            if aggregator.has_records:
                found = parquet.write(folder, number, aggregate, partials[txid], marks)
            else:
                found = parquet.describe(folder, number, aggregate, marks)
            aggregator.check_read(found)
            staged[txid][aggregator.state] = found
    return staged
