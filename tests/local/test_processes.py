"""Process trees found by their mark, with plain Python processes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from capabilities import as_a_user

from txbatch.local.processes import MARK, boot, marked, new_mark, stop_marked

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
PARENT_OF_UNMARKED = (
    f"import subprocess, sys; subprocess.run([sys.executable, '-c', {DEAF!r}], env={{}}, start_new_session=True)"
)
# What Airflow's worker does before its first task, in a session that its scheduler leads: nobody but root reads its environment.
HIDDEN = f"import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); {DEAF}"
PARENT_OF_HIDDEN = f"import os\nif os.fork():\n    os.wait()\nelse:\n    exec({HIDDEN!r})"
LINUX_ALONE = pytest.mark.skipif(sys.platform != "linux", reason="the system hides no environment from its user")


@pytest.fixture
def mark() -> Iterator[str]:
    value = new_mark()
    yield value
    stop_marked(value, grace=0)


def start(program: str, mark: str, *, leads: bool = False) -> subprocess.Popen[bytes]:
    """A process that has written a line, or whose child has; one that leads a session of its own if asked for."""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env=os.environ | {MARK: mark},
        stdout=subprocess.PIPE,
        start_new_session=leads,
    )
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


@contextmanager
def orphan(mark: str) -> Iterator[tuple[int, psutil.Process]]:
    """Context manager. The session of a leader that was killed, and its child, whose environment is hidden."""
    leader = start(PARENT_OF_HIDDEN, mark, leads=True)
    (child,) = psutil.Process(leader.pid).children()
    leader.kill()
    leader.wait()
    try:
        yield leader.pid, child
    finally:
        if child.is_running():
            child.kill()


@LINUX_ALONE
def test_a_hidden_process_is_found_by_its_session_once_its_parent_was_killed(mark: str) -> None:
    with orphan(mark) as (session, child), as_a_user():
        assert marked(mark) == []
        assert marked(mark, [session]) == [child]
        assert stop_marked(mark, 0.2, [session]) == 1
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


@LINUX_ALONE
def test_hidden_processes_of_other_sessions_are_left_alone(mark: str) -> None:
    """Also of a session with the number of an old one, whose leader is another program."""
    other = start(PARENT_OF_HIDDEN, new_mark(), leads=True)
    (child,) = psutil.Process(other.pid).children()
    with as_a_user():
        assert marked(mark, [other.pid, os.getpid()]) == []
    child.kill()
    other.wait()
    assert boot(), "by which a session of before the machine's last start is told from another one"
