"""Whose line a worker's traceback is told by: the job's own, wherever it and txbatch happen to lie."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from refusals import check_refusal

import txbatch
from txbatch.core import naming
from txbatch.core.batch.heartbeat import Heartbeat
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.errors import BadRecord, DamagedFile, DiskFull, FunctionFailed, SparkFailed, TransientError
from txbatch.launch.driver import Driver, _fail
from txbatch.spark.failures import in_our_words, java_is_gone
from txbatch.storage.staging import AttemptFolder

FRAME = '  File "{}", line {}, in {}\n'


class Raised(Exception):
    """What Spark raises for a Python function."""

    def getSqlState(self) -> str:
        return "38000"


def told(*frames: tuple[str, int, str]) -> str:
    traceback = "".join(FRAME.format(*frame) for frame in frames)
    return in_our_words(Raised(f"Traceback (most recent call last):\n{traceback}    boom\nValueError: no\n")).text


@pytest.mark.parametrize("folder", ["/x/txbatch", "/x/pyspark/txbatch", "/x/a b ü/txb", "/x/site-packages"])
def test_the_line_of_the_job_is_told_in_a_folder_of_any_name(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    job = f"{folder}/jobs/helper_of_a_job.py"
    module = ModuleType("helper_of_a_job")
    module.__file__ = job
    monkeypatch.setitem(sys.modules, "helper_of_a_job", module)
    ours = ("/x/dist/txbatch-0123.zip/txbatch/spark/operations.py", 151, "_told")
    assert told(ours, (job, 7, "clean")) == "a function raised ValueError: no (helper_of_a_job.py, line 7, in clean)"
    theirs = ("/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", 9, "main")
    assert "(helper_of_a_job.py, line 7, in clean)" in told(theirs, ours, (job, 7, "clean"), theirs)


def test_an_exception_whose_text_raises_is_told_by_its_name() -> None:
    class Wordless(Exception):
        def __str__(self) -> str:
            raise KeyError("name")

    assert in_our_words(Wordless()).text == "Wordless: Wordless (its text raises KeyError)"
    with (
        pytest.raises(TransientError, match=r"the spout raised Wordless: Wordless .its text"),
        naming.naming_stream("the spout"),
    ):
        raise Wordless


def test_no_line_is_told_where_none_is_the_jobs() -> None:
    ours = (str(txbatch.__file__), 3, "f")
    unknown = ("/opt/elsewhere/numpy/core.py", 3, "f")
    installed = (str(pytest.__file__), 3, "f")
    assert told(ours, unknown, installed) == "a function raised ValueError: no"


def unread(cause: str) -> Exception:
    return RuntimeError(
        "An error occurred while calling o82.parquet.\n: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] "
        "Encountered error while reading file file:///in/a%20b/x.parquet.  SQLSTATE: KD001\n\tat org.apache...\n"
        f"Caused by: {cause}\n\tat org.apache.parquet.hadoop.ParquetFileReader...\n"
    )


@pytest.mark.parametrize(
    ("cause", "why"),
    [
        ("org.apache.parquet.io.ParquetDecodingException: could not verify page integrity", "could not verify page"),
        ("java.io.IOException: gzip stream CRC failure", "gzip stream CRC failure"),
        ("java.lang.ArrayIndexOutOfBoundsException: Index 52 out of bounds for length 51", "Index 52 out of bounds"),
        ("java.lang.NegativeArraySizeException", "NegativeArraySizeException"),
    ],
)
def test_a_damaged_file_is_named_and_no_retry_can_help(cause: str, why: str) -> None:
    error = in_our_words(unread(cause))
    assert isinstance(error, DamagedFile)
    assert error.text.startswith(f"/in/a b/x.parquet cannot be read ({why}")
    assert str(error).endswith("); write it again")


@pytest.mark.parametrize(
    "cause",
    [
        "org.apache.hadoop.fs.ChecksumException: Checksum error: file:/in/a b/x.parquet at 0 exp: 236163137 got: 680844559",
        "org.apache.hadoop.fs.ChecksumException: Checksum error: file:/in/a b/x.parquet at 3072",
    ],
)
def test_a_checksum_beside_a_file_that_was_replaced_is_named(cause: str) -> None:
    """Spark leaves such sums, hidden, beside the files that it writes; what replaces a file leaves the sum there."""
    check_refusal(in_our_words(unread(cause)), "TX302", "/in/a b/x.parquet", ".x.parquet.crc")


@pytest.mark.parametrize(
    "cause",
    [
        "java.io.IOException: Input/output error",
        "java.net.SocketTimeoutException: Read",
        "java.io.FileNotFoundException: File file:/data/CRC/x.parquet does not exist",
        "java.io.FileNotFoundException: /corrupt/checksum.parquet (Too many open files)",
        "java.io.IOException: s3a://bucket/CRC/x.parquet: Connection reset",
    ],
)
def test_a_file_that_a_disk_or_a_network_does_not_give_is_tried_again(cause: str) -> None:
    assert isinstance(in_our_words(unread(cause)), SparkFailed)


@pytest.mark.parametrize(
    "cause",
    [
        "java.io.IOException: No space left on device",
        "org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device",
        "java.nio.file.FileSystemException: /tmp/blockmgr-1/0c: Disk quota exceeded",
    ],
)
def test_a_disk_that_is_full_says_so(cause: str) -> None:
    error = RuntimeError(
        "[TASK_WRITE_FAILED] Task failed while writing rows to file:/staging/t/1/partials/0. SQLSTATE: 58030\n\tat org...\n"
        f"Caused by: {cause}\n\tat java.base/sun.nio.ch...\n"
    )
    found = in_our_words(error)
    assert (type(found), found.text.startswith("a disk is full (")) == (DiskFull, True)
    assert "make room where TXBATCH_STAGING is, or where Spark keeps its own files" in str(found)


def test_a_record_that_speaks_of_a_full_disk_fills_none() -> None:
    assert "disk is full" not in str(in_our_words(RuntimeError("cannot cast 'No space left on device' to int")))


def test_the_name_of_the_file_is_no_damage_whatever_is_in_it() -> None:
    of_corrupt = str(unread("java.io.FileNotFoundException: File file:/in/a b/not corrupt/x.parquet does not exist"))
    error = RuntimeError(of_corrupt.replace("a%20b/x", "a%20b/not%20corrupt/x"))
    assert isinstance(in_our_words(error), SparkFailed)


def test_an_attempt_whose_java_is_gone_says_nothing_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what Spark's killing did to the driver, written in time, would hide that Spark was killed."""

    def emit(self: Driver, *_: object) -> None:
        try:
            raise Py4JNetworkError("Answer from Java side is empty")
        except Py4JNetworkError as error:
            raise txbatch.TransientError("stream 'in', state 'words': Py4JNetworkError") from error

    monkeypatch.setattr(Driver, "_emit", emit)
    monkeypatch.setattr(AttemptFolder, "read_assignment", lambda _: SimpleNamespace(topology="words", attempt="1:1"))
    monkeypatch.setattr(AttemptFolder, "read_heartbeat", lambda _: Heartbeat(60))
    job = tmp_path / "job.py"
    job.touch()
    folder = AttemptFolder((tmp_path / "attempt").as_uri())
    with ExitStack() as ending, pytest.raises(SystemExit, match="Java process is gone"):
        Driver(txbatch.Topology("words"), job, ending).emit(folder)
    assert folder.read_error() is None


