"""FileSpout through Spark: every named file is read, once and whole, or the attempt fails."""

from __future__ import annotations

import bz2
import gzip
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from txbatch import Count, FileSpout, OpaqueState, Topology
from txbatch.core.batch.transaction import TransactionAttempt
from txbatch.core.errors import BadRecord, Incomplete, PartitionUnreadable, TransientError
from txbatch.core.sources.spout import Metadata
from txbatch.formats import contents, text_lines
from txbatch.spark.failures import in_our_words
from txbatch.storage import parquet

Emit = Callable[..., Any]
NAMES = [
    *(
        f"{before}{character}{after}"
        for character in "[]{}*?,\\ %+#&;='\"!~^$@()|<>"
        for before, after in [("x", "y.txt")]
    ),
    "[a-c].txt",
    "{a,b}.txt",
    "*.txt",
    "a.txt",
    "b.txt",
    "%20.txt",
    "%2F.txt",
    "a%",
    "Ünïcode-文.txt",
    "two\nlines.txt",
    " blanks around ",
    "date=2020-01-01/in a folder like a partition.txt",
    "hour=1/x.txt",
    "deep/er/[and]/{de}/ep*er/?.txt",
    "crc.txt.crc",
    "no_hidden_.x",
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "in [root] {a,b} %20 ü"
    folder.mkdir()
    return folder


def lines(root: Path, **options: Any) -> Topology:
    topology = Topology("lines")
    stream = topology.new_stream("in", FileSpout(root, **options))
    stream.group_by("line").persistent_aggregate(OpaqueState("lines"), count=Count())
    return topology


def write(root: Path, name: str, content: bytes) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_every_name_is_read_as_itself(emit: Emit, root: Path) -> None:
    for number, name in enumerate(NAMES):
        write(root, name, f"{number}\nsame\n".encode())
    emitted = emit(lines(root))
    assert emitted.read() == dict.fromkeys(NAMES, 2)
    assert emitted.partials["lines"] == {(str(n),): (1,) for n in range(len(NAMES))} | {("same",): (len(NAMES),)}


@pytest.mark.rule("R7")
def test_hidden_names_are_left_out(emit: Emit, root: Path) -> None:
    for name in ("_a", ".a", "a._COPYING_", "_SUCCESS", "_metadata", "_k=v", "_folder/a", ".folder/a", "seen"):
        write(root, name, b"line\n")
    assert emit(lines(root)).read() == {"seen": 1}


def test_line_ends(emit: Emit, root: Path) -> None:
    contents = {
        "empty": b"",
        "no end": b"last",
        "one blank line": b"\n",
        "windows": b"a\r\nb\r\n",
        "old mac": b"a\rb",
        "mark": b"\xef\xbb\xbfmarked\n",
        "only a mark": b"\xef\xbb\xbf",
        "tabs": b"\ta\t\n",
        "separators": "a\u2028b\u0085c\x0bd\x0ce\n".encode(),
    }
    for name, content in contents.items():
        write(root, name, content)
    emitted = emit(lines(root))
    expected = {"last": 1, "": 1, "a": 2, "b": 2, "marked": 1, "\ta\t": 1, "a\u2028b\u0085c\x0bd\x0ce": 1}
    read = emitted.read()
    assert read.pop("only a mark") <= 1
    assert read == {
        "no end": 1,
        "one blank line": 1,
        "windows": 2,
        "old mac": 2,
        "mark": 1,
        "tabs": 1,
        "separators": 1,
    }
    found = {line: count for (line,), (count,) in emitted.partials["lines"].items()}
    assert {**found, "": 1} == expected


def test_compressed_files_also_without_records(emit: Emit, root: Path) -> None:
    """Line for line as plain ones are, all members of them."""
    text = b"\xef\xbb\xbfa\r\nb\rc\n\nd"
    write(root, "plain", text)
    write(root, "ü [1] %20.gz", gzip.compress(text[:5]) + gzip.compress(text[5:]))
    write(root, "a.bz2", bz2.compress(text))
    write(root, "nothing.gz", gzip.compress(b""))
    emitted = emit(lines(root))
    assert emitted.read() == {"plain": 5, "ü [1] %20.gz": 5, "a.bz2": 5, "nothing.gz": 0}
    plain, *others = [read for read in emitted.manifest.streams["in"].values() if read.records]
    assert all(read == plain for read in others)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.lz4", b"1\n2\n", "a.lz4 begins with 31 0a 32 0a, and that is no lz4"),
        ("a.snappy", b"1\n2\n" * 9_999, "a.snappy is .snappy, which is not unpacked"),
        ("a.gz", gzip.compress(b"1\n2\n")[:-1], r"a.gz cannot be unpacked \(gzip\): Truncated"),
        ("a.txt", b"1\n" + b"x" * 200, "a.txt: the line at byte 2 has more than 100 bytes"),
        ("a.txt", b"\r".join([b"x" * 60, b"y" * 101, b"z" * 60]), "a.txt: the line at byte 61 has more than 100 bytes"),
        ("a.txt", gzip.compress(b"1\n2\n"), r"a.txt is compressed \(gzip\), which its name does not say"),
        ("a.gz", gzip.compress(b"1\ncaf\xe9\n"), "a.gz line 2: the byte 0xe9 is not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_right_is_named(
    emit: Emit, root: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, complaint: str
) -> None:
    monkeypatch.setattr(contents, "check_line_lengths", partial(contents.check_line_lengths, record_bytes_max=100))
    write(root, "good", b"line\n")
    write(root, name, content)
    with pytest.raises(Exception) as failed:  # noqa: PT011 (Spark's own, which one of ours stands for)
        emit(lines(root))
    problem = in_our_words(failed.value)
    assert isinstance(problem, BadRecord)
    assert re.search(complaint, str(problem))


def test_the_cut_into_splits_changes_nothing(emit: Emit, root: Path, spark: SparkSession) -> None:
    words = [f"{number % 97} {'x' * (number % 13)}" for number in range(5_000)]
    for n in range(25):
        write(root, f"{n % 3}/{n}.txt", "\n".join(words[n::25]).encode())
    once = emit(lines(root))
    try:
        spark.conf.set("spark.sql.files.maxPartitionBytes", "512b")
        spark.conf.set("spark.sql.shuffle.partitions", "7")
        again = emit(lines(root))
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert again.manifest.streams == once.manifest.streams
    assert again.partials == once.partials
    assert {line: count for (line,), (count,) in once.partials["lines"].items()} == Counter(words)


@pytest.mark.rule("R7")
def test_partials_lie_in_files_of_bounded_length(emit: Emit, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a commit, which reads a file whole, would need memory by the batch's size."""
    write(root, "words", "\n".join(f"{number}" for number in range(500)).encode())
    monkeypatch.setattr(parquet, "ROWS_PER_FILE_MAX", 100)
    staged = emit(lines(root)).manifest.states["lines"]
    assert staged.rows == sum(file.rows for file in staged.files) == 500
    assert max(file.rows for file in staged.files) == 100


@pytest.mark.rule("R7")
def test_a_file_that_spark_does_not_read_fails_the_attempt(emit: Emit, root: Path) -> None:
    """Planned by another rule than Spark reads by: nothing comes, in silence."""
    write(root, "_hidden", b"line\n")
    write(root, "seen", b"line\n")
    metadata = {"streams": {"in": {"partitions": {name: {"start": 0, "end": 5} for name in ("_hidden", "seen")}}}}
    with pytest.raises(Incomplete, match="was not read: _hidden"):
        emit(lines(root), metadata)


class Twice(FileSpout):
    """Reads what nobody planned."""

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        return self._read(spark, self.partitions())  # type: ignore[arg-type]


def test_a_file_that_was_not_planned_fails_the_attempt(emit: Emit, root: Path) -> None:
    write(root, "a", b"line\n")
    write(root, "b", b"line\n")
    topology = Topology("lines")
    topology.new_stream("in", Twice(root)).group_by("line").persistent_aggregate(OpaqueState("lines"), count=Count())
    with pytest.raises(Incomplete, match="read but not planned: b"):
        emit(topology, {"streams": {"in": {"partitions": {"a": {"start": 0, "end": 5}}}}})


@pytest.mark.rule("R7")
def test_a_file_that_grew_after_planning(emit: Emit, root: Path) -> None:
    write(root, "a", b"line\n")
    metadata = {"streams": {"in": {"partitions": {"a": {"start": 0, "end": 4}}}}}
    with pytest.raises(TransientError, match="a had 4 bytes when it was planned, now 5"):
        emit(lines(root), metadata)


def test_spark_looks_at_the_files_once_in_an_attempt(
    emit: Emit, spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the audit, for each of two states and for the look at the end; in so many tasks as there are cores."""
    listed: list[int] = []
    read = text_lines.read

    def counted(session: SparkSession, files: Sequence[Path], *, nul: bool) -> DataFrame:
        listed.append(len(files))
        return read(session, files, nul=nul)

    monkeypatch.setattr(text_lines, "read", counted)
    for number in range(40):
        write(root, f"{number}", b"line\n")
    topology = lines(root)
    topology.streams["in"].persistent_aggregate(OpaqueState("all"), count=Count())
    assert emit(topology).partials["all"] == {(): (40,)}
    assert listed == [40]
    tasks = spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.parallelism")
    assert tasks == str(len(os.sched_getaffinity(0)))


class GrowsWhileRead(FileSpout):
    """Its file grows after it was counted."""

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        frame = super().emit_batch(spark, attempt, metadata)
        if not os.environ.pop("COUNTED", None):
            os.environ["COUNTED"] = "yes"
            return frame
        with (self.root / "a").open("a") as file:
            file.write("more\n")
        return frame


def test_a_file_that_grows_while_it_is_read(emit: Emit, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COUNTED", raising=False)
    write(root, "a", b"line\n")
    topology = Topology("lines")
    stream = topology.new_stream("in", GrowsWhileRead(root))
    stream.group_by("line").persistent_aggregate(OpaqueState("lines"), count=Count())
    with pytest.raises(TransientError, match="a had 5 bytes when it was planned, now 10"):
        emit(topology)


def test_a_file_deleted_after_planning(emit: Emit, root: Path) -> None:
    metadata = {"streams": {"in": {"partitions": {"gone": {"start": 0, "end": 4}}}}}
    with pytest.raises(PartitionUnreadable, match="gone cannot be read: No such file"):
        emit(lines(root), metadata)


def test_invalid_utf8_names_batch_and_file(emit: Emit, root: Path) -> None:
    write(root, "good", b"line\n")
    write(root, "sub/bad one", b"cafe\ncaf\xe9\n")
    with pytest.raises(BadRecord, match=r"lines 1:1, stream 'in': .*sub/bad one line 2: the byte 0xe9"):
        emit(lines(root))


def test_a_key_with_u0000_names_batch_and_file(emit: Emit, root: Path) -> None:
    for number in range(6):
        write(root, f"{number}", b"a\x00b\n" if number == 4 else b"ab\n")
    with pytest.raises(BadRecord, match=r"lines 1:1, .*key 'line' holds U\+0000; .* \(in 4\)"):
        emit(lines(root, nul=True))
    with pytest.raises(
        BadRecord, match=r"lines 1:1, stream 'in': .*/4 line 1 holds U\+0000, as UTF-16 does; .* nul=True"
    ):
        emit(lines(root))


def test_a_null_key_names_batch_and_file(emit: Emit, root: Path) -> None:
    for number in range(6):
        write(root, f"{number}", b"null\n" if number == 5 else b"ab\n")
    topology = Topology("lines")
    stream = topology.new_stream("in", FileSpout(root)).map("nullif(line, 'null')", "`it's a\\key` string")
    stream.group_by("it's a\\key").persistent_aggregate(OpaqueState("lines"), count=Count())
    with pytest.raises(BadRecord, match=r"lines 1:1, .*it's a.* is null; .* \(in 5\)"):
        emit(topology)
