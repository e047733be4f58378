"""Records that Spark keeps on its disks for an attempt, so that their source is read once."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from txbatch.core.sources.spout import PARTITION_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class KeptRecords:
    """The records of a stream, kept on disk. If a kept block is lost, whoever reads fails: nothing is taken again."""

    frame: DataFrame

    @classmethod
    def of(cls, records: DataFrame) -> Self:
        """Take the records once, now, and keep them."""
        from pyspark import StorageLevel

        return cls(records.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY))

    def only(self, partitions: Collection[str] | None) -> DataFrame:
        """Return all records, or the records with some values of `PARTITION_COLUMN`."""
        from pyspark.sql import functions as F

        return self.frame if partitions is None else self.frame.filter(F.col(PARTITION_COLUMN).isin(*partitions))

    def free(self) -> None:
        """Release the disk. Do nothing if Spark has ended."""
        with suppress(Exception):
            self.frame._jdf.queryExecution().analyzed().rdd().unpersist(False)
