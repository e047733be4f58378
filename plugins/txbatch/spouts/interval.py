"""IntervalSpout: the records of files with a time in the run's interval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txbatch.core.batch.came_late import Counted, Late
from txbatch.core.batch.planned_files import Entry, planned_size
from txbatch.core.batch.transaction import Metadata, TransactionAttempt
from txbatch.core.errors import (
    InvalidOption,
    NoInterval,
    SourceMissing,
    TxbatchError,
)
from txbatch.core.records.declared import fields_ddl
from txbatch.core.records.fields import parse_fields
from txbatch.core.records.sql import spark_name
from txbatch.core.sources.batch_spout import PlainSpout
from txbatch.core.sources.by_time import PLAUSIBLE, bounds, check_days
from txbatch.core.sources.looking_back import LooksBackInFiles
from txbatch.formats import contents
from txbatch.formats import options as formats
from txbatch.formats.changes import check_not_replaced, is_replaced, line_begin, look, planned
from txbatch.formats.folders import FolderTimes, Span, moments, overlaps
from txbatch.formats.listing import absolute, check_links_of, check_size, files_below, hidden, name_pattern
from txbatch.formats.reading import Reading

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from txbatch.core.records.declared import Fields

# Text of so many bytes is scanned once for an attempt, however small its interval is: to keep that costs less than a second scan.
KEPT_BYTES = 100_000_000


class IntervalSpout(LooksBackInFiles, PlainSpout):
    """Reads the records below `root` (a folder or one file) with the field `time` in the run's interval.

    `fields` is the DDL of the records; `time` names a timestamp among the fields, in Parquet also a date. `options` are
    options of the `format`: csv, json (lines) or parquet.

    The plan names the files by FileSpout's listing rule, with the sizes; with the option `folder_time` the files whose folders'
    names may have times of the interval. A record that is not written as the fields are declared fails the attempt, named by
    file, line, field and value. A record without a time, or with a time outside the two `plausible` dates (from the first to
    before the second), fails too: the record would be in no interval. In a record of another interval only the shape and the
    time are checked. Of much text Spark keeps the interval's records for the attempt: the files, which may hold more, are
    scanned only once. Transactional: a record added to an interval later is not counted.

    Later attempts find such late records in new and grown files, and runs tell. With `lookback`, such as "3 days", a run
    counts intervals with late records again after the run's own commit, if not further back. With `folder_time`, the run compares
    the folders of these intervals with the plans: each file that came or grew is a reason to count again.
    """

    by_interval, reads_gaps = True, True
    metadata_bytes_max = 10_000_000  # it names every file, whatever the interval
    # While several txids are planned: the times that the present files may hold, and what was looked at, once somebody looked.
    _looked: tuple[dict[str, Span | None], dict[str, Entry | None]] | None = None

    def __init__(
        self,
        root: str | Path,
        fields: Fields,
        *,
        time: str,
        format: str = "csv",
        pattern: str = "*",
        options: Mapping[str, Any] | None = None,
        plausible: tuple[str, str] = PLAUSIBLE,
        foreign_links: bool = False,
        lookback: str | None = None,
    ) -> None:
        self.root, self.pattern = absolute(root, "IntervalSpout"), name_pattern(pattern, "IntervalSpout")
        self.fields, self.time, self.format = fields_ddl(fields), time, format
        self.options, self.plausible = formats.mapping(options), plausible
        self.foreign_links, self.lookback = foreign_links, lookback
        self._reading: Reading | None = None
        self._late: tuple[Sequence[Counted], Mapping[str, int]] = ((), {})  # intervals and files of an attempt's look
        self._check()

    def __getstate__(self) -> dict[str, Any]:
        """Return the spout's attributes without attributes of the process."""
        return {**self.__dict__, "_reading": None, "_looked": None, "_late": ((), {})}

    @property
    def identity(self) -> Metadata:
        files = {"root": str(self.root), "pattern": self.pattern}
        return {"spout": "IntervalSpout", **files, "time": self.time, "times": self._times()}

    def planned_bytes(self, metadata: Metadata) -> int:
        """Return the sum of the files' sizes."""
        return sum(map(planned_size, metadata["files"].values()))

    @property
    def fusable(self) -> bool:
        """Return True unless a subclass reads batches in another way."""
        return type(self).emit_batch is IntervalSpout.emit_batch

    def fused(self, plans: Sequence[Metadata]) -> Metadata | None:
        """Return the time from the first interval to the last; None if intervals overlap, or the plans name different files
        for a time.
        """
        intervals = sorted(tuple(map(datetime.fromisoformat, plan["interval"])) for plan in plans)
        apart = all(before[1] <= after[0] for before, after in pairwise(intervals))
        of_each = {"interval": None, "files": None}
        same = all({**plan, **of_each} == {**plans[0], **of_each} for plan in plans)
        files = self._files_of(plans) if self.fusable and apart and same else None
        if files is None:
            return None
        interval = [intervals[0][0].isoformat(), intervals[-1][1].isoformat()]
        return {**plans[0], "interval": interval, "files": files}

    def _files_of(self, plans: Sequence[Metadata]) -> Metadata | None:
        """Return the files of several plans; None if a plan lacks a file of the plan's times, or has another size."""
        if all(plan["files"] == plans[0]["files"] for plan in plans):
            return plans[0]["files"]  # type: ignore[no-any-return]
        if self._folder_time is None:
            return None
        files = {name: entry for plan in plans for name, entry in plan["files"].items()}
        spans: dict[Span | None, dict[str, Any]] = {}
        for name, entry in files.items():
            spans.setdefault(self._folder_time.span(name), {})[name] = entry
        for plan in plans:
            within = moments(plan["interval"])
            named = [each for span, each in spans.items() if overlaps(span, *within)]
            if plan["files"] != {name: entry for each in named for name, entry in each.items()}:
                return None
        return files

    def initialize_transaction(
        self, txid: int, prev_metadata: Metadata | None, curr_metadata: Metadata | None
    ) -> Metadata | None:
        """Return the run's interval, from `curr_metadata`, with the present files.

        Raise TransientError without files: an unmounted folder must not pass for a day without records.
        """
        if curr_metadata is None:
            raise NoInterval("IntervalSpout reads by time: the run has no interval")
        if self._time_type == "date":
            check_days("IntervalSpout", self.time, curr_metadata["interval"])
        return {**curr_metadata, "files": self._found(curr_metadata["interval"])}

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Context manager. All plans of the block name the same files."""
        self._looked = {}, {}
        try:
            yield
        finally:
            self._looked = None

    def _found(self, interval: Sequence[str]) -> Metadata:
        """Return the present files that may have times of the interval, in the form of a plan. Raise TransientError without
        files.
        """
        spans, looked = self._looked or ({}, {})
        spans.update(spans or self._spans())
        entry = look if self.format == "parquet" else planned
        if not any(spans.values()):  # no folder's name bounds the times of a file
            looked.update(looked or {name: found for name in spans if (found := entry(self._folder / name))})
            return looked
        within = moments(interval)
        names = [name for name, span in spans.items() if overlaps(span, *within)]
        looked.update({name: entry(self._folder / name) for name in names if name not in looked})
        return {name: looked[name] for name in names if looked[name]}

    def _spans(self) -> dict[str, Span | None]:
        """Return the present files, each with the times that the file may hold by its folder's name: None for all."""
        files, of = self._files(), self._folder_time
        if not files:
            raise SourceMissing(
                f"{self.root} has no file to read: none matches {self.pattern!r} whose name does not begin with '_' or '.'"
            )
        return {name: None if of is None else of.span(name) for name in files}

    def _within(self, names: Sequence[str], interval: Sequence[str]) -> list[str]:
        """Return the files that may have times of an interval, by the names of their folders."""
        of, within = self._folder_time, moments(interval)
        return [name for name in names if of is None or overlaps(of.span(name), *within)]

    @property
    def _folder_time(self) -> FolderTimes | None:
        return FolderTimes.of(self._options())

    def appeared(self, plan: Metadata) -> list[str]:
        """Return present files missing in the plan: the files' records of the interval are not counted."""
        try:
            files = [name for name in self._files() if name not in plan["files"]]
        except TxbatchError:
            return []
        return self._within(files, plan["interval"])

    def as_now(self, metadata: Metadata) -> Metadata:
        """Return a plan of the same interval with the present files. Raise TransientError without files."""
        return {**metadata, "files": self._found(metadata["interval"])}

    def gone(self, metadata: Metadata) -> list[str]:
        """Return the files a plan names that are gone by now."""
        there = set(self._files())
        return [name for name in metadata["files"] if name not in there]

    def lacking(self, before: Metadata, again: Metadata) -> list[str]:
        """Return the files of a plan that are gone by now, or that another plan does not read."""
        gone = self.gone(before)
        return [name for name in before["files"] if name in gone or name not in again["files"]]

    def passed_over(self, metadata: Metadata) -> str | None:
        """Return the newest file of a plan with its columns that are no fields, if these are passed over; None for none."""
        if self._options().get("extra") != "ignore":
            return None
        # With pyarrow; a job file needs Python alone.
        from txbatch.formats.passed_over import passed_over
        from txbatch.formats.scan import Format

        format_ = Format(self.format, parse_fields(self.fields), self._options(), root=self._folder)
        return passed_over(self._folder, metadata["files"], format_)

    def arrived(self, before: Metadata, now: Metadata) -> dict[str, int]:
        """Return the new files, with 0, and the grown files, with the first byte of the new lines."""
        sizes = ((name, self._since(name, before["files"].get(name), entry)) for name, entry in now["files"].items())
        return {name: size for name, size in sizes if size is not None}

    def _since(self, name: str, before: Entry | None, now: Entry) -> int | None:
        """Return the first byte of a file's new lines; None if the file has no new part, or was replaced, or has no lines."""
        was = 0 if before is None else planned_size(before)
        if before is None or was == 0 or planned_size(now) <= was:
            return 0 if was == 0 and planned_size(now) > 0 else None
        file = self._folder / name
        if self.format == "parquet" or self._options().get("multiline") or not contents.splittable(file):
            return None
        return None if is_replaced(file, before) else line_begin(file, was)

    @property
    def by_folders(self) -> bool:
        return self._folder_time is not None

    def bounded(self, metadata: Metadata, names: Iterable[str]) -> list[str]:
        """Return the files whose folders' names allow only times of a plan's interval."""
        of, (start, end) = self._folder_time, moments(metadata["interval"])
        spans = ((name, of.span(name)) for name in names) if of else ()
        return [name for name, span in spans if span is not None and start <= span[0] and span[1] <= end]

    def look_for(self, intervals: Sequence[Counted], arrived: Mapping[str, int]) -> None:
        """Look for records of intervals in new and grown files, from the next `emit_batch` on."""
        self.close()
        self._late = intervals, arrived

    def found_late(self) -> Mapping[int, Mapping[str, Late]]:
        """Return the late records met, by position and file."""
        return {} if self._reading is None else self._reading.late()

    def check_plan(self, metadata: Metadata) -> None:
        """Refuse a plan with a file of another size, unless the planned part of a grown file can be read."""
        for name, entry in metadata["files"].items() if self.fusable else ():
            file, size = self._folder / name, planned_size(entry)
            now = look(file)
            if now is None or now[0] == size:
                continue
            check_not_replaced(file, entry)
            if now[0] < size or self.format == "parquet" or not contents.splittable(file):
                check_size(file, size)

    def check_texts(self, metadata: Metadata) -> None:
        """Name the first text of the interval's records that is no UTF-8, for Parquet: other formats check while reading."""
        if self.format != "parquet":
            return
        # With pyarrow; a job file needs Python alone.
        from txbatch.formats import parquet_files

        start, end = map(datetime.fromisoformat, metadata["interval"])
        within = (start.date(), end.date()) if self._time_type == "date" else (start, end)
        for name in metadata["files"]:
            parquet_files.check_texts(self._folder, name, parse_fields(self.fields), self.time, within, self._options())

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        """Return the records of the interval."""
        folder = self._folder.absolute()
        check_links_of(folder, metadata["files"], foreign_links=self.foreign_links or self.root.is_file())
        for name, entry in metadata["files"].items():
            check_not_replaced(folder / name, entry)
            if self.format == "parquet":
                check_size(folder / name, planned_size(entry))
        asked = attempt, *metadata["interval"]
        if self._reading is None or not self._reading.serves(asked):
            late, self._late = self._late, ((), {})
            self.close()
            self._reading = self._read(spark, asked, metadata, *late)
        return self._reading.records

    def close(self) -> None:
        """Release the records read for an attempt."""
        reading, self._reading = self._reading, None
        self._late = (), {}
        if reading is not None:
            reading.end()

    @property
    def _folder(self) -> Path:
        return self.root.parent if self.root.is_file() else self.root

    def _files(self) -> list[str]:
        if self.root.is_file():
            return [] if hidden(self.root.name) else [self.root.name]
        return files_below(self.root, self.pattern, foreign_links=self.foreign_links)

    def _read(
        self,
        spark: SparkSession,
        asked: tuple[Any, ...],
        metadata: Metadata,
        intervals: Sequence[Counted],
        arrived: Mapping[str, int],
    ) -> Reading:
        # With pyarrow; a job file needs Python alone.
        from txbatch.formats import late_counts, parquet_files
        from txbatch.formats.scan import Format, Times, scan

        sizes = {name: planned_size(entry) for name, entry in metadata["files"].items()}
        start, end = map(datetime.fromisoformat, metadata["interval"])
        files = {self._folder.absolute() / name: size for name, size in sizes.items()}
        fields = parse_fields(self.fields)
        looks = {file: look(file) for file in files}
        if self.format == "parquet":
            found = parquet_files.read(spark, self._folder, sizes, fields, self._options(), self.time)
            records = self._inside(found, start, end)
            (time,) = (field for field in fields if field.name == self.time)
            of = spark, self._folder, list(arrived), time, intervals
            late = partial(late_counts.count_in_parquet, *of) if arrived else dict
            return Reading(asked, looks, records, kept=False, late=late)
        times = Times(self.time, *self._bounds(), start, end)
        names = {self._folder.absolute() / name: name for name in arrived}
        since = {file: arrived[name] for file, name in names.items()}
        counter = late_counts.LateCounter.of(spark, intervals, since) if arrived else None
        records = scan(
            spark, files, Format(self.format, fields, self._options(), times, self._folder.absolute(), counter)
        )
        kept = sum(sizes.values()) >= KEPT_BYTES
        late = partial(counter.late, names.__getitem__) if counter else dict
        return Reading(asked, looks, records.persist() if kept else records, kept, late)

    def _inside(self, records: DataFrame, start: datetime, end: datetime) -> DataFrame:
        from pyspark.sql import functions as F

        time, type_ = F.col(spark_name(self.time)), self._time_type
        low, high, first, last = (
            F.lit(each.date() if type_ == "date" else each) for each in (*self._bounds(), start, end)
        )
        right = (time >= low) & (time < high)
        given = F.when(right, time).otherwise(F.raise_error(self._wrong(time)))
        inside = records.filter(time.isNull() | ~right | ((time >= first) & (time < last)))
        return inside.withColumn(self.time, given.cast(type_))

    def _wrong(self, time: Column) -> Column:
        from pyspark.sql import functions as F

        none = F.lit(f"a record has no {self.time}, so it is in no interval")
        low, high = self.plausible
        told = f" is the {self.time} of a record, not between {low} and {high}; mend the source, or say plausible="
        return F.coalesce(F.concat(time.cast("string"), F.lit(told)), none)

    @property
    def _time_type(self) -> str:
        return {field.name: field.type for field in parse_fields(self.fields)}.get(self.time, "")

    def _times(self) -> Metadata:
        """Return the options that decide the moment of a time, and so a record's interval, without defaults."""
        defaults = {name: option.default for name, option in formats.MOMENTS.items()}
        given = self._options()
        return {name: given[name] for name, default in defaults.items() if given.get(name, default) != default}

    def _options(self) -> formats.Options:
        return formats.check_options(self.format, self.options)

    def _bounds(self) -> tuple[datetime, datetime]:
        return bounds("IntervalSpout", self.plausible)

    def _check(self) -> None:
        self.lookback_micros  # noqa: B018 (an invalid length is refused)
        if self._time_type not in ("timestamp", "date" if self.format == "parquet" else "timestamp"):
            raise InvalidOption(f"IntervalSpout: time={self.time!r} is no timestamp among the fields {self.fields}")
        if self.format not in formats.FORMATS:
            known = ", ".join(formats.FORMATS)
            raise InvalidOption(f"IntervalSpout: format {self.format!r} is not one of {known}")
        formats.check_names(self.format, self._options(), parse_fields(self.fields), self.time)
        self._bounds()
