"""The reading side of spouts: an emitter returns exactly the planned records, in the Spark driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from txbatch.core.records.sql import spark_text
from txbatch.core.sources.labels import partitions_of
from txbatch.core.stored_json import Metadata

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txbatch.core.batch.transaction import TransactionAttempt

# The column by which a partitioned spout's DataFrame says which partition a record came from.
PARTITION_COLUMN = "_txbatch_partition"


class Emitter(ABC):
    """Reads the records named by the metadata. Runs in the Spark driver."""

    @abstractmethod
    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        """Return exactly the records that the metadata names, in a DataFrame with the spout's fields.

        Called once for the audit, once for each state and once at the end. The last call may refuse a source that changed. If
        the spout is `remote`, called once to read and once at the end: read nothing before the DataFrame is read. The emitter
        of a non-transactional spout is called once in an attempt. DataFrames persisted by the emitter are unpersisted
        before the next attempt.
        """

    def close(self) -> None:
        """Release what the emitter holds. Called once in each attempt after the records are read, also if reading failed.

        If a spout is its own emitter, the next attempt calls the spout again. An emitter does not hear of success: the driver
        ends, or goes on, before the commit. `BatchCoordinator.success` hears of success.
        """


class PartitionedEmitter(Emitter):
    """The reading side of a partitioned spout: partition by partition, or all partitions in one scan."""

    @abstractmethod
    def emit_partition_batch(
        self, spark: SparkSession, attempt: TransactionAttempt, partition: str, metadata: Metadata
    ) -> DataFrame:
        """Return exactly the records of this range; PartitionUnreadable if the partition cannot be read now."""

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        """Return all records of a batch, with the partition in `PARTITION_COLUMN`. Override to read partitions in one scan."""
        named, ranges = partitions_of(metadata), metadata["partitions"].items()
        return union({label: self.emit_partition_batch(spark, attempt, named[label], of) for label, of in ranges})

    @property
    def reads_by_partition(self) -> bool:
        """True if a batch is read partition by partition: `emit_batch` is not overridden."""
        return type(self).emit_batch is PartitionedEmitter.emit_batch

    def unreadable(self, metadata: Metadata) -> Mapping[str, str] | None:
        """Return why partitions of a plan cannot be read now, by the plan's names: of an opaque spout, asked once an attempt.

        None, the default, if the spout cannot say so at once: `emit_partition_batch` is called for each partition.
        """
        return None

    def count_records(self, partition: str, metadata: Metadata) -> int | None:
        """Return how many records a range has, counted again without Spark; None if the spout cannot count the records.

        Called for a range that gave no records: the range is refused unless its number of records is 0. Called also for a
        range with invalid UTF-8: raise BadRecord to name the record.
        """
        return None

    def partition_name(self, value: str) -> str:
        """Return the partition's name for a value of `PARTITION_COLUMN`: readers may be unable to write the name itself."""
        return value

    def emitter(self) -> Emitter:
        return self


def union(frames: Mapping[str, DataFrame]) -> DataFrame:
    """Return the records of all partitions, with the partition in `PARTITION_COLUMN`."""
    named = [frame.selectExpr("*", f"{spark_text(name)} as {PARTITION_COLUMN}") for name, frame in frames.items()]
    return reduce(lambda left, right: left.unionByName(right), named)
