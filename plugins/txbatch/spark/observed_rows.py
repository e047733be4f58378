"""Counts the records a state reads of a stream, during reading: a source may change after the audit (R7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation


@dataclass(frozen=True, slots=True)
class ObservedRecords:
    """Records counted during each reading. Spark reads `frame` row by row for the count, in a slower way."""

    records: DataFrame
    frame: DataFrame
    observation: Observation

    @classmethod
    def of(cls, records: DataFrame) -> ObservedRecords:
        """Return the records with a counter, for a single reading."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        observation = Observation()
        return cls(records, records.observe(observation, F.expr("count(1) AS records")), observation)

    def are(self, number: int) -> bool:
        """Return whether `number` records were read. If Spark's count differs, as after a stage run twice or left out, count
        again.
        """
        return number == self._observed() or self.records.count() == number

    def _observed(self) -> int | None:
        """Return Spark's count, or None. `Observation.get` would wait without end if Spark had nothing to read."""
        future = self.observation._jo.future()  # type: ignore[union-attr]
        row = future.value().get().get() if future.isCompleted() else None
        return row.getLong(0) if row is not None and row.length() else None
