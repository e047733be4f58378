"""Reads several batches in one pass: each record is given the txid of its batch, by its partition or by its time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from txbatch.core.errors import Incomplete
from txbatch.core.fields import Field
from txbatch.core.fused import PARTIALS_BYTES_MAX, ROWS_MAX, pieces, spans, strictly_by_time
from txbatch.core.manifest import ReadPartition
from txbatch.core.plan import Ranges
from txbatch.core.spark_sql import spark_name
from txbatch.core.spout import PARTITION_COLUMN, Emitter
from txbatch.core.stream import Stream
from txbatch.core.transaction import Assignment
from txbatch.spark.aggregate import BatchAggregator
from txbatch.spark.frames import of_rows
from txbatch.spark.load import Bound
from txbatch.spark.outside import micros, refused
from txbatch.spark.reader import BatchReader, emitter_of
from txbatch.spark.within_batch import OF_FIELD

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

    # Gives records the txid of their batch, in a column in front or behind.
    Given = Callable[[DataFrame], DataFrame]

_PLANNED = "_txbatch_planned"


@contextmanager
def opened_fused(
    spark: SparkSession, stream: Stream, as_one: Assignment, attempts: Sequence[Assignment]
) -> Iterator[FusedReader]:
    """Context manager. Yield a reader of one stream of several batches, and close its emitter when the block ends."""
    with emitter_of(stream, as_one) as emitter:
        yield FusedReader(spark, stream, as_one, emitter, attempts)


class FusedReader(BatchReader):
    """Reads one stream of several batches through one emitter, by one plan. `each` has a reader of every batch by its txid."""

    several = True

    def __init__(
        self, spark: SparkSession, stream: Stream, as_one: Assignment, emitter: Emitter, attempts: Sequence[Assignment]
    ) -> None:
        super().__init__(spark, stream, as_one, emitter)
        mine = [attempt for attempt in attempts if stream.name in attempt.plan.streams]
        self.each = {attempt.attempt.txid: BatchReader(spark, stream, attempt, emitter) for attempt in mine}
        self._txid = self._by_time(mine)
        self._audited = False

    def records(self, partitions: Collection[str] | None = None) -> DataFrame:
        """Return the records with the txid of their batch in front.

        Those of no batch are left out; for the audit they have none, of a spout that may give no such record.
        """
        from pyspark.sql import functions as F

        records = super().records(partitions)
        if self._txid is None:
            return records
        given = self._txid(records)
        found = given.select(OF_FIELD.name, *map(F.col, _named(records)))
        if strictly_by_time(self.stream.spout) and not self._audited:
            return found
        return found.filter(F.col(OF_FIELD.name).isNotNull())

    def audit_each(self) -> dict[int, dict[str, ReadPartition]]:
        """Return what `BatchReader.audit` says of each batch, by its txid. Incomplete for a record that is of none."""
        rows = self._audit(self.records(), self.assignment.planned_at).collect()
        if self._txid and any(row[OF_FIELD.name] is None for row in rows):
            raise refused(str(self), self.stream, self.records(), f"{OF_FIELD.name} is null")
        self._audited = True
        txids = [int(row[OF_FIELD.name]) for row in rows] if self._txid else self._txids_of_partitions(rows)
        found: dict[int, dict[str, Row]] = {txid: {} for txid in self.each}
        for txid, row in zip(txids, rows, strict=True):
            found[txid][self._partition(row["partition"])] = row
        audited = {txid: reader.audited(self._by_its_plan(txid, found[txid])) for txid, reader in self.each.items()}
        self.read = sum(reader.read for reader in self.each.values())
        return audited

    def _by_its_plan(self, txid: int, found: dict[str, Row]) -> dict[str, Row]:
        """Return what was found of a batch, counting by when it was planned itself: all were by the first of them."""
        planned_at = self.each[txid].assignment.planned_at
        late = planned_at is not None and planned_at != self.assignment.planned_at
        if not late or not any(self.each[txid]._ahead(row) for row in found.values()):
            return found
        own = self.records().filter(f"{OF_FIELD.name} = '{txid}'")
        return self._found(self._audit(own, planned_at).collect())

    def _txids_of_partitions(self, rows: Sequence[Row]) -> list[int]:
        """Return whose partition each row is of, and give their records these txids from now on. Incomplete for nobody's."""
        batch_of = {name: txid for txid, reader in self.each.items() for name in reader.planned.ranges}
        found = dict[str, int]()
        for row in rows:
            name = self._partition(row["partition"])
            if name not in batch_of:
                raise Incomplete(f"{self}: partition {name!r} was read but not planned; emit again")
            found[row["partition"]] = batch_of[name]
        self._txid = self._by_partition(found)
        return list(found.values())

    def _by_partition(self, txids: Mapping[str, int]) -> Given:
        """Return what gives records the txid of the batch that has their partition, by the names that are read."""
        from pyspark.sql import functions as F

        fields = [OF_FIELD, Field(_PLANNED, "string")]
        rows = of_rows(self.spark, fields, [(str(txid), partition) for partition, txid in txids.items()])
        same = F.expr(f"{PARTITION_COLUMN} = {_PLANNED}")
        return lambda records: records.join(F.broadcast(rows), same, "inner")

    def _by_time(self, attempts: Sequence[Assignment]) -> Given | None:
        """Return what gives records the txid of the batch whose time theirs is, or null; None for one with partitions."""
        from pyspark.sql import functions as F

        if isinstance(self.planned, Ranges):
            return None
        found = spans(attempts, self.stream.name)
        cut = pieces(found)
        firsts = _array(cut.first, "int")
        starts, ends = (_array(each, "bigint") for each in zip(*((of.start, of.end) for of in found), strict=True))
        txids, at = _array([of.txid for of in found], "string"), F.expr(micros(self.stream))
        first = F.get(firsts, F.expr(f"try_cast(({micros(self.stream)} - {cut.origin}L) div {cut.width}L as int)"))
        these = [first + number for number in range(cut.most)]
        mine = [F.when((at >= F.get(starts, n)) & (at < F.get(ends, n)), F.get(txids, n)) for n in these]
        return lambda records: records.withColumn(OF_FIELD.name, F.coalesce(*mine))


def partials_of_each(aggregator: BatchAggregator, txids: Sequence[int]) -> dict[int, pa.Table]:
    """Return the partials of each of these batches, as it alone would have them. TooMuch for more than the driver takes."""
    bound = Bound(aggregator.aggregate, ROWS_MAX, PARTIALS_BYTES_MAX)
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


def _array(values: Sequence[int], type_: str) -> Column:
    """Return an array of Spark, which is read once whatever its length; a column for each value would not be."""
    from pyspark.sql import functions as F

    return F.split(F.lit(",".join(map(str, values))), ",").cast(f"array<{type_}>")


def _named(records: DataFrame) -> list[str]:
    return [spark_name(name) for name in records.columns]
