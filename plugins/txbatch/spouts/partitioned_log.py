"""PartitionedLogSpout: append-only logs with partitions and offsets, the stand-in for a broker on one machine.

<root>/<partition>/00000000000000000000.log    a segment, named by the offset of its first record; a line is a record
<root>/<partition>/OFFLINE                      the partition is away: see `PartitionedLog.take_away`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from txbatch.core.batch.transaction import Metadata, TransactionAttempt
from txbatch.core.errors import (
    AmbiguousFiles,
    InvalidOption,
    PartitionUnreadable,
    SourceMissing,
    TransientError,
)
from txbatch.core.sources.emitter import PARTITION_COLUMN
from txbatch.core.sources.labels import labelled, partitions_of
from txbatch.core.sources.spout import OpaquePartitionedSpout, PartitionedSpout
from txbatch.formats.listing import absolute, check_owner
from txbatch.spouts.log_records import count_lines, read_ranges, segments_of, tasks_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OFFLINE = "OFFLINE"
SEGMENT_RECORDS = 1_000


@dataclass(frozen=True, slots=True)
class PartitionedLog:
    """The log: append records, take partitions away and give partitions back."""

    root: Path
    segment_records: int = SEGMENT_RECORDS
    foreign_links: bool = False

    def append(self, partition: str, records: Iterable[str]) -> None:
        """Append records without line breaks; possible also while the partition is away for readers."""
        folder = self.root / partition
        folder.mkdir(parents=True, exist_ok=True)
        kept = sorted(folder.glob("*.log"))
        first, offset = int(kept[-1].stem) if kept else 0, _end(kept)
        for record in records:
            if offset >= first + self.segment_records:
                first = offset
            with _segment(folder, first).open("a", encoding="utf-8") as segment:
                segment.write(record + "\n")
            offset += 1

    def delete_before(self, partition: str, offset: int) -> int:
        """Retention: forget the segments with only records before an offset. Return the oldest offset kept."""
        folder = self.root / partition
        kept = sorted(folder.glob("*.log"))
        end = _end(kept)
        if offset >= end > 0:
            _segment(folder, end).touch()  # the offsets go on when nothing is left
        starts = [*(int(path.stem) for path in kept), end]
        for path, next_start in zip(kept, starts[1:], strict=True):
            if int(path.stem) < next_start <= offset:
                path.unlink()
        return int(min(folder.glob("*.log")).stem) if kept else 0

    def take_away(self, partition: str) -> None:
        """Begin an outage: the partition is known, and cannot be read."""
        (self.root / partition / OFFLINE).touch()

    def give_back(self, partition: str) -> None:
        """End the outage."""
        (self.root / partition / OFFLINE).unlink(missing_ok=True)

    def partitions(self) -> list[str]:
        """Return all partitions, also partitions away. Raise TransientError if the log is no folder, or a folder of files
        alone.
        """
        if not self.root.is_dir():
            raise SourceMissing(f"{self.root} is not a folder that can be read; create it or mend the path")
        found = sorted(self.root.iterdir())
        folders = [path.name for path in found if path.is_dir()]
        if found and not folders:
            raise _odd(found[0])
        return folders

    def start(self, partition: str) -> int:
        """Return the offset of the oldest record kept."""
        return self.bounds(partition)[0]

    def end(self, partition: str) -> int:
        """Return the offset after the newest record. Raise PartitionUnreadable if the partition is away."""
        return self.bounds(partition)[1]

    def bounds(self, partition: str) -> tuple[int, int]:
        """Return the offset of the oldest record kept, and the offset after the newest, by one look."""
        segments = self.segments(partition)
        return (int(segments[0].stem) if segments else 0), _end(segments)

    def segments(self, partition: str) -> list[Path]:
        """Return the segment files in order. Raise PartitionUnreadable if the partition is away, TransientError for odd file
        names.

        Raise TransientError also for a link out of `root` to another user's files, unless `foreign_links` is true.
        """
        folder = self.root / partition
        if (folder / OFFLINE).exists():
            raise PartitionUnreadable(f"partition {partition!r} of {self.root} is away")
        found = list(folder.glob("*.log"))
        others = [path for path in found or folder.iterdir() if path.suffix != ".log" or not path.stem.isdecimal()]
        if others:
            raise _odd(min(others))
        for path in filter(Path.is_symlink, (folder, *found)):
            check_owner(str(path), str(self.root), self.foreign_links)
        return sorted(found, key=lambda path: int(path.stem))


class PartitionedLogSpout(PartitionedSpout):
    """Reads a `PartitionedLog`: at most `max_records` of each partition a batch, as `record_offset` and `line`.

    `root` has a folder for each partition, with the partition's segments: `00000000000000000000.log`, a file named by the
    offset of the first record, a line for each record. The next segment begins at the end of the segment before. Lines are
    only ever added to the last segment.

    Transactional: while a partition is away, the partition's batch fails and is retried (R12). Raise BadRecord if a record is
    no UTF-8, or holds U+0000, like UTF-16 taken for UTF-8, unless `nul` is true. A link out of `root` to another user's files
    is refused, unless `foreign_links` is true.
    """

    fields = "record_offset bigint, line string"
    _looked: dict[str, tuple[int, int]] | None = None  # while several txids are planned: the bounds of partitions

    def __init__(
        self, root: str | Path, *, max_records: int = 1_000_000, nul: bool = False, foreign_links: bool = False
    ) -> None:
        name = type(self).__name__
        if not isinstance(nul, bool):
            raise InvalidOption(f"{name}: nul={nul!r} is neither True nor False")
        self.log = PartitionedLog(absolute(root, name), foreign_links=foreign_links)
        self.max_records, self.nul = max_records, nul

    @property
    def identity(self) -> Metadata:
        return {"spout": type(self).__name__, "root": str(self.log.root)}

    def partitions(self) -> Sequence[str]:
        return self.log.partitions()

    def emit_partition_batch_new(
        self, attempt: TransactionAttempt, partition: str, last_metadata: Metadata | None
    ) -> Metadata | None:
        """Return the next range of offsets; a range no longer kept is marked as gone."""
        kept, end = self._bounds(partition)
        start = last_metadata["end"] if last_metadata else kept
        if start < kept:
            return {"start": start, "end": kept, "gone": f"{self.log.root / partition} keeps {kept} to {end}"}
        return {"start": start, "end": min(end, start + self.max_records)} if start != end else None

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Context manager. Plans in the block see the records that the first plan has found."""
        self._looked = {}
        try:
            yield
        finally:
            self._looked = None

    def _bounds(self, partition: str) -> tuple[int, int]:
        """Return the offset of the oldest record, and the offset after the newest."""
        if self._looked is not None and partition in self._looked:
            return self._looked[partition]
        found = self.log.bounds(partition)
        if self._looked is not None:
            self._looked[partition] = found
        return found

    def unreadable(self, metadata: Metadata) -> Mapping[str, str]:
        """Return why ranges cannot be read: their partition is away."""
        named, away = partitions_of(metadata), dict[str, str]()
        for name in dict.fromkeys(named.values()):
            try:
                self.log.segments(name)
            except PartitionUnreadable as error:
                away[name] = error.text
        return {label: away[name] for label, name in named.items() if name in away}

    def emit_partition_batch(
        self, spark: SparkSession, attempt: TransactionAttempt, partition: str, metadata: Metadata
    ) -> DataFrame:
        """Return the records of a range."""
        return self.emit_batch(spark, attempt, {"partitions": {partition: metadata}})

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        """Return the records of all ranges, in one scan: a task of Spark reads its ranges one after the other."""
        named = partitions_of(metadata)
        segments = {name: self.log.segments(name) for name in dict.fromkeys(named.values())}
        ranges = [
            (label, name, of["start"], of["end"], segments_of(segments[name], of["start"], of["end"]))
            for label, name in named.items()
            for of in (metadata["partitions"][label],)
        ]
        columns = f"{self.fields}, {PARTITION_COLUMN} string"
        return tasks_of(spark, ranges, len(segments)).mapInArrow(partial(read_ranges, self.nul), columns)

    @property
    def fusable(self) -> bool:
        """Return True unless a subclass reads batches in another way."""
        return type(self).emit_batch is PartitionedLogSpout.emit_batch

    def fused(self, plans: Sequence[Metadata]) -> Metadata | None:
        """Return all ranges of all batches, also several of a partition."""
        return labelled(plans) if self.fusable else None


class OpaquePartitionedLogSpout(PartitionedLogSpout, OpaquePartitionedSpout):
    """The opaque spout of a `PartitionedLog`: a partition away is left out, and the records come in a later batch (R13)."""


def _odd(path: Path) -> TransientError:
    return AmbiguousFiles(
        f"{path} is no segment of a partitioned log: it has a folder for each partition, with files named by the offset of their "
        "first record, such as 0/00000000000000000000.log; mend the layout"
    )


def _segment(folder: Path, first: int) -> Path:
    return folder / f"{first:020}.log"


def _end(segments: Sequence[Path]) -> int:
    return int(segments[-1].stem) + count_lines(segments[-1]) if segments else 0
