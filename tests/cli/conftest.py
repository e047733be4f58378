"""The command `txbatch` in this process on a fresh database, with a stand-in for spark-submit; and in processes, with either."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from without_spark import WithoutSpark

from txbatch import settings
from txbatch.cli.main import main
from txbatch.launch.job_file import LAST_LINES

ROOT = settings.project_root()
Txbatch = Callable[..., Result]
COMMAND = "from txbatch.cli.main import main; main(prog_name='txbatch')"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "java").symlink_to(ROOT / ".txbatch" / "java")
    monkeypatch.setenv("TXBATCH_HOME", str(folder))
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
    with _starting(COMMAND) as begin:
        yield begin


@pytest.fixture
def process_without_spark() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """The same; partials are computed without Spark."""
    stand_in = (
        "import txbatch.wiring; from without_spark import WithoutSpark; txbatch.wiring.Application = WithoutSpark"
    )
    with _starting(f"{stand_in}; {COMMAND}") as begin:
        yield begin


@contextmanager
def _starting(code: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Context manager. What starts processes; those that a failed test leaves behind are killed at its end."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-c", code, *arguments]
        given = {**os.environ, "PYTHONPATH": f"{ROOT / 'plugins'}:{ROOT / 'tests'}", **environment}
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, env=given, text=True, stdout=pipe, stderr=pipe, cwd=ROOT, start_new_session=True
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        with process:
            pass
