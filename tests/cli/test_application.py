"""Several attempts in one Spark application: real spark-submits, and a stand-in where only starting and ending count."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Client
from pathlib import Path
from threading import Event, Thread, Timer

import psutil
import pytest
from cli_support import refused
from click.testing import CliRunner
from slowness import slowness
from sqlalchemy import Engine, text
from support import until

from txbatch import settings
from txbatch.cli.main import main
from txbatch.core.batch.transaction import Assignment, Batch, Run, TransactionAttempt
from txbatch.core.errors import DefinitionError, StaleAttempt, TransientError
from txbatch.launch.application import Application
from txbatch.launch.job_file import Job, load_job
from txbatch.launch.submission import SHORT_JOB_BYTES, Submission, ended
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.run.runner import Runner
from txbatch.storage.staging import AttemptFolder
from txbatch.wiring import open_runner

pytestmark = pytest.mark.timeout(300)
WriteJob = Callable[[str, str], str]
LAST_LINES = 'let it end with `if __name__ == "__main__": raise SystemExit(emit(topology))`'
WORDS = """
import os, time
def at_work(record):
    word, folder = record["word"], os.environ["WORDS_FOLDER"]
    open(f"{folder}/at {word}", "w").close()
    while os.path.exists(f"{folder}/hold {word}"):
        time.sleep(0.02)
    if os.path.exists(f"{folder}/fail {word}"):
        raise OSError(f"{word} fails on purpose")
    return word.upper()
topology = Topology("words", max_pending=9)
words = topology.new_stream("in", FixedBatchSpout("word string", 1, *"abcdefgh")).map(at_work, "word string")
words.group_by("word").persistent_aggregate(OpaqueState("words"), count=Count())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """By what the job is held and made to fail; the sockets of its applications are below, too."""
    monkeypatch.setenv("WORDS_FOLDER", str(tmp_path))
    with tempfile.TemporaryDirectory(prefix="sockets-") as sockets:
        monkeypatch.setattr(tempfile, "tempdir", sockets)
        yield tmp_path


@pytest.fixture
def runner(
    home: Path, folder: Path, postgres_url: str, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Runner]:
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    with open_runner(load_job(write_job("words.py", WORDS)), settings.resolve()) as runner:
        yield runner


def batch(runner: Runner, txid: int) -> tuple[Batch, Run]:
    run = Run(f"run-{txid}")
    found = runner.steps.initialize_transaction(run)
    assert isinstance(found, Batch)
    assert found.txid == txid
    return found, run


def emit(runner: Runner, txid: int) -> None:
    runner.steps.emit_batch(*batch(runner, txid), runner.submit)


def drivers() -> list[psutil.Process]:
    """The Python drivers below this process."""
    found = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if each.name() != "java" and "--socket" in each.cmdline():
                found.append(each)
    return found


def sockets() -> list[str]:
    return os.listdir(tempfile.gettempdir())


@pytest.mark.rule("R5", "R7")
def test_attempt_after_attempt_in_one_application(runner: Runner, folder: Path, engine: Engine) -> None:
    """One fails and is told why, and the next attempt is done by the same driver."""
    emit(runner, 1)
    (first,) = drivers()
    assert [name for name in sockets() if name.startswith("txbatch-")] == [], "removed once the driver is connected"
    (folder / "fail b").touch()
    with pytest.raises(TransientError, match=r"words 2:1, stream 'in', .* OSError: b fails on purpose"):
        emit(runner, 2)
    (folder / "fail b").unlink()
    emit(runner, 2)
    assert drivers() == [first]
    assert committed(runner, engine, 2) == {"1:1": ["A"], "2:2": ["B"]}
    runner.application.close()
    assert drivers() == []
    assert not any(name.startswith("txbatch-") for name in sockets())


