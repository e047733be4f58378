"""IntervalSpout: the records of files whose time lies in the run's interval."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from txbatch.core.aggregator import quoted
from txbatch.core.batch_spout import PlainSpout
from txbatch.core.errors import DefinitionError, TransientError
from txbatch.core.fields import parse_fields
from txbatch.core.transaction import Metadata, TransactionAttempt
from txbatch.spouts.listing import check_size, escaped, files_below, hidden, relative_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = frozenset({"csv", "json", "parquet"})
# Options of Spark's readers that would leave records out, silently.
REFUSED_OPTIONS = frozenset(
    {"mode", "ignorecorruptfiles", "ignoremissingfiles", "modifiedafter", "modifiedbefore", "pathglobfilter"}
)


class IntervalSpout(PlainSpout):
    """Reads the records below `root` (a folder or one file) whose field `time` lies in the run's interval.

    `fields` is the whole DDL of the files: the header of a CSV file with `options={"header": True}` must name the same
    fields in the same order. `time` is one of them, a timestamp; where it has no zone it is UTC. `options` are those of
    Spark's reader of this `format`.

    The plan names the files by FileSpout's listing rule, with their sizes. A record that does not fit its fields, or
    has no time and so would be in no interval, fails the attempt; so does a file whose size has changed since then.
    Spark keeps the interval's records for the attempt: the files, which may hold much more, are scanned only once.
    Transactional: a record that is added to an interval later is not counted.
    """

    by_interval = True
    metadata_bytes_max = 10_000_000  # it names every file, whatever the interval

    def __init__(
        self,
        root: str | Path,
        fields: str,
        *,
        time: str,
        format: str = "csv",
        pattern: str = "*",
        options: Mapping[str, str | bool] | None = None,
    ) -> None:
        self.root, self.fields, self.time, self.format, self.pattern = Path(root), fields, time, format, pattern
        self.options = dict(options or {})
        self._check()

    @property
    def identity(self) -> Metadata:
        return {"spout": "IntervalSpout", "root": str(self.root), "time": self.time}

    def planned_bytes(self, metadata: Metadata) -> int:
        """The sizes of the files."""
        return sum(metadata["files"].values())

    def initialize_transaction(
        self, txid: int, prev_metadata: Metadata | None, curr_metadata: Metadata | None
    ) -> Metadata | None:
        """The run's interval, which `curr_metadata` brings, with the files that are there now.

        Raises TransientError when there are none: a folder that is not mounted must not pass for a day without records.
        """
        if curr_metadata is None:
            raise DefinitionError("IntervalSpout reads by time: the run has no interval")
        if "files" in curr_metadata:
            return curr_metadata
        files = self._files()
        if not files:
            raise TransientError(f"{self.root} has no file to read; a name that begins with '_' or '.' is hidden")
        return {**curr_metadata, "files": {name: (self._folder / name).stat().st_size for name in files}}

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        """The records of the interval."""
        for name, size in metadata["files"].items():
            check_size(self._folder / name, size)
        records = self._read(spark, list(metadata["files"]))
        opened = {relative_path(uri, self._folder) for uri in records.inputFiles()}
        left_out = sorted(name for name, size in metadata["files"].items() if size and name not in opened)
        if left_out:
            raise TransientError(f"{self.root}: Spark does not read {', '.join(left_out[:5])}; rename them")
        inside = self._inside(records, *map(datetime.fromisoformat, metadata["interval"]))
        return inside if inside.storageLevel.useMemory else inside.persist()

    @property
    def _folder(self) -> Path:
        return self.root.parent if self.root.is_file() else self.root

    def _files(self) -> list[str]:
        if self.root.is_file():
            return [] if hidden(self.root.name) else [self.root.name]
        return files_below(self.root, self.pattern)

    def _read(self, spark: SparkSession, names: list[str]) -> DataFrame:
        schema = ", ".join(f"{quoted(field.name)} {field.type}" for field in parse_fields(self.fields))
        reader = spark.read.format(self.format).schema(schema).option("enforceSchema", "false")
        paths = [escaped(self._folder.resolve() / name) for name in names]
        return reader.options(**self.options).option("mode", "FAILFAST").load(paths)

    def _inside(self, records: DataFrame, start: datetime, end: datetime) -> DataFrame:
        from pyspark.sql import functions as F

        time = F.col(quoted(self.time))
        inside = records.filter(time.isNull() | ((time >= F.lit(start)) & (time < F.lit(end))))
        given = F.coalesce(time, F.raise_error(F.lit(f"a record has no {self.time}, so it is in no interval")))
        return inside.withColumn(self.time, given.cast("timestamp"))

    def _check(self) -> None:
        types = {field.name: field.type for field in parse_fields(self.fields)}
        if types.get(self.time) != "timestamp":
            raise DefinitionError(f"IntervalSpout: time={self.time!r} is no timestamp among the fields {self.fields}")
        if self.format not in FORMATS:
            raise DefinitionError(f"IntervalSpout: format {self.format!r} is not one of {', '.join(sorted(FORMATS))}")
        refused = sorted(name for name in self.options if name.lower() in REFUSED_OPTIONS)
        if refused:
            raise DefinitionError(f"IntervalSpout: option {refused[0]!r} would leave records out, silently; remove it")
