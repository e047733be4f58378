"""Lock files between processes of one machine. A lock ends with the process, however the process ends; the file stays."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def lock(file: Path, *, wait: bool = True) -> Iterator[None]:
    """Context manager. Hold a lock until the block ends. If another process holds the lock, wait, or raise BlockingIOError.

    Raise OSError if the file cannot be written.
    """
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
