"""Reads one stream of a batch, and audits what was read (R7)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from txbatch.core.errors import BadRecord, PartitionUnreadable
from txbatch.core.manifest import ReadPartition
from txbatch.core.plan import StreamPlan, streams_of
from txbatch.core.spark_sql import spark_name
from txbatch.core.spout import PARTITION_COLUMN, PartitionedSpout, SpoutKind
from txbatch.core.stream import Stream
from txbatch.core.transaction import Assignment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class BatchReader:
    """Reads one stream of a batch, `stream` being as its spout gives it."""

    spark: SparkSession
    stream: Stream
    assignment: Assignment
    left_out: frozenset[str] = frozenset()
    _said: list[DataFrame] = field(default_factory=list, compare=False)

    @property
    def planned(self) -> StreamPlan:
        """What the batch's metadata says of this stream, less the partitions left out."""
        planned = streams_of(self.assignment.metadata)[self.stream.name]
        return planned.only(planned.ranges.keys() - self.left_out) if self.left_out else planned

    def holes(self) -> dict[str, str]:
        """The partitions that an opaque spout declares unreadable, with the reason (R13)."""
        spout, attempt = self.stream.spout, self.assignment.attempt
        found: dict[str, str] = {}
        if not isinstance(spout, PartitionedSpout) or spout.kind is not SpoutKind.OPAQUE:
            return found
        for partition, range_ in self.planned.ranges.items():
            try:
                spout.emit_partition_batch(self.spark, attempt, partition, range_)
            except PartitionUnreadable as error:
                found[partition] = str(error)
        return found

    def records(self, partitions: Collection[str] | None = None) -> DataFrame:
        """The batch's records as the spout emits them, or those of some of its partitions."""
        if partitions is None and self.stream.spout.kind is SpoutKind.NON_TRANSACTIONAL:
            return self._once()
        return self._ask(self.planned if partitions is None else self.planned.only(partitions))

    def _ask(self, planned: StreamPlan) -> DataFrame:
        return self.stream.spout.emitter().emit_batch(self.spark, self.assignment.attempt, planned.plan)

    def _once(self) -> DataFrame:
        """What a source that cannot say it again has said to this attempt: on disk, and should that be lost the attempt fails."""
        from pyspark import StorageLevel

        if not self._said:
            self._said.append(self._ask(self.planned).localCheckpoint(storageLevel=StorageLevel.DISK_ONLY))
        return self._said[0]

    def audit(self) -> dict[str, ReadPartition]:
        """Per partition: records read, and the sum of their xxhash64. BadRecord names partitions with invalid UTF-8.

        An empty range and a file without records count as read; any other partition that gave nothing stays away, and
        is found missing (R7b).
        """
        records = self.records()
        found = {self._partition(row["partition"]): row for row in self._audit(records).collect()}
        invalid = sorted(name for name, row in found.items() if row["invalid"])
        if invalid:
            self._count(invalid[0])
            raise BadRecord(f"{self}: invalid UTF-8 in {', '.join(invalid[:5])}; mend the source, or abort the batch")
        return self._without_records(found) | {
            name: ReadPartition(row["records"], str(row["fingerprint"])) for name, row in found.items()
        }

    def __str__(self) -> str:
        return f"{self.assignment.topology} {self.assignment.attempt}, stream {self.stream.name!r}"

    def _audit(self, records: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        names = [spark_name(field.name) for field in self.stream.fields]
        strings = [spark_name(field.name) for field in self.stream.fields if field.type == "string"]
        valid = " and ".join(f"coalesce(is_valid_utf8({name}), true)" for name in strings) or "true"
        partition = F.col(PARTITION_COLUMN) if isinstance(self.stream.spout, PartitionedSpout) else F.lit("")
        return records.groupBy(partition.alias("partition")).agg(
            F.expr("count(1) as records"),
            F.expr(f"coalesce(sum(cast(xxhash64({', '.join(names)}) as decimal(38,0))), 0) as fingerprint"),
            F.expr(f"count_if(not ({valid})) as invalid"),
        )

    def _without_records(self, found: Collection[str]) -> dict[str, ReadPartition]:
        """What counts as read though it gave no records: a batch without partitions, empty ranges, and partitions in
        which the spout, asked again, counts none.
        """
        if not isinstance(self.stream.spout, PartitionedSpout):
            return {"": ReadPartition(0, "0")}
        silent = {name: of for name, of in self.planned.ranges.items() if name not in found}
        return {
            name: ReadPartition(0, "0")
            for name, of in silent.items()
            if of["start"] == of["end"] or self._count(name) == 0
        }

    def _count(self, partition: str) -> int | None:
        """How many records the spout counts in a partition, asked again."""
        spout = self.stream.spout
        if not isinstance(spout, PartitionedSpout):
            return None
        try:
            return spout.count_records(partition, self.planned.ranges[partition])
        except BadRecord as error:
            raise BadRecord(f"{self}: {error}") from error

    def _partition(self, value: str) -> str:
        spout = self.stream.spout
        return spout.partition_name(value) if isinstance(spout, PartitionedSpout) else value
