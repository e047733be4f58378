"""Which processes of a PostgreSQL server are really alive. A pid file alone does not tell: its pid may be
that of a killed process that nobody has reaped, or of another program by now."""

import os
import time
from collections.abc import Callable
from pathlib import Path

_POLL_SECONDS = 0.02
_STATUS_LINE = 7


def server_status(data: Path) -> str | None:
    """The live server's own word: starting, ready or stopping. None if no server of this data folder is alive."""
    if postmaster(data) is None:
        return None
    lines = _pid_file_lines(data)
    return lines[_STATUS_LINE].strip() if len(lines) > _STATUS_LINE else "starting"


def postmaster(data: Path) -> int | None:
    """The pid of the live server of this data folder."""
    lines = _pid_file_lines(data)
    pid = lines[0] if lines else ""
    return int(pid) if pid.isdecimal() and runs_in(int(pid), data) else None


def processes_in(data: Path) -> list[int]:
    """The pids of all processes of this server; its sessions can outlive a killed server for a moment."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal() and runs_in(int(entry), data)]


def runs_in(pid: int, data: Path) -> bool:
    """True if this is a live process of the server: all of them work in its data folder."""
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "postgres\n" and os.path.samefile(f"/proc/{pid}/cwd", data)
    except OSError:
        return False  # gone, somebody else's, or a zombie: that one has no working folder any more


def wait(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until the condition holds; return False if it does not within the time."""
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return holds


def _pid_file_lines(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except (FileNotFoundError, PermissionError):
        return []