@pytest.mark.whole
@pytest.mark.rule("R5", "R7")
def test_another_application_after_a_driver_that_was_killed_or_overtaken(
    runner: Runner, folder: Path, engine: Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    """The driver is killed, twice; the job file is edited meanwhile; a newer attempt takes over.

    That other code alone starts another application is seen below, without Spark.
    """
    emit(runner, 1)
    (first,) = drivers()
    first.suspend()  # so that it is alive when it is given the next one, and dead before it begins
    Timer(1, first.kill).start()
    emit(runner, 2)
    (second,) = drivers()
    assert second != first
    second.kill()
    second.wait()
    runner.job.path.write_text(runner.job.path.read_text().replace("word.upper()", 'word.upper() + "!"'))
    emit(runner, 3)
    (third,) = drivers()

    (folder / "hold d").touch()
    overtaken = Thread(target=take_over, args=(runner, 4, folder / "at d"))
    overtaken.start()
    with pytest.raises(StaleAttempt, match="words 4:1: 4:2 took its place"):
        emit(runner, 4)
    overtaken.join()
    assert "txbatch: words 4:1: stopped, for 4:2 took its place; nothing was changed" in capfd.readouterr().err
    (folder / "hold d").unlink()
    emit(runner, 4)
    (fourth,) = drivers()
    assert fourth != third
    assert committed(runner, engine, 4) == {"1:1": ["A"], "2:1": ["B"], "3:1": ["C!"], "4:3": ["D!"]}


def committed(runner: Runner, engine: Engine, last: int) -> dict[str, list[str]]:
    """Commit all batches up to the last; return the words that each attempt brought, which are counted once."""
    for txid in range(1, last + 1):
        found, run = batch(runner, txid)
        runner.steps.commit(found, run)
    words: dict[int, list[str]] = {}
    with engine.connect() as connection:
        for word, count, txid in connection.execute(text('SELECT word, "count", txid FROM report.words')).tuples():
            assert count == 1
            words.setdefault(txid, []).append(word)
    rows = [row for row in LedgerReader(engine).attempts("words") if row["status"] == "committed"]
    return {row["attempt"]: words[int(row["attempt"].partition(":")[0])] for row in reversed(rows)}


def take_over(runner: Runner, txid: int, at: Path) -> None:
    """A newer attempt of the run, which begins in the middle of the older one, and fails at once."""
    until(at.exists)
    until(lambda: re.fullmatch(r"stage \d+, 0 of 1 tasks", runner.application.stage))

    def fail(*_: object) -> None:
        Event().wait(2 * slowness())
        raise TimeoutError("that is all")

    with pytest.raises(TimeoutError):
        runner.steps.emit_batch(*batch(runner, txid), fail)


class Launched:
    """A spark-submit that is none: a thread which answers as a driver would, until nobody asks any more."""

    def __init__(self, what: Submission, ends: str = "") -> None:
        self.socket, self.ends, self.over = what.arguments[-1], ends, Event()

    def run(self) -> None:
        if self.ends:
            raise TransientError(self.ends)
        with Client(self.socket) as submitter:
            while not self.over.is_set():
                submitter.send_bytes(b"done")
                try:
                    submitter.recv_bytes()
                    submitter.send_bytes(b"begun")
                except EOFError:
                    return

    def kill(self) -> None:
        self.over.set()


class Warm(Launched):
    """One that is told no attempt before it has started."""

    def run(self) -> None:
        with Client(self.socket) as submitter, suppress(EOFError):
            while not self.over.is_set():
                submitter.recv_bytes()
                submitter.send_bytes(b"begun")
                submitter.send_bytes(b"done")


class Sized:
    """A spout whose plan says how large it is."""

    def planned_bytes(self, plan: dict[str, int]) -> int:
        return plan["bytes"]


@pytest.fixture
def job(folder: Path, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch) -> Job:
    job = load_job(write_job("words.py", WORDS))
    monkeypatch.setattr(type(job.topology.streams["in"].spout), "planned_bytes", Sized.planned_bytes)
    return job


def attempt(number: int, folder: Path, size: int = 1, code: str = "code") -> tuple[AttemptFolder, Assignment]:
    metadata = {"streams": {"in": {"bytes": size}}}
    return AttemptFolder((folder / "attempt").as_uri()), Assignment(
        "words", TransactionAttempt(number, 1), "token", metadata, code
    )


def test_it_is_started_anew_only_where_it_does_not_fit(job: Job, home: Path, folder: Path) -> None:
    """A large batch needs Java's optimising compiler, with which small ones do well; other code is not loaded."""
    started: list[Submission] = []

    def launch(what: Submission) -> Launched:
        started.append(what)
        return Launched(what)

    counts = []
    with Application(job, home, launch, local=True) as spark:
        for size, code in ((1, "a"), (2, "a"), (SHORT_JOB_BYTES, "a"), (1, "a"), (1, "b"), (SHORT_JOB_BYTES, "b")):
            spark.emit(*attempt(len(counts) + 1, folder, size, code))
            counts.append(len(started))
    assert counts == [1, 1, 2, 2, 3, 4]
    assert sockets() == []


def test_it_starts_before_the_attempts_begin(job: Job, home: Path, folder: Path) -> None:
    started: list[Submission] = []

    def launch(what: Submission) -> Warm:
        started.append(what)
        return Warm(what)

    first, second = attempt(1, folder), attempt(2, folder)
    with Application(job, home, launch, local=True) as spark:
        for _ in range(2):
            spark.start([first[1].plan, second[1].plan], "code")
            assert spark.stage == ""
        spark.emit_bulk([first, second])
        spark.start([first[1].plan], "other code")
        spark.emit(*first)
    (what,) = started
    assert what.arguments[:2] == ("--attempt-folder", "--stages")
    assert sockets() == []


def test_where_it_started_and_no_attempt_did_it_is_ended_at_once(job: Job, home: Path, folder: Path) -> None:
    """Also when it has not come so far that it could be told."""

    class Coming(Launched):
        def run(self) -> None:
            assert self.over.wait(30 * slowness()), "never killed"

    with Application(job, home, Coming, local=True) as spark:
        spark.start([attempt(1, folder)[1].plan], "code")
    assert sockets() == []


def test_let_end_it_ends_beside_what_comes_and_another_starts_where_something_is_emitted_all_the_same(
    job: Job, home: Path, folder: Path
) -> None:
    ended = [Event(), Event()]

    class Ending(Launched):
        def run(self) -> None:
            super().run()
            next(event for event in ended if not event.is_set()).set()

    spark = Application(job, home, Ending, local=True)
    spark.let_end()
    spark.emit(*attempt(1, folder))
    spark.let_end()
    assert ended[0].wait(30 * slowness())
    spark.start([attempt(2, folder)[1].plan], "code")
    spark.emit(*attempt(2, folder))
    assert not ended[1].is_set()
    spark.close()
    assert ended[1].is_set()
    assert sockets() == []


def test_where_it_did_not_start_the_attempts_start_another(job: Job, home: Path, folder: Path) -> None:
    ends = iter(["spark-submit ended with 127", ""])
    with Application(job, home, lambda what: Launched(what, next(ends)), local=True) as spark:
        spark.start([attempt(1, folder)[1].plan], "code")
        spark.emit(*attempt(1, folder))


def test_once_killed_it_does_not_start_before_its_attempts(job: Job, home: Path, folder: Path) -> None:
    spark = Application(job, home, Launched, local=True)
    spark.kill()
    spark.start([attempt(1, folder)[1].plan], "code")
    assert sockets() == []


def test_nobody_waits_for_a_spark_that_never_came(job: Job, home: Path, folder: Path) -> None:
    spark = Application(job, home, lambda what: Launched(what, "spark-submit ended with 127"), local=True)
    for number in (1, 2):
        with pytest.raises(TransientError, match=f"txbatch words {number}:1: spark-submit ended with 127"):
            spark.emit(*attempt(number, folder))
    spark.close()
    assert sockets() == []


def test_a_spark_that_ended_well_and_said_nothing_emits_nothing(
    job: Job, home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Launched, "run", lambda launched: None)
    with (
        Application(job, home, Launched, local=True) as spark,
        pytest.raises(DefinitionError, match=re.escape(f"words.py emits nothing when Spark runs it; {LAST_LINES}")),
    ):
        spark.emit(*attempt(1, folder))


def test_a_job_without_its_last_lines_is_refused_before_a_txid_is_used(
    home: Path, postgres_url: str, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    path = write_job("words.py", WORDS)
    Path(path).write_text(Path(path).read_text().partition("if __name__")[0])
    refused(CliRunner().invoke(main, ["run", path]), f"words.py emits nothing when Spark runs it; {LAST_LINES}")
    refused(CliRunner().invoke(main, ["plan", path]), f"words.py emits nothing when Spark runs it; {LAST_LINES}")
    assert CliRunner().invoke(main, ["status", "--json"]).stdout == "[]\n"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (137, r"Spark was killed (SIGKILL, out of memory?); try again, with more memory if it happens again"),
        (-9, r"Spark was killed (SIGKILL, out of memory?); try again, with more memory if it happens again"),
        (143, r"Spark was ended (SIGTERM); try again"),
        (1, "spark-submit ended with 1; its output above says why"),
        (86, "spark-submit ended with 86; its output above says why"),
        (255, "spark-submit ended with 255; its output above says why"),
    ],
)
def test_what_an_exit_code_says(code: int, said: str) -> None:
    assert (ended(code).code, ended(code).text) == ("TX417", said)


