"""Finds the live processes of a PostgreSQL server. A pid file alone is no proof: the pid may belong to a killed process still
to be reaped, or to another program by now.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

_POLL_SECONDS = 0.02
_STATUS_LINE = 7


def server_status(data: Path) -> str | None:
    """Return the live server's own status: starting, ready or stopping. None if no server of the data folder is alive."""
    if postmaster(data) is None:
        return None
    lines = _pid_file_lines(data)
    return lines[_STATUS_LINE].strip() if len(lines) > _STATUS_LINE else "starting"


def postmaster(data: Path) -> int | None:
    """Return the pid of the data folder's live server."""
    lines = _pid_file_lines(data)
    pid = lines[0] if lines else ""
    return int(pid) if pid.isdecimal() and runs_in(int(pid), data) else None


def processes_in(data: Path) -> list[int]:
    """Return the pids of all processes of a server; sessions can outlive a killed server for a moment."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal() and runs_in(int(entry), data)]


def runs_in(pid: int, data: Path) -> bool:
    """Return whether a process is a live process of the server: all processes of the server work in the data folder."""
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "postgres\n" and os.path.samefile(f"/proc/{pid}/cwd", data)
    except OSError:
        return False  # gone, somebody else's, or a zombie: that one has no working folder any more


def wait(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until the condition holds; return False if the time is over first."""
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return holds


def _pid_file_lines(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except (FileNotFoundError, PermissionError):
        return []
