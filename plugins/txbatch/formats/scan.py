"""Scans text files: ranges of whole lines, decoded strictly by Python tasks, filtered before the JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from txbatch.core.errors import RUN_AGAIN, BadRecord, BadText
from txbatch.core.records.fields import Field
from txbatch.core.records.sql import spark_name
from txbatch.formats import contents, csv_lines, json_lines
from txbatch.formats.contents import Block
from txbatch.formats.folders import FolderTimes, given_values, not_of_folder, outside
from txbatch.formats.misfit import BadValue, Misfit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txbatch.formats.late_counts import Counts, LateCounter

TASK_BYTES_MAX = 128_000_000
TASK_BYTES_MIN = 4_000_000
DECODERS: Mapping[str, Callable[..., pa.RecordBatch]] = {"csv": csv_lines.decode, "json": json_lines.decode}


@dataclass(frozen=True, slots=True)
class Range:
    """The lines of a file begun in a range of bytes; of a compressed file all lines."""

    path: Path
    start: int
    end: int | None
    planned: int


@dataclass(frozen=True, slots=True)
class Times:
    """Right times, from `first` to before `last`, and wanted times, from `start` to before `end`.

    `folder` is the name of the file's folder, with the times that the file may hold.
    """

    field: str
    first: datetime
    last: datetime
    start: datetime
    end: datetime
    folder: tuple[str, datetime, datetime] | None = None

    def wanted(self, values: pa.Array) -> pa.Array:
        """Return a mask. Raise BadValue for a null time, or a time out of bounds."""
        if values.null_count:
            index = pc.index(pc.is_null(values), True).as_py()
            raise BadValue(index, "is no time, so the record is in no interval; mend the source")
        first, last, start, end = (
            pa.scalar(each, values.type) for each in (self.first, self.last, self.start, self.end)
        )
        right = pc.and_(pc.greater_equal(values, first), pc.less(values, last))
        if pc.all(right).as_py() is False:
            raise BadValue(pc.index(right, False).as_py(), f"is {_outside(self.first, self.last)}")
        if self.folder is not None:
            name, *span = self.folder
            if (index := outside(values, *span)) is not None:
                raise BadValue(index, not_of_folder(name))
        return pc.and_(pc.greater_equal(values, start), pc.less(values, end))


@dataclass(frozen=True, slots=True)
class Format:
    """How to read the records of files, and which records. Names of folders below `root` may have values of fields."""

    name: str
    fields: Sequence[Field]
    options: Mapping[str, Any]
    times: Times | None = None
    root: Path | None = None
    late: LateCounter | None = None

    def read(self, range_: Range) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range. BadRecord names the file, line, field and value of a misfit."""
        own, given = self._of(range_.path)
        counts: Counts = {}
        yield from own._read(range_, given, own._wanted(range_, counts))
        if self.late is not None:
            self.late.note(range_.path, range_.start, counts)

    def _of(self, path: Path) -> tuple[Format, Mapping[str, Any]]:
        """Return the format of one file, and the values of fields in the names of the file's folders."""
        if self.root is None or not (self.options.get("folders") or self.options.get("folder_time")):
            return self, {}
        name = path.relative_to(self.root).as_posix()
        given = given_values(self.root, name, self.fields, self.options["folders"])
        options = {**self.options, "optional": (*self.options["optional"], *given)}
        return replace(self, options=options, times=self._times_of(name)), given

    def _times_of(self, name: str) -> Times | None:
        """Return the times, with those that a file may hold by the name of its folder."""
        of = FolderTimes.of(self.options)
        if of is None or self.times is None or (span := of.span(name)) is None:
            return self.times
        return replace(self.times, folder=(of.named(name), *span))

    def _wanted(self, range_: Range, counts: Counts) -> Callable[[pa.Array], pa.Array] | None:
        """Return the function to choose records by time, and to count late records; None without times."""
        wanted = self.times.wanted if self.times else None
        if wanted is None or self.late is None:
            return wanted
        return self.late.watching(range_.path, range_.start, wanted, counts)

    def _read(
        self, range_: Range, given: Mapping[str, Any], wanted: Callable[[pa.Array], pa.Array] | None
    ) -> Iterator[pa.RecordBatch]:
        keep = self.times and (self.times.field, wanted)
        decode = partial(DECODERS[self.name], given=given)
        blocks = self._blocks(range_.path, range_.start, range_.end, range_.planned)
        if self.options.get("header"):
            columns, blocks = self._columns(range_, blocks)
            decode = partial(decode, columns=columns)
        elif self.name == "csv" and given:
            decode = partial(decode, columns=[field.name for field in self.fields if field.name not in given])
        for block in blocks:
            if block.data:
                with_line = partial(decode, block.data, self.fields, self.options, keep)
                yield _named(block, with_line, self._ways)

    def header(self, range_: Range) -> list[str] | None:
        """Return the columns that a file's header names; None without a header."""
        own, _ = self._of(range_.path)
        blocks = own._blocks(range_.path, 0, 1, range_.planned)
        return own._columns(range_, blocks)[0] if self.options.get("header") else None

    def _ways(self, misfit: Misfit) -> str:
        """Return further ways out for a misfit cell; a cell that is no time of an interval can be quarantined."""
        if misfit.field is None:
            return "" if "mend the file" in misfit.reason else f"; mend the file, then {RUN_AGAIN}"
        string = any((field.name, field.type) == (misfit.field, "string") for field in self.fields)
        by_time = self.times is not None and self.times.field == misfit.field
        kept = self.name == "csv" and not string and not by_time
        quarantined = "; or declare the field a string and quarantine it" if kept else ""
        return f"{quarantined}; or mend the file, then {RUN_AGAIN}"

    def _columns(self, range_: Range, blocks: Iterator[Block]) -> tuple[list[str] | None, Iterator[Block]]:
        """Return the columns of the header, and the blocks without the header."""
        if range_.start:
            head = next(self._blocks(range_.path, 0, 1, range_.planned))
            return _named(head, lambda: csv_lines.header(head.data, self.fields, self.options))[0], blocks
        first = next(blocks, None)
        if first is None:
            return None, blocks
        columns, end = _named(first, lambda: csv_lines.header(first.data, self.fields, self.options))
        return columns, _chained(_rest(first, end), blocks)

    def _blocks(self, path: Path, start: int, end: int | None, planned: int) -> Iterator[Block]:
        """Yield blocks of whole records, in UTF-8."""
        blocks = contents.blocks(path, start, end, planned=planned)
        encoding = self.options.get("encoding", "UTF-8")
        if encoding.upper().replace("_", "-") not in ("UTF-8", "UTF8"):
            blocks = (_in_utf8(block, encoding) for block in blocks)
        return _joined(blocks, self.options) if self.options.get("multiline") else blocks


