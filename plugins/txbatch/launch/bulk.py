"""Several attempts by one job of the driver, each staged in a folder. If the job fails, by halves, down to single attempts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from txbatch.core.batch.heartbeat import Heartbeat, of_several
from txbatch.core.batch.manifest import ReadPartition, StagedState
from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import EmissionFailed, NewerFormat, TransientError
from txbatch.core.protocol.bulk import BATCHES_MAX, as_one_assignment
from txbatch.core.topology.late import check_kept_aside
from txbatch.core.topology.topology import Topology
from txbatch.spark.aggregate import BatchAggregator
from txbatch.spark.bulk import BulkReader, open_bulk, partials_of_each
from txbatch.spark.driver_memory import TooMuch
from txbatch.spark.state_query import Tables
from txbatch.storage import parquet
from txbatch.storage.staging import AttemptFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Attempt = tuple[AttemptFolder, Assignment]
Each = TypeVar("Each")
# By stream and partition what an attempt read, and by state what it staged.
Staged = tuple[dict[str, dict[str, ReadPartition]], dict[str, StagedState]]
# Once batches were too many, others go by so much of what is taken at once: they are not all alike.
_FILLED = 0.8


def halves(attempts: Sequence[Each]) -> list[Sequence[Each]]:
    """Return the first half and the second half."""
    half = len(attempts) // 2
    return [attempts[:half], attempts[half:]]


@dataclass
class Load:
    """The largest number of batches emitted together, `most`, as far as known: lowered once a number was too much."""

    most: int = BATCHES_MAX

    def pieces(self, attempts: Sequence[Each]) -> Sequence[Sequence[Each]]:
        """Return the attempts in pieces of at most `most`."""
        number = -(-len(attempts) // self.most)
        ends = [len(attempts) * n // number for n in range(number + 1)]
        return [attempts[start:end] for start, end in pairwise(ends)]

    def cut(self, attempts: Sequence[Each], shares: Sequence[float]) -> Sequence[Sequence[Each]]:
        """Return the attempts in pieces, each small enough or a single attempt; lower `most` for later attempts.

        >>> load = Load()
        >>> load.cut(["a", "b", "c", "d", "e"], [0.3, 0.3, 0.1, 1.2, 0.2]), load.most
        ([['a', 'b', 'c'], ['d'], ['e']], 1)
        """
        self.most = max(1, min(self.most, len(attempts) - 1, int(_FILLED * len(attempts) / sum(shares))))
        found, full = [[attempts[0]]], shares[0]
        for attempt, share in zip(attempts[1:], shares[1:], strict=True):
            if full + share > 1:
                found.append([])
                full = 0
            found[-1].append(attempt)
            full += share
        return found if len(found) > 1 else halves(attempts)


@dataclass
class Halving:
    """Emits attempts together. Failing attempts are emitted by halves, a single attempt by `alone`, which returns the
    failure.

    `why` describes the failure of a job. If a job fails like a single batch before, all fail by one cause: the attempts are
    left to the batches' own runs, as after too many failed jobs. If a job is only too large, the attempts go on in pieces, by
    the `load`. `told` are failures of single batches, `said` failures of jobs.
    """

    together: Callable[[Sequence[Attempt]], None]
    alone: Callable[[Attempt], str | None]
    why: Callable[[Exception], str]
    left: int
    load: Load = field(default_factory=Load)
    told: set[str] = field(default_factory=set)
    said: set[str] = field(default_factory=set)

    def emit(self, attempts: Sequence[Attempt]) -> None:
        """Emit the attempts that may go on and have no result yet."""
        self._each(self.load.pieces(attempts))

    def _emit(self, attempts: Sequence[Attempt]) -> None:
        going = [each for each in attempts if may_go_on(each) and not each[0].said_something()]
        if not going or not self.left:
            return
        if len(going) == 1:
            failure = self.alone(going[0])
            self.told |= {failure} if failure else set()
            return
        try:
            self.together(going)
        except TooMuch as error:
            print(f"txbatch: {len(going)} batches by one job: {error}; fewer are", file=sys.stderr, flush=True)
            self._each(self.load.cut(going, [error.shares.get(each[1].attempt.txid, 0) for each in going]))
        except Exception as error:
            failure = self.why(error)
            self.left = 0 if failure in self.told else self.left - 1
            self._say(len(going), failure)
            self._each(halves(going))

    def _say(self, batches: int, failure: str) -> None:
        """Print the failure of a job, each failure once: the batches may succeed by themselves, and then nobody else tells it."""
        why = "it failed in the same way" if failure in self.said else failure
        self.said.add(failure)
        print(f"txbatch: {batches} batches by one job: {why}", file=sys.stderr, flush=True)

    def _each(self, pieces: Sequence[Sequence[Attempt]]) -> None:
        for piece in pieces:
            self._emit(piece)


def may_go_on(attempt: Attempt) -> bool:
    """Return whether no newer attempt took the attempt's place; False also if the heartbeat is unreadable."""
    try:
        return not attempt[0].read_heartbeat().superseded
    except (TransientError, NewerFormat):
        return False


