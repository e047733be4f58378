"""Stops a superseded or orphaned driver, if the parent's death did not stop the driver (R5)."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from txbatch.core.batch.heartbeat import Heartbeat, HeartbeatWatch

FENCED_EXIT_CODE = 86
_LOOK_SECONDS_MAX = 5.0


@contextmanager
def stop_when_superseded(name: str, read: Callable[[], Heartbeat]) -> Iterator[None]:
    """Context manager. A thread reads the heartbeat, and ends the process with FENCED_EXIT_CODE if the attempt must stop.

    An error of `read` before the block is raised; a later error counts as a missed beat.
    """
    watch, over, deciding = HeartbeatWatch(read(), time.monotonic()), threading.Event(), threading.Lock()

    def look() -> None:
        while (why := watch.why_stop(_read(read), time.monotonic())) is None:
            if over.wait(min(watch.heartbeat.lease_seconds / 8, _LOOK_SECONDS_MAX)):
                return
        with deciding:
            if not over.is_set():
                _stop(name, why)

    threading.Thread(target=look, name="heartbeat", daemon=True).start()
    try:
        yield
    finally:
        with deciding:  # from here on the process is no longer this attempt's
            over.set()


def _stop(name: str, why: str) -> None:
    print(f"txbatch: {name}: stopped, for {why}; nothing was changed", file=sys.stderr, flush=True)
    os._exit(FENCED_EXIT_CODE)


def _read(read: Callable[[], Heartbeat]) -> Heartbeat | None:
    try:
        return read()
    except Exception:
        return None