def test_it_goes_on_while_spark_is_at_work(job: Job, home: Path, folder: Path) -> None:
    """What is ended meanwhile is not waited for."""
    go = Event()

    class Slow(Launched):
        def run(self) -> None:
            assert go.wait(30 * slowness())
            super().run()

    spark = Application(job, home, Slow, local=True)
    spark.begin([attempt(1, folder), attempt(2, folder)])
    go.set()
    spark.wait()
    spark.begin([attempt(3, folder)])
    spark.close()
    with pytest.raises(TransientError, match="words 3:1: it was ended before it was done"):
        spark.wait()
    assert sockets() == []


def test_once_killed_nothing_is_started(job: Job, home: Path, folder: Path) -> None:
    spark = Application(job, home, Launched, local=True)
    spark.emit(*attempt(1, folder))
    spark.kill()
    spark.close()
    with pytest.raises(TransientError, match="words 2:1: this task is being ended"):
        spark.emit(*attempt(2, folder))


@pytest.mark.parametrize(
    "said",
    [
        b"\xff" * 64,
        b"\0\0\0\x04evil",
        b"\0\0\0\x05begun",
        b"\0\0\0\0",
        b"\xff\xff\xff\xff" + (1 << 62).to_bytes(8, "big"),
        b"\xff\xff\xff\xff" + (5).to_bytes(8, "big"),
        b"\0",
    ],
    ids=repr,
)
def test_a_driver_that_speaks_otherwise_is_ended(job: Job, home: Path, folder: Path, said: bytes) -> None:
    class Babbling(Launched):
        def run(self) -> None:
            with Client(self.socket) as submitter:
                os.write(submitter.fileno(), said)
                if len(said) > 1:
                    assert self.over.wait(30 * slowness()), "never killed"

    with (
        Application(job, home, Babbling, local=True) as spark,
        pytest.raises(TransientError, match="txbatch words 1:1: "),
    ):
        spark.emit(*attempt(1, folder))
    assert sockets() == []
