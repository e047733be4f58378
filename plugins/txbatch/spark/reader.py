"""Reads a stream of a batch, and audits the records read (R7)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from txbatch.core.batch.came_late import Late
from txbatch.core.batch.manifest import ReadPartition
from txbatch.core.batch.plan import OfInterval, Ranges, StreamPlan
from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import BadText, PartitionUnreadable, SparkFailed, SpoutFailed
from txbatch.core.naming import naming
from txbatch.core.records.sql import spark_name
from txbatch.core.sources.emitter import PARTITION_COLUMN, union
from txbatch.core.sources.looking_back import LooksBackInFiles
from txbatch.core.sources.spout import Emitter, PartitionedSpout, SpoutKind
from txbatch.core.topology.stream import Stream
from txbatch.core.upstream.upstream import ExportedSpout
from txbatch.core.windows.watermark import Watermark
from txbatch.spark.failures import in_our_words, java_is_gone
from txbatch.spark.interval_check import outside, refused
from txbatch.spark.kept_records import KeptRecords
from txbatch.spark.within_batch import carried

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


@contextmanager
def open_reader(
    spark: SparkSession, stream: Stream, assignment: Assignment, exported: str | None = None
) -> Iterator[BatchReader]:
    """Context manager. Yield a reader of a stream of a batch, and close the reader's emitter when the block ends.

    An error of the block is raised unchanged, even if closing the emitter raises, too. `exported` is the place of the records
    of a stream from a state.
    """
    with emitter_of(stream, assignment, exported) as emitter:
        reader = BatchReader(spark, stream, assignment, emitter)
        try:
            yield reader
        finally:
            reader.free()


@contextmanager
def emitter_of(stream: Stream, assignment: Assignment, exported: str | None = None) -> Iterator[Emitter]:
    """Context manager. Yield the emitter of a stream, and close the emitter when the block ends, like `open_reader`."""
    with _naming(stream, assignment, "emitter"):
        emitter = stream.spout.emitter()
        if isinstance(emitter, ExportedSpout):
            emitter.exported = exported
    try:
        yield emitter
    except BaseException:
        with suppress(Exception):
            emitter.close()
        raise
    with _naming(stream, assignment, "close"):
        emitter.close()


@contextmanager
def _naming(stream: Stream, assignment: Assignment, method: str) -> Iterator[None]:
    """Context manager. Name batch, stream and method in a spout's errors; errors with more details pass unchanged."""
    try:
        yield
    except Exception as error:
        problem = in_our_words(error)
        if not isinstance(problem, SparkFailed) or java_is_gone(error):
            raise
        of = f"{assignment.topology} {assignment.attempt}, stream {stream.name!r}: {method}() of {type(stream.spout).__name__}"
        raise SpoutFailed(f"{of} raised {problem}; mend the spout or what it reads, and emit again") from error


