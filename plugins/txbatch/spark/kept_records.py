"""Records that Spark keeps on its disks for an attempt: a source is read once, and a join of several states is made once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from txbatch.core.sources.emitter import PARTITION_COLUMN
from txbatch.core.topology.nodes import Join, Merged, Node
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.walks import origin_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class KeptRecords:
    """The records of a stream, kept on disk by columns. If a kept block is lost, whoever reads fails: nothing is taken again."""

    frame: DataFrame
    _blocks: Any = field(repr=False)

    @classmethod
    def of(cls, records: DataFrame) -> Self:
        """Take the records once, now, and keep them.

        Columns are Spark's own cache, without a name in the session. As rows, Java's serializer writes and reads each record by
        itself, and each state reads all columns.
        """
        from pyspark.sql import DataFrame

        spark: Any = records.sparkSession
        relation = _by_columns(spark, records)
        frame = DataFrame(spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, relation), spark)
        frame.count()
        blocks = relation.cacheBuilder().cachedColumnBuffers()
        blocks.localCheckpoint()
        blocks.checkpointData().get().checkpoint()  # the plan of the records is forgotten: a lost block cannot be made again
        return cls(frame, blocks)

    def only(self, partitions: Collection[str] | None) -> DataFrame:
        """Return all records, or the records with some values of `PARTITION_COLUMN`."""
        from pyspark.sql import functions as F

        return self.frame if partitions is None else self.frame.filter(F.col(PARTITION_COLUMN).isin(*partitions))

    def free(self) -> None:
        """Release the disk. Do nothing if Spark has ended."""
        with suppress(Exception):
            self._blocks.unpersist(False)


def _by_columns(spark: Any, records: DataFrame) -> Any:
    """Return the plan of the records in Spark's cache, on its disks alone. Nothing is taken yet."""
    from pyspark import StorageLevel

    jvm = spark._jvm
    cache = getattr(getattr(jvm.org.apache.spark.sql.execution.columnar, "InMemoryRelation$"), "MODULE$")
    level = spark.sparkContext._getJavaStorageLevel(StorageLevel.DISK_ONLY)
    return cache.apply(level, records._jdf.queryExecution(), jvm.scala.Option.empty())


@dataclass(frozen=True, slots=True)
class SharedJoins:
    """The joins that several states are made of, by identity: each join is made once an attempt, when first asked for."""

    shared: Collection[int] = ()
    _kept: dict[int, KeptRecords] = field(default_factory=dict)

    @classmethod
    def of(cls, aggregates: Iterable[PersistentAggregate]) -> Self:
        """Return the joins of some states."""
        times = Counter(node for each in aggregates for node in {id(join) for join in _joins(each.stream)})
        return cls({node for node, number in times.items() if number > 1})

    def once(self, node: Join, make: Callable[[], DataFrame]) -> DataFrame:
        """Return the joined records. Take the records of a shared join now, unless taken before."""
        if id(node) not in self.shared:
            return make()
        if id(node) not in self._kept:
            self._kept[id(node)] = KeptRecords.of(make())
        return self._kept[id(node)].frame

    def close(self) -> None:
        """Release the disk."""
        for kept in self._kept.values():
            kept.free()


def _joins(node: Node) -> Iterator[Join]:
    match origin_of(node):
        case Merged(inputs=inputs):
            for each in inputs:
                yield from _joins(each)
        case Join(left=left, right=right) as join:
            yield join
            yield from _joins(left)
            yield from _joins(right)
