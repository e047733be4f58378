"""The command `txbatch` in this process on a fresh database, with a stand-in for spark-submit; and in processes, with either."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from forks import Fork
from kills import Start
from without_spark import WithoutSpark

from txbatch import settings
from txbatch.cli.main import main
from txbatch.cli.project import dag_files
from txbatch.launch.job_file import LAST_LINES

ROOT = settings.project_root()
Txbatch = Callable[..., Result]
# What Airflow says of a folder of DAGs, which takes it three seconds: asked once for each folder.
IMPORT_ERRORS = cache(dag_files._import_errors)
COMMAND = "from txbatch.cli.main import main; main(prog_name='txbatch')"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose path has what a shell and a URI would have to encode."""
    folder = tmp_path / "ho me Ü#1 100%20"
    folder.mkdir()
    (folder / "java").symlink_to(ROOT / ".txbatch" / "java")
    monkeypatch.setenv("TXBATCH_HOME", str(folder))
    monkeypatch.setattr(dag_files, "_import_errors", IMPORT_ERRORS)
    return folder


@pytest.fixture
def txbatch(home: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Txbatch:
    """Calls a command on a fresh migrated database; partials are computed without Spark."""
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setattr("txbatch.wiring.Application", WithoutSpark)

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments), prog_name="txbatch")

    return call


@pytest.fixture
def write_job(tmp_path: Path) -> Callable[[str, str], str]:
    """Writes a job file: its head imports everything, and its last lines are those of any job."""

    def write(name: str, text: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"from txbatch import *\n{text}" + ("" if "__main__" in text else f"\n{LAST_LINES}\n"))
        return str(path)

    return write


@pytest.fixture
def process() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the command in a process group of its own, for what a test in this process cannot do."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-c", COMMAND, *arguments]
        given = {**os.environ, "PYTHONPATH": str(ROOT / "plugins"), **environment}
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, env=given, text=True, stdout=pipe, stderr=pipe, cwd=ROOT, start_new_session=True
        )
        started.append(process)
        return process

    yield begin
    end(started)


@pytest.fixture
def fork(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Fork]]:
    """Starts a Python program in a process group of its own, with txbatch imported; cheaper."""
    started: list[Fork] = []

    def begin(program: str, *arguments: str, **environment: str) -> Fork:
        folder = tmp_path_factory.mktemp("fork") / "said"
        started.append(Fork(program, arguments, {**os.environ, **environment}, folder))
        return started[-1]

    yield begin
    end(started)


@pytest.fixture
def process_without_spark(fork: Callable[..., Fork]) -> Callable[..., Fork]:
    """Starts the command as `process` does; partials are computed without Spark."""
    stand_in = (
        "import txbatch.wiring; from without_spark import WithoutSpark; txbatch.wiring.Application = WithoutSpark"
    )
    return partial(fork, f"{stand_in}; {COMMAND}")


def end(started: Sequence[subprocess.Popen[str] | Fork]) -> None:
    """Kill what a failed test leaves behind."""
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        with process:
            pass


@pytest.fixture
def start(home: Path, postgres_url: str, process: Start) -> Iterator[Start]:
    """Starts `txbatch` on a fresh database; what is left of its process groups at the end is killed."""
    all_started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        started = process(*arguments, **{"TXBATCH_DATABASE_URL": postgres_url, **environment})
        all_started.append(started)
        return started

    yield begin
    for started in all_started:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        with started:  # closes its pipes and waits
            pass
