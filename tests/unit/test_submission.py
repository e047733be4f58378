"""What spark-submit is told, wherever Spark runs."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from txbatch import Topology
from txbatch.embedded import java
from txbatch.launch import submission
from txbatch.launch.job_file import Job
from txbatch.launch.submission import SparkSubmit, Submission


@pytest.mark.parametrize("local", [True, False])
def test_the_drivers_page_is_off_wherever_spark_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    monkeypatch.setattr(java, "java_home", lambda home: tmp_path)
    monkeypatch.setattr(java, "spark_submit_java_options", lambda *_, **__: "")
    monkeypatch.setattr(submission, "package_zip", lambda home: tmp_path)
    job = Job("job", tmp_path, Topology("job"), "code")
    told = submission.application(job, "name", [], tmp_path, local=local, short=True)
    assert told.conf["spark.ui.enabled"] == "false"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Printing(SparkSubmit):
    """Runs a Python program in the place of spark-submit."""

    def __init__(self, program: str) -> None:
        super().__init__(Submission("name", "job.py", (), {}, "", {}))
        self.program = program

    def command(self) -> list[str]:
        return [sys.executable, "-c", f"import os, subprocess, sys; {self.program}"]


def on_a_terminal(program: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a terminal has once the program has run."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    Printing(program).run()
    return terminal.getvalue()


def test_on_a_terminal_all_that_spark_prints_comes_by_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has taken stderr over meanwhile, a line of progress, stands below these lines."""
    program = "print('read', flush=True); os.write(2, b'\\xff warned\\nlast')"
    assert on_a_terminal(program, monkeypatch) == "read\n\ufffd warned\nlast\n"


def test_a_process_that_spark_left_does_not_hold_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    said, left = on_a_terminal("print('said'); print(subprocess.Popen(['sleep', '60']).pid)", monkeypatch).split()
    os.kill(int(left), signal.SIGKILL)
    assert said == "said"
    assert time.monotonic() - began < 30


def test_elsewhere_spark_prints_to_stderr_itself(capfd: pytest.CaptureFixture[str]) -> None:
    Printing("print('read', flush=True); os.write(2, b'warned')").run()
    assert capfd.readouterr() == ("", "read\nwarned")