class BatchReader:
    """Reads a stream of a batch through one emitter. `planned` is the stream's plan, without the partitions left out."""

    several = False  # whether its records are those of several batches

    def __init__(self, spark: SparkSession, stream: Stream, assignment: Assignment, emitter: Emitter) -> None:
        self.spark, self.stream, self.assignment = spark, stream, assignment
        self.planned: StreamPlan = assignment.plan.streams[stream.name]
        self.read = 0  # how many records the audit read
        self._emitter = emitter
        self._frames: dict[str, DataFrame] = {}
        self._kept: KeptRecords | None = None
        self._look_back()
        self._names: dict[str, str] = {}  # the partition of each value that was read

    @property
    def assignments(self) -> Mapping[int, Assignment]:
        """The batches of the records, by txid."""
        return {self.assignment.attempt.txid: self.assignment}

    def _look_back(self) -> None:
        """Let the spout look for late records in new and grown files, if any."""
        look = self.assignment.look
        if look is not None and isinstance(self._emitter, LooksBackInFiles) and self.stream.name in look.arrived:
            self._emitter.look_for(look.intervals, look.arrived[self.stream.name])

    def found_late(self) -> Mapping[int, Mapping[str, Late]]:
        """Return the late records met by the audit, by position and file."""
        look = self.assignment.look
        if look is None or not isinstance(self._emitter, LooksBackInFiles) or self.stream.name not in look.arrived:
            return {}
        with _naming(self.stream, self.assignment, "found_late"):
            return self._emitter.found_late()

    def leave_out_unreadable(self) -> dict[str, str]:
        """Return the partitions an opaque spout declares unreadable, with the reason; unreadable partitions are not read
        (R13).

        Raise PartitionUnreadable if the plan must be read whole.
        """
        spout = self.stream.spout
        if not isinstance(spout, PartitionedSpout) or not spout.leaves_out:
            return {}
        holes = self._holes(spout)
        for partition, why in holes.items() if self.assignment.plan.whole else ():
            raise PartitionUnreadable(
                f"{self}: {why}; a restate counts whole or not at all: try again when partition {partition!r} can be read, or "
                "abort it and restate with --accept-missing"
            )
        self.planned = self.planned.only([name for name in self.planned.ranges if name not in holes])
        if self._emitter is not spout or not spout.reads_by_partition:
            self._frames = {}  # `emit_batch` reads them in its own way
        return holes

    def _holes(self, spout: PartitionedSpout) -> dict[str, str]:
        """Return why partitions cannot be read, by partition: asked at once, or else partition by partition."""
        holes = dict[str, str]()
        with _naming(self.stream, self.assignment, "unreadable"):
            told = spout.unreadable(self.planned.plan)
        if told is not None:
            return {name: told[name] for name in self.planned.ranges if name in told}
        for partition, range_ in self.planned.ranges.items():
            try:
                with _naming(self.stream, self.assignment, "emit_partition_batch"):
                    frame = spout.emit_partition_batch(self.spark, self.assignment.attempt, partition, range_)
                self._frames[partition] = frame
            except PartitionUnreadable as error:
                holes[partition] = error.text
        return holes

    def records(self, partitions: Collection[str] | None = None) -> DataFrame:
        """Return the batch's records from the spout, or the records of some partitions."""
        if self._taken_once:
            self._kept = self._kept or KeptRecords.of(self._lazy(self.planned))
            return self._kept.only(None if partitions is None else self._values(partitions))
        return self._lazy(self.planned if partitions is None else self.planned.only(partitions))

    def _lazy(self, planned: StreamPlan) -> DataFrame:
        if self._frames:
            return union({name: self._frames[name] for name in planned.ranges})
        return self._ask(planned)

    def _values(self, partitions: Collection[str]) -> list[str]:
        """Return the values of `PARTITION_COLUMN` that stand for some partitions."""
        return [value for value, name in self._names.items() if name in partitions]

    @property
    def _taken_once(self) -> bool:
        """Whether the records are taken once in an attempt: the source cannot be read twice, or is not on this machine."""
        return self.stream.spout.remote or self.stream.spout.kind is SpoutKind.NON_TRANSACTIONAL

    def free(self) -> None:
        """Release the kept records."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.free()

    @property
    def says_records(self) -> bool:
        """Whether the plan has the number of records of a range, or of the interval."""
        if isinstance(self.planned, OfInterval):
            return self.planned.records is not None
        return isinstance(self.planned, Ranges) and any("records" in of.rest for of in self.planned.partitions.values())

    def check_unchanged(self) -> None:
        """Ask for the batch once more: an emitter raises if the source changed during reading."""
        if self.stream.spout.kind is not SpoutKind.NON_TRANSACTIONAL:
            self._ask(self.planned)

    def _ask(self, planned: StreamPlan) -> DataFrame:
        with _naming(self.stream, self.assignment, "emit_batch"):
            return self._emitter.emit_batch(self.spark, self.assignment.attempt, planned.plan)

    def audit(self) -> dict[str, ReadPartition]:
        """Return, for each partition, the number of records read and the sum of the records' xxhash64.

        BadRecord names partitions with faulty texts: invalid UTF-8, or U+0000 if the spout refuses U+0000. A partition
        without records counts as read only if the range is empty or the spout, asked again, counts none; other partitions are
        left out, and `check_manifest` reports them missing (R7b).
        """
        rows = self._audit(self.records(), self.assignment.planned_at).collect()
        if self._outside and any(row["outside"] for row in rows):
            raise refused(str(self), self.stream, self.records(), self._outside)
        return self.audited(self._found(rows))

    def audited(self, found: Mapping[str, Row]) -> dict[str, ReadPartition]:
        """Return the audit, completed from the rows found for partitions with records."""
        self.read = sum(row["records"] for row in found.values())
        invalid = sorted(name for name, row in found.items() if row["invalid"])
        if invalid:
            self._name_bad_text(invalid[0])
            where = f" in {', '.join(invalid[:5])}" if any(invalid) else ""
            raise BadText(f"{self}: a text{where} is invalid UTF-8; mend the source, or abort the batch")
        latest = {name: row["latest"] for name, row in found.items()} if self._watermark else {}
        ahead = {name: self._ahead(row) for name, row in found.items()}
        return self._without_records(found) | {
            name: ReadPartition(row["records"], str(row["fingerprint"]), latest.get(name), ahead[name])
            for name, row in found.items()
        }

    def __str__(self) -> str:
        return f"{self.assignment.topology} {self.assignment.attempt}, stream {self.stream.name!r}"

    def _found(self, rows: Iterable[Row]) -> dict[str, Row]:
        return {self._partition(row["partition"]): row for row in rows}

    def _ahead(self, row: Row) -> int | None:
        """Return the number of records with a time after the batch's planning; None if unknown."""
        planned_at = self.assignment.planned_at
        if self._watermark is None or planned_at is None:
            return None
        return row["ahead"] if row["latest"] is not None and row["latest"] > planned_at else 0

    def _audit(self, records: DataFrame, planned_at: int | None) -> DataFrame:
        from pyspark.sql import functions as F

        names = [spark_name(field.name) for field in self.stream.fields]
        strings = [spark_name(field.name) for field in self.stream.fields if field.type == "string"]
        checks = ["is_valid_utf8({})", *([] if self.stream.spout.nul else ["not contains({}, char(0))"])]
        valid = " and ".join(f"coalesce({check.format(name)}, true)" for name in strings for check in checks) or "true"
        partition = F.col(PARTITION_COLUMN) if isinstance(self.stream.spout, PartitionedSpout) else F.lit("")
        time = self._watermark and spark_name(self._watermark.time)
        micros = f"unix_micros(cast({time} as timestamp))"
        latest = [F.expr(f"max({micros}) as latest")] if time else []
        latest += [F.expr(f"count_if({micros} > {planned_at}) as ahead")] if time and planned_at is not None else []
        return records.groupBy(*carried(records), partition.alias("partition")).agg(
            F.expr("count(1) as records"),
            F.expr(f"{_sum_of_hashes(', '.join(names))} as fingerprint"),
            F.expr(f"count_if(not ({valid})) as invalid"),
            *latest,
            *([F.expr(f"count_if({self._outside}) as outside")] if self._outside else []),
        )

    @property
    def _outside(self) -> str | None:
        """The SQL to find records outside the batch; None if the time does not decide."""
        return None if self.several else outside(self.stream, self.assignment)

    @property
    def _watermark(self) -> Watermark | None:
        """The watermark of the records' times; None for processing time: records have no processing time of their own."""
        found = self.stream.topology.watermarks.get(self.stream.name)
        return None if found is None or found.planned else found

    def _without_records(self, found: Collection[str]) -> dict[str, ReadPartition]:
        """Return the partitions that count as read without records: a batch without partitions, empty ranges, and partitions
        in which the spout, asked again, counts none.
        """
        if not isinstance(self.stream.spout, PartitionedSpout):
            return {"": ReadPartition(0, "0")}
        silent = {name: of for name, of in self.planned.ranges.items() if name not in found}
        return {
            name: ReadPartition(0, "0")
            for name, of in silent.items()
            if of["start"] == of["end"] or self._count(name) == 0
        }

    def _count(self, partition: str) -> int | None:
        """Return the number of records the spout, asked again, counts in a partition; None if the spout cannot count."""
        spout = self.stream.spout
        if not isinstance(spout, PartitionedSpout):
            return None
        with naming(str(self)):
            return spout.count_records(partition, self.planned.ranges[partition])

    def _name_bad_text(self, partition: str) -> None:
        """Let the spout name a faulty text; return if the spout cannot."""
        if isinstance(self.stream.spout, PartitionedSpout):
            self._count(partition)
            return
        with naming(str(self)):
            self.stream.spout.check_texts(self.planned.plan)

    def _partition(self, value: str) -> str:
        spout = self.stream.spout
        self._names[value] = spout.partition_name(value) if isinstance(spout, PartitionedSpout) else value
        return self._names[value]


def _sum_of_hashes(columns: str) -> str:
    """Return the SQL of the sum of xxhash64, in decimal(38,0), 0 of nothing.

    The sum is added in three parts of 22, 21 and 21 bits: bigint has room for two trillion parts, and adding decimals takes
    longer.
    """
    number, bits = f"xxhash64({columns})", (1 << 21) - 1
    parts = [f"shiftright({number}, 42)", f"shiftright({number}, 21) & {bits}", f"{number} & {bits}"]
    high, middle, low = (f"cast(sum({part}) as decimal(20,0))" for part in parts)
    return f"coalesce(({high} * {1 << 21} + {middle}) * {1 << 21} + {low}, 0)"
