"""Counts late records in files of partials, and rewrites files without late records if late records do not count (R25)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txbatch.core.topology.persistent_aggregate import RECORDS_COLUMN, PersistentAggregate
from txbatch.core.windows.watermark import MERGE


@dataclass(frozen=True, slots=True)
class Late:
    """The late partials of a state: the field `start` is before the time `before`, in microseconds since 1970."""

    start: str
    before: int
    counts: bool

    @classmethod
    def of(cls, aggregate: PersistentAggregate, watermark: Mapping[str, int]) -> Late | None:
        """Return the rule for late partials by a plan's watermarks; None if lateness cannot be decided."""
        before = aggregate.late_before(watermark)
        if aggregate.window is None or before is None:
            return None
        return cls(aggregate.window.name, before, counts=aggregate.late == MERGE)

    def found(self, content: bytes) -> tuple[int, bytes]:
        """Return the number of late records in a file's partials, and the file with only the counting partials."""
        partials = pq.ParquetFile(pa.BufferReader(content))
        known = partials.read([self.start, RECORDS_COLUMN])
        late = pc.less(known[self.start].cast(pa.timestamp("us", "UTC")).cast(pa.int64()), self.before)
        number = pc.sum(known[RECORDS_COLUMN].filter(late)).as_py() or 0
        if self.counts or not number:
            return number, content
        sink = pa.BufferOutputStream()
        pq.write_table(partials.read().filter(pc.invert(late)), sink)
        return number, sink.getvalue().to_pybytes()
