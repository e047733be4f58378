"""Counts late records during a scan: records of some intervals, in new files and in new parts of grown files.

The counts go from Spark's tasks to the driver by an accumulator, keyed by range: a range scanned twice counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from txbatch.core.batch.came_late import Counted, Late
from txbatch.core.records.fields import Field

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator, AccumulatorParam
    from pyspark.sql import SparkSession

# The most tasks that count in Parquet files.
TASKS_MAX = 200
# By position, how many records; by file and first byte of a range.
Counts = dict[int, int]
Places = dict[tuple[str, int], Counts]


class _ByPlace:
    """Keeps the counts of each place: an AccumulatorParam of Spark."""

    def zero(self, value: Places) -> Places:
        return {}

    def addInPlace(self, value1: Places, value2: Places) -> Places:
        value1.update(value2)
        return value1


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals in order of time, to count times."""

    intervals: Sequence[Counted]

    def count(self, times: pa.Array) -> Counts:
        """Return the number of times in each interval, by position; without empty intervals."""
        if not len(times) or not self.intervals:
            return {}
        moments = (
            times.drop_null().cast(pa.timestamp("us", getattr(times.type, "tz", None))).cast(pa.int64()).to_numpy()
        )
        starts, ends = (np.array([each[place] for each in self.intervals], dtype=np.int64) for place in (1, 2))
        places = np.searchsorted(starts, moments, side="right") - 1
        places = places[(places >= 0) & (moments < ends[places])]
        found, numbers = np.unique(places, return_counts=True)
        return {self.intervals[at][0]: int(number) for at, number in zip(found, numbers, strict=True)}


@dataclass(frozen=True, slots=True)
class LateCounter:
    """Counts the records of intervals in files, each from a byte on; `found` takes the counts."""

    intervals: Intervals
    arrived: Mapping[Path, int]
    found: Accumulator[Places] = field(compare=False)

    @classmethod
    def of(cls, spark: SparkSession, intervals: Sequence[Counted], arrived: Mapping[Path, int]) -> LateCounter:
        """Return a counter for the scans of an attempt."""
        by_place = cast("AccumulatorParam[Places]", _ByPlace())
        return cls(Intervals(intervals), arrived, spark.sparkContext.accumulator({}, by_place))

    def watching(
        self, path: Path, start: int, wanted: Callable[[pa.Array], pa.Array], counts: Counts
    ) -> Callable[[pa.Array], pa.Array]:
        """Return `wanted`. In a new part of a file, the returned function also counts into `counts`."""
        if start < self.arrived.get(path, start + 1):
            return wanted

        def count(times: pa.Array) -> pa.Array:
            mask = wanted(times)  # a time that is in no interval at all is refused first
            for position, number in self.intervals.count(times).items():
                counts[position] = counts.get(position, 0) + number
            return mask

        return count

    def note(self, path: Path, start: int, counts: Counts) -> None:
        """Tell the driver the counts of a range."""
        if counts:
            self.found.add({(str(path), start): counts})

    def late(self, name_of: Callable[[Path], str]) -> dict[int, dict[str, Late]]:
        """Return the late records, by position and file."""
        found: dict[int, dict[str, Late]] = {}
        for (place, _), counts in sorted(self.found.value.items()):
            path = Path(place)
            for position, number in counts.items():
                files, name = found.setdefault(position, {}), name_of(path)
                before = files[name].records if name in files else 0
                files[name] = Late(before + number, self.arrived[path])
        return found


def count_in_parquet(
    spark: SparkSession, folder: Path, names: Sequence[str], time: Field, intervals: Sequence[Counted]
) -> dict[int, dict[str, Late]]:
    """Return the number of records of intervals in new Parquet files, by position and file. Only the time's column is read."""
    files = spark.createDataFrame([(name,) for name in names], "name string").repartition(min(len(names), TASKS_MAX))
    scan = _Parquet(str(folder.resolve()), time, Intervals(intervals))
    rows = files.mapInArrow(scan, "name string, position bigint, records bigint").collect()
    found: dict[int, dict[str, Late]] = {}
    for row in rows:
        found.setdefault(row["position"], {})[row["name"]] = Late(row["records"], 0)
    return found


@dataclass(frozen=True, slots=True)
class _Parquet:
    """Counts the records of a task's files, by their names."""

    folder: str
    time: Field
    intervals: Intervals

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name in batch.column(0).to_pylist():
                yield self._counted(name)

    def _counted(self, name: str) -> pa.RecordBatch:
        from txbatch.formats.parquet_files import read_batches  # as late as its scan needs it

        counts: Counts = {}
        for records in read_batches(Path(self.folder), name, [self.time]):
            for position, number in self.intervals.count(records.column(0)).items():
                counts[position] = counts.get(position, 0) + number
        columns: dict[str, Any] = {
            "name": pa.array([name] * len(counts), pa.string()),
            "position": pa.array(list(counts), pa.int64()),
            "records": pa.array(list(counts.values()), pa.int64()),
        }
        return pa.record_batch(columns)
