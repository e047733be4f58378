"""Processes that begin as copies of one which has imported everything: real ones, and far cheaper than a Python of their own.

The one that is copied has no thread, no connection and no test in it: it is started anew, and only imports. A copy is the
leader of a session, is killed, stopped and fenced like any other process, and has the environment that it is given.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from txbatch import settings

ROOT = settings.project_root()
CONTEXT = get_context("forkserver")
# What the command needs; and the tasks of DAGs.
OF_COMMANDS = ("run", "follow", "restate", "verify", "retention", "rebuild", "change", "plan.plan", "project.project")
COMMAND = (
    *("txbatch.cli.main", "txbatch.wiring", "txbatch.launch.driver", "without_spark"),
    *(f"txbatch.cli.{name}" for name in OF_COMMANDS),
    *(f"txbatch.cli.reading.{name}" for name in ("status", "batches", "query", "ask", "why", "as_of")),
)
AIRFLOW = ("dag_tasks", "txbatch.orchestration.operators", "without_spark")


def start(imported: Sequence[str], environment: Mapping[str, str]) -> ForkServerContext:
    """Start the process that is copied, unless it is there: whoever comes first says what it has imported."""
    CONTEXT.set_forkserver_preload(list(imported))
    before = dict(os.environ)
    os.environ.update(environment, PYTHONPATH=f"{ROOT / 'plugins'}:{ROOT / 'tests'}")
    try:
        ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return CONTEXT


class Fork:
    """A program, and what it said: what Popen is for a Python of its own."""

    def __init__(
        self,
        program: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        imported: Sequence[str] = COMMAND,
    ) -> None:
        """Start it. Its output goes to two files in a new folder."""
        folder.mkdir()
        self.said = folder / "out", folder / "err"
        given = program, tuple(arguments), dict(environment), *self.said
        self.process = start(imported, environment).Process(target=run, args=given)
        self.process.start()
        self.pid = self.process.pid or 0
        while self.poll() is None and not self.said[1].exists():  # not the leader of its session before
            time.sleep(0.005)

    @property
    def returncode(self) -> int | None:
        """The exit code, minus the number of the signal that killed it, or None."""
        return self.process.exitcode

    def poll(self) -> int | None:
        """The same."""
        return self.process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return what it said, once it has ended."""
        self.process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("a fork", timeout or 0.0)
        out, err = (file.read_text() if file.exists() else "" for file in self.said)
        return out, err

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Fork:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.join()


def told_with_airflow(program: str, *arguments: str, folder: Path, **environment: str) -> Any:
    """What a program prints as JSON in its last line, that has Airflow and txbatch at hand, and its home in this folder."""
    given = os.environ | {"AIRFLOW_HOME": str(folder / "airflow")} | environment
    fork = Fork(program, arguments, given, Path(mkdtemp(dir=folder)) / "said", AIRFLOW)
    out, err = fork.communicate()
    assert fork.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def run(program: str, arguments: tuple[str, ...], environment: dict[str, str], out: Path, err: Path) -> None:
    """What the copy does."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    for number, file in enumerate((out, err), 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    sys.argv = ["-c", *arguments]
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(program, names)  # a copy has nothing else to do
