"""A Spark driver that works for nobody stops itself: once in a real spark-submit, where its parent's death tells nothing.

Else the driver is the real one, held where it would start Spark.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import ceil
from pathlib import Path
from subprocess import Popen

import pytest
from slowness import slowness
from sqlalchemy import Engine, text
from support import until

from txbatch import settings
from txbatch.core.batch.transaction import Assignment, Batch, Run
from txbatch.core.errors import StaleAttempt
from txbatch.launch.job_file import load_job
from txbatch.launch.submission import spark_environment, submission
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.spark.process.heartbeat import FENCED_EXIT_CODE
from txbatch.storage.staging import AttemptFolder
from txbatch.wiring import open_steps

pytestmark = [pytest.mark.timeout(300), pytest.mark.rule("R5")]
WriteJob = Callable[[str, str], str]
HELD = """
import os, time
def wait(record):
    open(os.environ["HELD"], "w").close()
    while os.path.exists(os.environ["HELD"]):
        time.sleep(0.02)
    return True
topology = Topology("held")
stream = topology.new_stream("in", FixedBatchSpout("word string", 1, "a"))
stream.filter(wait).group_by("word").persistent_aggregate(OpaqueState("held"), count=Count())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""
HELD_BEFORE_SPARK = (
    """
import os, time
from txbatch.launch import driver
def session(name):
    open(os.environ["HELD"], "w").close()
    while os.path.exists(os.environ["HELD"]):
        time.sleep(0.02)
    raise TimeoutError("nobody stopped this driver")
driver.session = session
"""
    + HELD
)
# A task that has begun an attempt, and whose spark-submit runs somewhere else.
TASK = """
import sys, threading
from txbatch import settings
from txbatch.core.batch.transaction import Run
from txbatch.launch.job_file import load_job
from txbatch.wiring import open_steps
steps = open_steps(load_job(sys.argv[1]), settings.resolve(), lease_seconds=int(sys.argv[2]))
def submit(folder, assignment):
    print(folder.uri, flush=True)
    threading.Event().wait()
run = Run("run")
steps.emit_batch(steps.initialize_transaction(run), run, submit)
"""


@pytest.fixture
def started() -> Iterator[list[Popen[str]]]:
    """What is left of these at the end is killed, with all that they began."""
    processes: list[Popen[str]] = []
    yield processes
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with process:
            pass


class Elsewhere:
    """An attempt whose task and driver are no relatives: of a spark-submit in the middle of its job, or without Spark."""

    def __init__(
        self, job: str, home: Path, held: Path, lease_seconds: int, started: list[Popen[str]], *, spark: bool = False
    ) -> None:
        self.held, self.started = held, started
        self.task = self._start([sys.executable, "-P", "-c", TASK, job, str(lease_seconds)], dict(os.environ))
        assert self.task.stdout is not None
        folder = AttemptFolder(self.task.stdout.readline().strip())
        loaded = load_job(job)
        what = submission(loaded, folder.read_assignment(), folder.uri, home, local=True)
        command = [sys.executable]
        if spark:
            command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[1]"]
            command += [part for pair in what.conf.items() for part in ("--conf", "=".join(pair))]
            command += ["--py-files", what.py_files]
        command += [what.application, *what.arguments]
        self.spark = self._start(command, {**spark_environment(), **what.environment, "HELD": str(held)})
        until(lambda: held.exists() or self.spark.poll() is not None, seconds=120, every=0.02)
        assert self.spark.poll() is None, self.spark.communicate()

    def _start(self, command: list[str], environment: dict[str, str]) -> Popen[str]:
        environment = {**environment, "PYTHONPATH": str(settings.project_root() / "plugins")}
        pipe = subprocess.PIPE
        process = Popen(command, env=environment, text=True, stdout=pipe, stderr=pipe, start_new_session=True)
        self.started.append(process)
        return process

    def told(self) -> str:
        """What spark-submit said when it had ended by itself."""
        out, err = self.spark.communicate(timeout=60 * slowness())  # the driver's stderr comes out of Java's stdout
        assert self.spark.returncode == FENCED_EXIT_CODE, out + err
        (line,) = [line for line in (out + err).splitlines() if line.startswith("txbatch: ")]
        return line


