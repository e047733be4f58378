"""Reads several batches in one pass: each record gets the txid of the record's batch, by partition or by time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from txbatch.core.batch.manifest import ReadPartition
from txbatch.core.batch.plan import Ranges
from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import BrokenSpout, PartitionUnreadable
from txbatch.core.protocol.bulk import PARTIALS_BYTES_MAX, ROWS_MAX, pieces, spans, strictly_by_time
from txbatch.core.records.fields import Field
from txbatch.core.records.sql import spark_name
from txbatch.core.sources.emitter import PARTITION_COLUMN
from txbatch.core.sources.spout import Emitter, PartitionedSpout
from txbatch.core.topology.stream import Stream
from txbatch.spark.aggregate import BatchAggregator
from txbatch.spark.driver_memory import DriverBound
from txbatch.spark.frames import of_rows
from txbatch.spark.interval_check import micros, refused
from txbatch.spark.reader import BatchReader, emitter_of
from txbatch.spark.within_batch import OF_FIELD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_PIECE, _START, _END = "_txbatch_piece", "_txbatch_start", "_txbatch_end"


@contextmanager
def open_bulk(
    spark: SparkSession, stream: Stream, as_one: Assignment, attempts: Sequence[Assignment]
) -> Iterator[BulkReader]:
    """Context manager. Yield a reader of a stream of several batches, and close the reader's emitter when the block ends."""
    with emitter_of(stream, as_one) as emitter:
        reader = BulkReader(spark, stream, as_one, emitter, attempts)
        try:
            yield reader
        finally:
            reader.free()


