"""FileSpout: the lines of text files arriving in a folder, each file once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import InvalidOption, PartitionUnreadable
from txbatch.core.sources.spout import PartitionedSpout
from txbatch.formats import text_lines
from txbatch.formats.listing import absolute, check_links_of, check_size, files_below, name_pattern, relative_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txbatch.core.batch.transaction import Metadata, TransactionAttempt


class FileSpout(PartitionedSpout):
    """Reads each file below `root` with a name matching `pattern` once, whole, as records of one string field `line`.

    The listing rule: regular files at any depth, in the order of the relative paths' bytes. Hidden files and folders (a name
    that begins with `_` or `.`, or ends in `._COPYING_`) are left out, like in Spark and Hadoop: write a file under a hidden
    name, and rename the file when whole. A file is a partition: a file appearing later is read once, wherever the file sorts.
    Each name is read once: a file that replaces a read file is not read, and a renamed file counts as another file. At most
    `files_per_batch` files make a batch.

    The text must be UTF-8. A line ends with \\n, \\r\\n or \\r, the last line also without; a byte order mark is no part of a
    line. Files named `*.gz`, `*.bz2`, `*.zst` and `*.lz4` are unpacked. An empty file is read once filled. Raise
    TransientError if a file is not read whole as planned, PartitionUnreadable if a file cannot be opened, BadRecord if a file
    is not of the type in the name, is cut off, is no UTF-8, or has a line of more than 64 MB. Raise BadRecord also if a line
    holds U+0000, like UTF-16 taken for UTF-8, unless `nul` is true.
    """

    fields = "line string"
    vanish = "normal"

    def __init__(
        self,
        root: str | Path,
        pattern: str = "*",
        *,
        files_per_batch: int = 1_000,
        nul: bool = False,
        foreign_links: bool = False,
    ) -> None:
        if files_per_batch < 1:
            raise InvalidOption("FileSpout: files_per_batch must be at least 1")
        if not isinstance(nul, bool):
            raise InvalidOption(f"FileSpout: nul={nul!r} is neither True nor False")
        self.root, self.pattern = absolute(root, "FileSpout"), name_pattern(pattern, "FileSpout")
        self.max_partitions, self.nul, self.foreign_links = files_per_batch, nul, foreign_links
        self._listed: tuple[TransactionAttempt, Sequence[str], DataFrame] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the spout's attributes without attributes of the process."""
        return {**self.__dict__, "_listed": None}

    @property
    def identity(self) -> Metadata:
        return {"spout": "FileSpout", "root": str(self.root), "pattern": self.pattern}

    def partitions(self) -> Sequence[str]:
        """Return relative paths, by the listing rule."""
        return files_below(self.root, self.pattern, foreign_links=self.foreign_links)

    def partitions_to_ask(self, known: Mapping[str, Metadata]) -> Sequence[str]:
        """Return the unread files; for a subclass with its own listing or planning, all files."""
        mine = type(self).emit_partition_batch_new is FileSpout.emit_partition_batch_new
        if not mine or type(self).partitions is not FileSpout.partitions:
            return self.partitions()
        return files_below(self.root, self.pattern, known, foreign_links=self.foreign_links)

    def planned_bytes(self, metadata: Metadata) -> int:
        """Return the sum of the files' sizes."""
        return sum(range_["end"] for range_ in metadata["partitions"].values())

    @property
    def fusable(self) -> bool:
        """Return True unless a subclass reads batches in another way."""
        return type(self).emit_batch is FileSpout.emit_batch

    def fused(self, plans: Sequence[Metadata]) -> Metadata | None:
        """Return all files of all batches; None if a file is in two batches."""
        files = {name: range_ for plan in plans for name, range_ in plan["partitions"].items()}
        apart = len(files) == sum(len(plan["partitions"]) for plan in plans)
        return {"partitions": files} if self.fusable and apart else None

    def emit_partition_batch_new(
        self, attempt: TransactionAttempt, partition: str, last_metadata: Metadata | None
    ) -> Metadata | None:
        """Return the whole file, if unread and not empty."""
        if last_metadata is not None:
            return None
        stat = os.stat(os.path.join(self.root, partition))  # a Path for each of many files takes longer than the look
        return {"start": 0, "end": stat.st_size, "mtime_ns": stat.st_mtime_ns} if stat.st_size else None

    def plan_again(self, partition: str, metadata: Metadata) -> Metadata:
        """Return the whole file as of now. Raise PartitionUnreadable if the file is gone."""
        try:
            stat = (self.root / partition).stat()
        except OSError as error:
            raise PartitionUnreadable(
                f"{self.root / partition} cannot be read: {error.strerror}; restore it"
            ) from error
        return {"start": 0, "end": stat.st_size, "mtime_ns": stat.st_mtime_ns}

    def check_plan(self, metadata: Metadata) -> None:
        """Refuse a plan with a file of another size."""
        for partition, range_ in metadata["partitions"].items() if self.fusable else ():
            with suppress(PartitionUnreadable):
                check_size(self.root / partition, range_["end"])

    def emit_partition_batch(
        self, spark: SparkSession, attempt: TransactionAttempt, partition: str, metadata: Metadata
    ) -> DataFrame:
        """Return the lines of a file."""
        check_links_of(self.root, [partition], foreign_links=self.foreign_links)
        return self._read(spark, [partition])

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        """Return the lines of all files of the batch, in one scan. Spark looks at the files once per attempt, txbatch each
        time.
        """
        check_links_of(self.root, metadata["partitions"], foreign_links=self.foreign_links)
        for partition, range_ in metadata["partitions"].items():
            check_size(self.root / partition, range_["end"])
        names = [name for name, range_ in metadata["partitions"].items() if range_["end"]]
        if self._listed is None or self._listed[:2] != (attempt, names):
            self._listed = attempt, names, self._read(spark, names)
        return self._listed[2]

    def count_records(self, partition: str, metadata: Metadata) -> int | None:
        """Return the number of lines, read without Spark."""
        return sum(1 for _ in text_lines.lines(self.root / partition, nul=self.nul))

    def _read(self, spark: SparkSession, partitions: Sequence[str]) -> DataFrame:
        root = self.root.resolve()
        return text_lines.read(spark, [root / partition for partition in partitions], nul=self.nul)

    def partition_name(self, value: str) -> str:
        """Return the relative path from Spark's URI."""
        return relative_path(value, self.root)