@pytest.mark.parametrize(
    ("error", "traced"),
    [
        (FunctionFailed("a function raised ValueError: no"), False),
        (TransientError("a.csv had 5 bytes when it was planned, now 4; restore it"), False),
        (BadRecord("a.csv, line 3"), False),
        (RuntimeError("the cluster is on fire"), True),
    ],
    ids=lambda each: type(each).__name__,
)
def test_only_what_is_not_in_our_words_is_told_with_where_it_came_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], error: Exception, traced: bool
) -> None:
    error.__cause__ = ValueError("what Spark said")
    _fail(AttemptFolder(tmp_path.as_uri()), error)
    first, *more = capsys.readouterr().err.splitlines()
    assert first.startswith("txbatch: ")
    assert first.endswith(str(error))
    assert more == (["ValueError: what Spark said"] if traced else [])


@pytest.mark.parametrize("traced", [False, True])
def test_what_the_submitting_process_reads_is_not_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], traced: bool
) -> None:
    """The submitting process prints the failure, and the next command below it."""
    folder = AttemptFolder(tmp_path.as_uri())
    folder.write_assignment(Assignment("words", TransactionAttempt(1, 1), "token", {}, "code"))
    error: Exception = RuntimeError("the cluster is on fire") if traced else BadRecord("a.csv, line 3")
    error.__cause__ = ValueError("what Spark said")
    _fail(folder, error)
    assert capsys.readouterr().err.splitlines() == (["ValueError: what Spark said"] if traced else [])
    said = folder.read_error()
    assert said is not None
    assert said["message"].endswith("the cluster is on fire" if traced else "a.csv, line 3")


def test_a_failure_that_cannot_be_written_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(AttemptFolder, "write_error", full)
    with pytest.raises(SystemExit, match=r"^txbatch: TX301 .*a\.csv, line 3 \(.* cannot be written: no space left\)$"):
        _fail(AttemptFolder(tmp_path.as_uri()), BadRecord("a.csv, line 3"))


def test_an_error_that_is_its_own_cause_is_looked_at_once() -> None:
    error = TransientError("a file changed")
    error.__cause__ = error
    assert not java_is_gone(error)


def test_on_a_full_disk_the_partials_of_an_attempt_make_room_for_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, write = AttemptFolder(tmp_path.as_uri()), AttemptFolder._write_json
    (tmp_path / "partials" / "0").mkdir(parents=True)

    def unless_full(folder: AttemptFolder, name: str, value: Any) -> None:
        if (tmp_path / "partials").exists():
            raise OSError(28, "No space left on device")
        write(folder, name, value)

    monkeypatch.setattr(AttemptFolder, "_write_json", unless_full)
    _fail(folder, DiskFull("a disk is full"))
    assert folder.read_error() == {"kind": "transient", "message": "TX810 (try again): a disk is full"}
