"""Records that Spark keeps on its disks for an attempt: a source is read once, and a join of several states is made once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from txbatch.core.sources.emitter import PARTITION_COLUMN
from txbatch.core.topology.nodes import Join, Merged, Node
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.walks import origin_of

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