def heartbeat(folders: Sequence[AttemptFolder]) -> Heartbeat:
    """Return the heartbeat of a job of several attempts. Raise TransientError if no heartbeat can be read."""
    return of_several(found for folder in folders if (found := _read(folder)) is not None)


def _read(folder: AttemptFolder) -> Heartbeat | None:
    try:
        return folder.read_heartbeat()
    except (TransientError, NewerFormat):
        return None


def stage(spark: SparkSession, topology: Topology, attempts: Sequence[Attempt]) -> dict[int, Staged]:
    """Read and aggregate several batches by one job, and write each batch's partials into the batch's folder.

    Return the read partitions and the staged states by txid. Raise TransientError if the batches do not fit together.
    """
    assignments = [assignment for _, assignment in attempts]
    fused = as_one_assignment(topology, assignments)
    if fused is None:
        raise EmissionFailed(f"{topology.name}: these batches cannot be read together")
    with ExitStack() as emitters:
        readers = {
            name: emitters.enter_context(open_bulk(spark, topology.streams[name], fused, assignments))
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
    topology: Topology, attempts: Sequence[Attempt], readers: Mapping[str, BulkReader], tables: Tables
) -> dict[int, dict[str, StagedState]]:
    """Write the partials of every state and batch, state by state. Then check the source: the source must be unchanged."""
    txids = [assignment.attempt.txid for _, assignment in attempts]
    together = [BatchAggregator(aggregate, readers, tables) for aggregate in topology.aggregates]
    staged: dict[int, dict[str, StagedState]] = {txid: {} for txid in txids}
    each: dict[int, list[BatchAggregator]] = {txid: [] for txid in txids}
    watermarks = topology.watermarks
    for number, whole in enumerate(together):
        made = partials_of_each(whole, txids) if whole.has_records else {}
        for folder, assignment in attempts:
            txid, marks = assignment.attempt.txid, assignment.plan.marks(watermarks)
            own = {name: reader.each[txid] for name, reader in readers.items() if txid in reader.each}
            aggregator = BatchAggregator(whole.aggregate, own, tables)
            if aggregator.has_records:
                found = parquet.write(folder, number, whole.aggregate, made[txid], marks)
            else:
                found = parquet.describe(folder, number, whole.aggregate, marks)
            staged[txid][aggregator.state] = found
            each[txid].append(aggregator)
    for reader in readers.values():
        reader.check_unchanged()
    tables.check_unchanged(topology.looked_up.values())
    for aggregator in together:
        aggregator.check_counted()
    for txid, aggregators in each.items():
        for aggregator in aggregators:
            aggregator.check_read(staged[txid][aggregator.state])
        check_kept_aside(topology.name, topology.aggregates, staged[txid])
    return staged
