"""Process trees found by their mark, with plain Python processes."""

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from txbatch.local.processes import MARK, marked, new_mark, stop_marked

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
PARENT_OF_UNMARKED = (
    f"import subprocess, sys; subprocess.run([sys.executable, '-c', {DEAF!r}], env={{}}, start_new_session=True)"
)


@pytest.fixture
def mark() -> Iterator[str]:
    value = new_mark()
    yield value
    stop_marked(value, grace=0)


def start(program: str, mark: str) -> subprocess.Popen[bytes]:
    """A process that has written a line, or whose child has."""
    process = subprocess.Popen([sys.executable, "-c", program], env=os.environ | {MARK: mark}, stdout=subprocess.PIPE)
    assert process.stdout
    with process.stdout as output:
        output.readline()
    return process


def test_process_that_ignores_sigterm_is_killed_after_the_grace(mark: str) -> None:
    process = start(DEAF, mark)
    assert [found.pid for found in marked(mark)] == [process.pid]
    assert stop_marked(mark, grace=0.2) == 1
    assert process.wait() == -9


def test_descendant_without_the_mark_in_a_session_of_its_own_ends_too(mark: str) -> None:
    process = start(PARENT_OF_UNMARKED, mark)
    (child,) = psutil.Process(process.pid).children()
    assert MARK not in child.environ()
    assert stop_marked(mark, grace=0.2) == 2
    process.wait()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_other_marks_are_left_alone(mark: str) -> None:
    process = start(DEAF, mark)
    assert stop_marked(new_mark(), grace=0) == 0
    assert process.poll() is None
    stop_marked(mark, grace=0)
    assert process.wait() == -9


def test_ended_process_counts_no_more(mark: str) -> None:
    process = start("print(flush=True)", mark)
    process.wait()
    assert marked(mark) == []
    assert stop_marked(mark, grace=0) == 0
