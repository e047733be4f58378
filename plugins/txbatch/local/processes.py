"""Process trees found again by a mark in their environment, from any program and after any fork."""

import contextlib
import os
import secrets
from collections.abc import Iterable

import psutil

from txbatch.local.looking import looks

MARK = "TXBATCH_PROCESSES"
POLL_SECONDS = 0.05
KILL_SECONDS = 10.0


def new_mark() -> str:
    """Return a new value of `MARK`. Set the value in the environment of processes to find later."""
    return secrets.token_hex(16)


def marked(mark: str) -> list[psutil.Process]:
    """Return all live processes with the mark, and their descendants, even without the mark."""
    found = {process for process in psutil.process_iter() if _mark_of(process) == mark}
    for process in tuple(found):
        with contextlib.suppress(psutil.Error):
            found.update(process.children(recursive=True))
    return [process for process in found if _alive(process)]


def stop_marked(mark: str, grace: float) -> int:
    """End the marked processes, and return the number of processes found.

    Processes without a marked parent get SIGTERM: each then ends its own children in order. Processes left after `grace`
    seconds get SIGKILL. Look again until no process is left: a process that forks meanwhile, or ignores SIGTERM in a
    session of its own, ends too. Raise `psutil.AccessDenied` for a process of another user, and `TimeoutError` for a
    process alive after SIGKILL.
    """
    seen = set(marked(mark))
    _signal(_roots(seen), kill=False)
    for kill, seconds in ((False, grace), (True, KILL_SECONDS)):
        for _ in looks(seconds, POLL_SECONDS):
            if not (left := {process for process in seen | set(marked(mark)) if _alive(process)}):
                return len(seen)
            seen |= left
            if kill:
                _signal(left, kill=True)
    raise TimeoutError(f"processes that do not end: {sorted(process.pid for process in left)}")


def memory(pids: Iterable[int]) -> int:
    """Return the bytes of memory used by the processes together (PSS: shared memory counts once)."""
    total = 0
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            total += psutil.Process(pid).memory_full_info().pss
    return total


def _mark_of(process: psutil.Process) -> str | None:
    with contextlib.suppress(psutil.Error, OSError):
        return process.environ().get(MARK)
    return None


def _alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.pid != os.getpid() and process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _roots(processes: set[psutil.Process]) -> list[psutil.Process]:
    pids = {process.pid for process in processes}
    return [process for process in processes if _parent_of(process) not in pids]


def _parent_of(process: psutil.Process) -> int | None:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.ppid()
    return None


def _signal(processes: Iterable[psutil.Process], *, kill: bool) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill() if kill else process.terminate()
