"""Bounds the partials of several batches in the driver's memory: by rows and by bytes, reported by batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txbatch.core.records.fields import KEY_TEXTS, array_of
from txbatch.core.records.sql import spark_name
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.spark.within_batch import OF_FIELD

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# What a value of a type that is always as long takes, at most, and what a text of a key takes, about.
_BYTES, _KEY_TEXT_BYTES = 16, 64


class TooMuch(Exception):
    """The partials of several batches are too much for the driver: `shares` has each batch's share of the driver's bound."""

    def __init__(self, what: str, shares: Mapping[int, float]) -> None:
        super().__init__(f"{what}: {sum(shares.values()):.1f} times the partials that come to the driver at once")
        self.shares = shares


@dataclass(frozen=True, slots=True)
class DriverBound:
    """The bound of a state's partials in the driver at once: rows and bytes."""

    aggregate: PersistentAggregate
    rows: int
    bytes: int

    def taken(self, frame: DataFrame, what: str) -> pa.Table:
        """Return the partials of several batches. Raise TooMuch if the partials exceed the bound."""
        if self._varies:
            return self._weighed(frame, what)
        most = self._most
        found = frame.limit(most + 1).toArrow()
        if found.num_rows > most:
            raise TooMuch(what, self._shares(frame))
        return found

    def _weighed(self, frame: DataFrame, what: str) -> pa.Table:
        """Return the partials like `taken` if rows may have any length, like sketches: rows are weighed first."""
        with _persist(frame):
            shares = self._shares(frame)
            if sum(shares.values()) > 1:
                raise TooMuch(what, shares)
            return frame.toArrow()

    def _shares(self, frame: DataFrame) -> dict[int, float]:
        from pyspark.sql import functions as F

        typed = [(key.name, key.type) for key in self.aggregate.keys]
        typed += [(column.name, column.partial.type) for column in self.aggregate.partial_columns]
        size = " + ".join(_size(spark_name(name), type_) for name, type_ in typed) or "0"
        found = frame.groupBy(OF_FIELD.name).agg(F.expr("count(1)"), F.expr(f"sum(cast({size} as bigint))")).collect()
        return {int(txid): max(rows / self._most, size / self.bytes) for txid, rows, size in found}

    @property
    def _varies(self) -> bool:
        types = (each.partial.type for each in self.aggregate.partial_columns)
        return any(type_ in KEY_TEXTS or array_of(type_) is not None for type_ in types)

    @property
    def _most(self) -> int:
        """The largest number of rows; for rows of any length, bytes are compared separately."""
        if self._varies:
            return self.rows
        texts = sum(key.type in KEY_TEXTS for key in self.aggregate.keys)
        columns = len(self.aggregate.keys) + len(self.aggregate.partial_columns) + 1
        return max(1, min(self.rows, self.bytes // (_BYTES * columns + _KEY_TEXT_BYTES * texts)))


@contextmanager
def _persist(frame: DataFrame) -> Iterator[None]:
    """Context manager. Let Spark keep the rows during several looks."""
    frame.persist()
    try:
        yield
    finally:
        frame.unpersist()


def _size(name: str, type_: str) -> str:
    """Return the SQL of a value's number of bytes."""
    element = array_of(type_)
    if type_ in KEY_TEXTS:
        return f"coalesce(octet_length({name}), 0)"
    if element in KEY_TEXTS:
        return f"coalesce(aggregate({name}, 0L, (a, x) -> a + coalesce(octet_length(x), 0) + {_BYTES}), 0)"
    return f"coalesce(size({name}), 0) * {_BYTES}" if element else str(_BYTES)
