"""Process trees found again by a mark in their environment, from any program and after any fork.

Linux hides the environment of some processes from all but root: Airflow's workers ask for it, to protect their secrets. The
parent of such a process has the mark. If the parent was killed, the session of the parent is what is left to find it by.
"""

import contextlib
import os
import secrets
from collections.abc import Collection, Iterable
from pathlib import Path

import psutil

from txbatch.local.looking import looks

MARK = "TXBATCH_PROCESSES"
BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")
POLL_SECONDS = 0.05
KILL_SECONDS = 10.0


def new_mark() -> str:
    """Return a new value of `MARK`. Set the value in the environment of processes to find later."""
    return secrets.token_hex(16)


def boot() -> str:
    """Return the name of this start of the machine, empty if the system has none. After the next start, a session with the
    same number belongs to another program.
    """
    with contextlib.suppress(OSError):
        return BOOT_FILE.read_text().strip()
    return ""


def marked(mark: str, sessions: Collection[int] = ()) -> list[psutil.Process]:
    """Return all live processes with the mark, and their descendants, even without the mark.

    `sessions`: sessions that processes with the mark have led. If the leader has ended, also return processes of the session
    with an environment that this user cannot read.
    """
    found = {process for process in psutil.process_iter() if _is_ours(process, mark, sessions)}
    for process in tuple(found):
        with contextlib.suppress(psutil.Error):
            found.update(process.children(recursive=True))
    return [process for process in found if _alive(process)]


def stop_marked(mark: str, grace: float, sessions: Collection[int] = ()) -> int:
    """End the processes that `marked` returns, and return the number of processes found.

    Processes without a marked parent get SIGTERM: each then ends its own children in order. Processes left after `grace`
    seconds get SIGKILL. Look again until no process is left: a process that forks meanwhile, or ignores SIGTERM in a
    session of its own, ends too. Raise `psutil.AccessDenied` for a process of another user, and `TimeoutError` for a
    process alive after SIGKILL.
    """
    seen = set(marked(mark, sessions))
    _signal(_roots(seen), kill=False)
    for kill, seconds in ((False, grace), (True, KILL_SECONDS)):
        for _ in looks(seconds, POLL_SECONDS):
            if not (left := {process for process in seen | set(marked(mark, sessions)) if _alive(process)}):
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


def _is_ours(process: psutil.Process, mark: str, sessions: Collection[int]) -> bool:
    try:
        return process.environ().get(MARK) == mark
    except psutil.AccessDenied:
        return bool(sessions) and _is_left(process, sessions)
    except (psutil.Error, OSError):
        return False


def _is_left(process: psutil.Process, sessions: Collection[int]) -> bool:
    """Return whether the process is of this user, and of a session whose leader has ended."""
    with contextlib.suppress(psutil.Error, OSError):
        session = os.getsid(process.pid)
        return session in sessions and process.uids().real == os.getuid() and _has_ended(session)
    return False


def _has_ended(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return not _alive(psutil.Process(pid))
    return True


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
