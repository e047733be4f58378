"""How many records a state read of a stream, counted while it reads them: a source may change after the audit (R7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation


@dataclass(frozen=True, slots=True)
class ObservedRecords:
    """Records that are counted whenever they are read. Spark reads `frame` for that row by row, in its slower way."""

    records: DataFrame
    frame: DataFrame
    observation: Observation

    @classmethod
    def of(cls, records: DataFrame) -> ObservedRecords:
        """Return the records with a counter, to be read once."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        observation = Observation()
        return cls(records, records.observe(observation, F.expr("count(1) AS records")), observation)

    def are(self, number: int) -> bool:
        """True if as many were read. Where Spark counted others, as it may of a stage that it ran twice or left out, ask anew."""
        return number == self._observed() or self.records.count() == number

    def _observed(self) -> int | None:
        """Return what Spark counted, or None. `Observation.get` would wait without end where Spark had nothing to read."""
        future = self.observation._jo.future()  # type: ignore[union-attr]
        row = future.value().get().get() if future.isCompleted() else None
        return row.getLong(0) if row is not None and row.length() else None
