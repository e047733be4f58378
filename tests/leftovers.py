"""What a run of tests that was killed has left on this machine: its processes, and its folder in memory."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import psutil

# In the environment of all that a test starts, with the pid of its pytest. Not TXBATCH_...: those a test may take away.
MARK = "OF_THE_TESTS"
# A server of tests makes and deletes files by the thousand, which costs a disk's file system most of the time.
MEMORY = Path("/dev/shm")
PREFIX = "txbatch-tests-"
IN_MEMORY = MEMORY / f"{PREFIX}{os.getpid()}"


def sweep() -> None:
    """End the processes and remove the folders of each pytest of this user that is dead."""
    abandoned = [process for process in psutil.process_iter() if _is_abandoned(process)]
    for process in abandoned:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(abandoned, timeout=10)
    for folder in MEMORY.glob(f"{PREFIX}*"):
        if _is_dead(folder.name.removeprefix(PREFIX)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(process: psutil.Process) -> bool:
    """True for a process of a dead pytest: by its environment, or by its folder, as PostgreSQL is told no environment."""
    with suppress(psutil.Error, OSError, ValueError):
        if process.uids().real != os.getuid():
            return False
        place = Path(process.cwd())
        if place.is_relative_to(MEMORY) and place != MEMORY:
            name = place.relative_to(MEMORY).parts[0]
            return name.startswith(PREFIX) and _is_dead(name.removeprefix(PREFIX))
        mark = process.environ().get(MARK)
        return mark is not None and _is_dead(mark)
    return False


def _is_dead(pid: str) -> bool:
    return pid.isdecimal() and not psutil.pid_exists(int(pid))