def scan(spark: SparkSession, files: Mapping[Path, int], format_: Format) -> DataFrame:
    """Return the records of files with the planned sizes. Nothing is read before the DataFrame is."""
    apart = format_.late.arrived if format_.late else {}
    whole = bool(format_.options.get("multiline"))
    tasks = tasks_of(files, spark.sparkContext.defaultParallelism, whole=whole, apart=apart)
    schema = ", ".join(f"{spark_name(field.name)} {field.type}" for field in format_.fields)
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(partial(_read, tasks, format_), schema)


def tasks_of(
    files: Mapping[Path, int], cores: int, *, whole: bool = False, apart: Mapping[Path, int] = MappingProxyType({})
) -> list[list[Range]]:
    """Return the ranges for each task: about equal bytes, a large file cut unless compressed or `whole`.

    A file in `apart` is also cut at the given byte.
    """
    most = min(TASK_BYTES_MAX, max(TASK_BYTES_MIN, -(-sum(files.values()) // max(cores, 1))))
    tasks: list[list[Range]] = [[]]
    room = most
    for path, size in files.items():
        cut = size > most and not whole and contents.splittable(path)
        ranges = list(_cut(path, size, most)) if cut else [Range(path, 0, None, size)]
        for range_ in _cut_at(ranges, apart.get(path, 0)):
            taken = (size if range_.end is None else range_.end) - range_.start
            if tasks[-1] and taken > room:
                tasks.append([])
                room = most
            tasks[-1].append(range_)
            room -= taken
    return tasks


def _cut(path: Path, size: int, most: int) -> Iterator[Range]:
    pieces = -(-size // most)
    ends = [size * number // pieces for number in range(pieces + 1)]
    return (Range(path, start, end, size) for start, end in pairwise(ends))


def _cut_at(ranges: Sequence[Range], at: int) -> Iterator[Range]:
    """Yield ranges of a file, with the range around a byte in two. Nothing is cut at the beginning."""
    for each in ranges:
        end = each.planned if each.end is None else each.end
        if each.start < at < end:
            yield replace(each, end=at)
            yield replace(each, start=at, end=end)
        else:
            yield each


def _read(
    tasks: Sequence[Sequence[Range]], format_: Format, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run a task of Spark: the task's number is the only row."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for range_ in tasks[number]:
                yield from format_.read(range_)


def _named(block: Block, make: Callable[[], Any], ways: Callable[[Misfit], str] = lambda misfit: "") -> Any:
    """Return the records of a block. An error names the misfit's file and line, and further ways out."""
    try:
        return make()
    except Misfit as misfit:
        raise _bad_record(block, misfit, ways(misfit)) from None


def _bad_record(block: Block, misfit: Misfit, ways: str = "") -> BadRecord:
    line = (block.first_line or 1 + _newlines(block.path, block.offset)) + misfit.line
    return misfit.kind(f"{block.path}, line {line}{': ' if misfit.field is None else ', '}{misfit}{ways}")


def _newlines(path: Path, end: int) -> int:
    """Count the line ends before a place, only to name a line."""
    count = 0
    with path.open("rb") as file:
        while end and (data := file.read(min(end, contents.CHUNK_BYTES))):
            count, end = count + data.count(b"\n"), end - len(data)
    return count


def _in_utf8(block: Block, encoding: str) -> Block:
    if block.offset == len(contents.MARK):
        raise BadText(
            f"{block.path} begins with the mark of UTF-8, and encoding={encoding!r} is given; remove encoding="
        )
    try:
        return replace(block, data=block.data.decode(encoding).encode())
    except UnicodeError as error:
        at = getattr(error, "start", 0)
        wrong = Misfit(
            block.data.count(b"\n", 0, at),
            f"the byte 0x{block.data[at]:02x} is not {encoding}; mend encoding=",
            kind=BadText,
        )
        raise _bad_record(block, wrong) from None


def _joined(blocks: Iterator[Block], options: Mapping[str, Any]) -> Iterator[Block]:
    """Yield blocks that end with records, from blocks that end with lines."""
    quote = options["quote"].encode()
    begun: list[Block] = []  # what a record has that has not ended
    for block in blocks:
        within = bool(quote) and sum(each.data.count(quote) for each in begun) % 2 == 1
        end = csv_lines.whole_records(block.data, options, within=within)
        if end:
            yield _one([*begun, replace(block, data=block.data[:end])])
            begun = []
        if end < len(block.data):
            begun.append(_rest(block, end))
        if sum(len(each.data) for each in begun) > contents.RECORD_BYTES_MAX:
            raise BadRecord(
                f"{block.path}, line {begun[0].first_line}: a quote is not closed within 64 MB; mend the file, then {RUN_AGAIN}"
            )
    if begun:
        yield _one(begun)


def _one(blocks: Sequence[Block]) -> Block:
    """Return a single block for several consecutive blocks."""
    return replace(blocks[0], data=b"".join(block.data for block in blocks))


def _rest(block: Block, end: int) -> Block:
    """Return the block without the beginning up to `end`, a line's end."""
    line = None if block.first_line is None else block.first_line + block.data.count(b"\n", 0, end)
    return replace(block, data=block.data[end:], offset=block.offset + end, first_line=line)


def _chained(first: Block, blocks: Iterator[Block]) -> Iterator[Block]:
    yield first
    yield from blocks


def _outside(first: datetime, last: datetime) -> str:
    low, high = first.date().isoformat(), last.date().isoformat()
    return f"not between {low} and {high}; mend the source, or say plausible=({low!r}, {high!r}) with other bounds"
