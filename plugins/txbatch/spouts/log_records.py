"""The records of a `PartitionedLog`, as Spark's tasks read them: each range whole, or refused."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import BadText, RecordsGone
from txbatch.core.sources.emitter import PARTITION_COLUMN

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

# A range to read: its label, the partition, the start, the end, and the segments that may hold its records.
PlannedRange = tuple[str, str, int, int, Sequence[str]]
# As many as Spark puts into a batch of Arrow; a range is not parted.
RECORDS_TOGETHER = 10_000
_COLUMNS = "label: string, partition: string, start: bigint, end: bigint, segments: array<string>"


@dataclass
class Place:
    """Where the last read line ended: the next range may begin there, and need not read its segment from the beginning."""

    path: Path = Path()
    offset: int = 0
    byte: int = 0

    def before(self, path: Path, start: int) -> tuple[int, int]:
        """Return the offset and the byte at which to begin, for the records of a segment from `start` on."""
        usable = path == self.path and self.offset <= start
        return (self.offset, self.byte) if usable else (int(path.stem), 0)


def segments_of(segments: Sequence[Path], start: int, end: int) -> list[str]:
    """Return the segments that may hold records from `start` to before `end`.

    >>> segments_of([Path(name) for name in ("0.log", "3.log", "6.log")], 4, 6)
    ['3.log']
    """
    firsts = [int(path.stem) for path in segments]
    return [str(path) for path in segments[max(bisect_right(firsts, start) - 1, 0) : bisect_left(firsts, end)]]


def tasks_of(spark: SparkSession, ranges: Sequence[PlannedRange], partitions: int) -> DataFrame:
    """Return a row for each task of Spark, with the task's ranges: ranges of one partition stay together, in order."""
    in_order = sorted(ranges, key=lambda each: each[1:3])
    each = max(-(-len(ranges) // max(partitions, spark.sparkContext.defaultParallelism)), 1)
    rows = [(number, in_order[number : number + each]) for number in range(0, len(in_order), each)]
    found = spark.createDataFrame(rows, f"task: int, ranges: array<struct<{_COLUMNS}>>", verifySchema=False)
    return found.repartition(max(len(rows), 1), "task")


def read_ranges(nul: bool, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records of the ranges in each row of `tasks_of`. Small ranges go together: each batch of Arrow has its price."""
    place, columns = Place(), _columns()
    for range_ in (each for batch in batches for row in batch.to_pylist() for each in row["ranges"]):
        records = list(records_of(range_, nul, place))
        columns[0] += [offset for offset, _ in records]
        columns[1] += [line for _, line in records]
        columns[2] += [range_["label"]] * len(records)
        if len(columns[0]) >= RECORDS_TOGETHER:
            yield _batch(columns)
            columns = _columns()
    if columns[0]:
        yield _batch(columns)


def _columns() -> list[list[Any]]:
    return [[], [], []]


def _batch(columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    import pyarrow as pa

    types = (pa.int64(), pa.string(), pa.string())
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
    return pa.record_batch(arrays, names=["record_offset", "line", PARTITION_COLUMN])


def records_of(range_: Mapping[str, Any], nul: bool, place: Place) -> Iterator[tuple[int, str]]:
    """Yield the records of a range, in order. Raise RecordsGone if records are missing by now, BadRecord for a record that is
    no text.
    """
    expected, end = range_["start"], range_["end"]
    for path in map(Path, range_["segments"]):
        for offset, line in _lines_between(path, range_["start"], end, place):
            if offset != expected:
                break
            yield offset, _text(line, path, offset, nul)
            expected += 1
    if expected != end:
        raise RecordsGone(
            f"records {expected} to {end} of partition {range_['partition']!r} are gone since they were planned; restore "
            "them, or abort the batch: the next plan says what is left"
        )


def count_lines(segment: Path) -> int:
    """Return the number of records of a segment; a last line without an end is still being written."""
    with segment.open("rb") as file:
        return sum(line.endswith(b"\n") for line in file)


def _lines_between(path: Path, start: int, end: int, place: Place) -> Iterator[tuple[int, bytes]]:
    """Yield the whole lines of a segment from offset `start` to before `end`, and note the place behind each line."""
    offset, byte = place.before(path, start)
    with path.open("rb") as file:
        file.seek(byte)
        for line in file:
            if offset >= end or not line.endswith(b"\n"):
                return
            if offset >= start:
                yield offset, line[:-1]
            offset, byte = offset + 1, byte + len(line)
            place.path, place.offset, place.byte = path, offset, byte


def _text(line: bytes, segment: Path, offset: int, nul: bool) -> str:
    """Return a record as text. Raise BadRecord for invalid UTF-8, and for U+0000 unless `nul` is true."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        byte = f"0x{line[error.start]:02x}"
        raise BadText(f"{segment} record {offset}: the byte {byte} is not UTF-8; write the log as UTF-8") from None
    if "\0" in text and not nul:
        raise BadText(
            f"{segment} record {offset} holds U+0000, as UTF-16 does; write the log as UTF-8, or say nul=True of its spout if "
            "records may hold U+0000"
        )
    return text