def attempt_statuses(engine: Engine) -> list[tuple[str, str]]:
    return [(row["attempt"], row["status"]) for row in LedgerReader(engine).attempts("held")]


def test_a_driver_whose_task_was_killed(
    home: Path,
    postgres_url: str,
    write_job: WriteJob,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    started: list[Popen[str]],
) -> None:
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    lease = ceil(3 * slowness())
    attempt = Elsewhere(write_job("held.py", HELD), home, tmp_path / "held", lease, started, spark=True)
    assert attempt.spark.poll() is None
    attempt.task.kill()
    assert attempt.told() == (
        f"txbatch: held 1:1: stopped, for its task has not renewed its lease for {lease} s; nothing was changed"
    )


def test_a_driver_whose_place_was_taken(
    home: Path,
    postgres_url: str,
    engine: Engine,
    write_job: WriteJob,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    started: list[Popen[str]],
) -> None:
    """Its task lives and renews nothing more; the newer attempt tells the driver at once."""
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    job = write_job("held.py", HELD_BEFORE_SPARK)
    attempt = Elsewhere(job, home, tmp_path / "held", ceil(8 * slowness()), started)
    newer = open_steps(load_job(job), settings.resolve())
    batch = newer.initialize_transaction(Run("run"))
    assert isinstance(batch, Batch)
    seen: list[str] = []

    def submit(folder: AttemptFolder, assignment: Assignment) -> None:
        seen.append(attempt.told())
        raise TimeoutError("that is all")

    with pytest.raises(TimeoutError):
        newer.emit_batch(batch, Run("run"), submit)
    assert seen == ["txbatch: held 1:1: stopped, for 1:2 took its place; nothing was changed"]
    assert attempt_statuses(engine) == [("1:2", "failed"), ("1:1", "superseded")]


def test_a_database_that_was_deleted_while_a_driver_lives(
    home: Path,
    postgres_url: str,
    engine: Engine,
    write_job: WriteJob,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    started: list[Popen[str]],
) -> None:
    """The new database hands out 1:1 again: the old driver has a folder of its own, and is told to stop."""
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    job = write_job("held.py", HELD_BEFORE_SPARK)
    zombie = Elsewhere(job, home, tmp_path / "held", 120, started)
    zombie.task.kill()
    tables = "batch, batch_key, attempt, partition, consumed"
    with engine.begin() as connection:
        connection.execute(text(f"TRUNCATE {', '.join(f'txbatch.{name}' for name in tables.split(', '))}"))
    steps = open_steps(load_job(job), settings.resolve())
    batch = steps.initialize_transaction(Run("run"))
    assert isinstance(batch, Batch)
    folders: list[str] = []

    def submit(folder: AttemptFolder, assignment: Assignment) -> None:
        folders.append(folder.uri)
        assert str(assignment.attempt) == "1:1"
        assert zombie.told().endswith("stopped, for 1:1 took its place; nothing was changed")
        raise TimeoutError("that is all")

    with pytest.raises(TimeoutError):
        steps.emit_batch(batch, Run("run"), submit)
    left = sorted(path.name for path in (home / "staging" / "held" / "1").iterdir())
    assert len(left) == 2
    assert all(name.startswith("1-") for name in left)


def test_the_task_of_an_attempt_whose_place_was_taken(
    home: Path, postgres_url: str, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its spark-submit ends with FENCED_EXIT_CODE; what the task says is why."""
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    steps = open_steps(load_job(write_job("held.py", HELD)), settings.resolve())
    batch = steps.initialize_transaction(Run("run"))
    assert isinstance(batch, Batch)

    def fail(*_: object) -> None:
        raise TimeoutError("not this one")

    def submit(*_: object) -> None:
        with pytest.raises(TimeoutError):
            steps.emit_batch(batch, Run("run"), fail)
        raise ChildProcessError("spark-submit ended with 86")

    with pytest.raises(StaleAttempt, match=r"held 1:1: 1:2 took its place; nothing was changed"):
        steps.emit_batch(batch, Run("run"), submit)