class BulkReader(BatchReader):
    """Reads a stream of several batches through one emitter, by one plan. `each` has a reader for each batch, by txid."""

    several = True

    def __init__(
        self, spark: SparkSession, stream: Stream, as_one: Assignment, emitter: Emitter, attempts: Sequence[Assignment]
    ) -> None:
        super().__init__(spark, stream, as_one, emitter)
        mine = [attempt for attempt in attempts if stream.name in attempt.plan.streams]
        self.each = {attempt.attempt.txid: BatchReader(spark, stream, attempt, emitter) for attempt in mine}
        self._txids = self._by_time(mine)
        self._audited = False

    @property
    def assignments(self) -> Mapping[int, Assignment]:
        """The batches of the records, by txid."""
        return {txid: reader.assignment for txid, reader in self.each.items()}

    def records(self, partitions: Collection[str] | None = None) -> DataFrame:
        """Return the records with the batch's txid in front.

        Records outside all batches are left out. For the audit, if the spout must give no outside records, outside records
        stay, with a null txid.
        """
        from pyspark.sql import functions as F

        records = super().records(partitions)
        if self._txids is None:
            return records
        txids, same = self._txids
        how = "left" if strictly_by_time(self.stream.spout) and not self._audited else "inner"
        return records.join(F.broadcast(txids), F.expr(same), how).select(OF_FIELD.name, *map(F.col, _named(records)))

    def audit_each(self) -> dict[int, dict[str, ReadPartition]]:
        """Return each batch's audit, like `BatchReader.audit`, by txid.

        Raise BrokenSpout for a record outside all batches, PartitionUnreadable if an opaque spout would leave a partition out:
        each batch says by itself what the batch leaves out.
        """
        self._refuse_holes()
        rows = self._audit(self.records(), self.assignment.planned_at).collect()
        if self._txids and any(row[OF_FIELD.name] is None for row in rows):
            raise refused(str(self), self.stream, self.records(), f"{OF_FIELD.name} is null")
        self._audited = True
        txids = [int(row[OF_FIELD.name]) for row in rows] if self._txids else self._txids_of_partitions(rows)
        found: dict[int, list[Row]] = {txid: [] for txid in self.each}
        for txid, row in zip(txids, rows, strict=True):
            found[txid].append(row)
        each = {txid: self._by_its_plan(txid, self._found(found[txid])) for txid in self.each}
        audited = {txid: reader.audited(each[txid]) for txid, reader in self.each.items()}
        self.read = sum(reader.read for reader in self.each.values())
        return audited

    def _by_its_plan(self, txid: int, found: dict[str, Row]) -> dict[str, Row]:
        """Return the audit of a batch, counted again by the batch's own time of planning: the first audit uses the first
        batch's time.
        """
        planned_at = self.each[txid].assignment.planned_at
        late = planned_at is not None and planned_at != self.assignment.planned_at
        if not late or not any(self.each[txid]._ahead(row) for row in found.values()):
            return found
        own = self.records().filter(f"{OF_FIELD.name} = '{txid}'")
        return self._found(self._audit(own, planned_at).collect())

    def _refuse_holes(self) -> None:
        """Raise PartitionUnreadable if an opaque spout, asked for all partitions at once, names one as unreadable."""
        spout = self.stream.spout
        if isinstance(spout, PartitionedSpout) and spout.leaves_out:
            for why in (spout.unreadable(self.planned.plan) or {}).values():
                raise PartitionUnreadable(f"{self}: {why}; each batch leaves out what it must by itself")

    def _found(self, rows: Iterable[Row]) -> dict[str, Row]:
        return {self._places[self._partition(row["partition"])][1]: row for row in rows}

    def _txids_of_partitions(self, rows: Sequence[Row]) -> list[int]:
        """Return each row's txid by the row's partition, and use the txids from now on. Raise BrokenSpout for an unplanned
        partition.
        """
        found = dict[str, int]()
        for row in rows:
            name = self._partition(row["partition"])
            if name not in self._places:
                raise BrokenSpout(f"{self}: partition {name!r} was read but not planned; emit again")
            found[row["partition"]] = self._places[name][0]
        self._txids = self._by_partition(found)
        return list(found.values())

    @cached_property
    def _places(self) -> Mapping[str, tuple[int, str]]:
        """The batch and the partition of each range, by the range's label, or by the partition if the plan has no labels."""
        labels = self.planned.plan.get("of") if isinstance(self.planned, Ranges) and len(self.each) > 1 else None
        if labels is not None:
            txids = list(self.each)
            return {label: (txids[number], name) for label, (number, name) in labels.items()}
        return {name: (txid, name) for txid, reader in self.each.items() for name in reader.planned.ranges}

    def _by_partition(self, txids: Mapping[str, int]) -> tuple[DataFrame, str]:
        """Return the batch of each partition, by the names read, and the condition of a join."""
        fields = [OF_FIELD, Field(_PIECE, "string")]
        rows = [(str(txid), partition) for partition, txid in txids.items()]
        return of_rows(self.spark, fields, rows), f"{PARTITION_COLUMN} = {_PIECE}"

    def _by_time(self, attempts: Sequence[Assignment]) -> tuple[DataFrame, str] | None:
        """Return the batches of each piece of time, and the condition of a join; None for a stream with partitions."""
        if isinstance(self.planned, Ranges):
            return None
        origin, width, found = pieces(spans(attempts, self.stream.name))
        fields = [OF_FIELD, *(Field(name, "bigint") for name in (_PIECE, _START, _END))]
        rows = [(str(span.txid), number, span.start, span.end) for number, span in found]
        at = micros(self.stream)
        same = f"({at} - {origin}L) div {width}L = {_PIECE} and {at} >= {_START} and {at} < {_END}"
        return of_rows(self.spark, fields, rows), same


def partials_of_each(aggregator: BatchAggregator, txids: Sequence[int]) -> dict[int, pa.Table]:
    """Return each batch's partials, the same as if emitted alone. Raise TooMuch if the driver cannot take the partials."""
    bound = DriverBound(aggregator.aggregate, ROWS_MAX, PARTIALS_BYTES_MAX)
    found = bound.taken(aggregator.partials(), str(aggregator)).sort_by(OF_FIELD.name)
    cut, at = {}, 0
    for count in pc.value_counts(found[OF_FIELD.name]).to_pylist():
        cut[int(count["values"])] = found.slice(at, count["counts"]).drop_columns([OF_FIELD.name])
        at += count["counts"]
    if len(cut) == len(txids):
        return cut
    by_key = bool(aggregator.aggregate.keys)
    nothing = found.slice(0, 0).drop_columns([OF_FIELD.name]) if by_key else aggregator.partials([]).toArrow()
    return {txid: cut.get(txid, nothing) for txid in txids}


def _named(records: DataFrame) -> list[str]:
    return [spark_name(name) for name in records.columns]
