"""A driver that works for nobody stops itself: the last resort, where its parent's death did not end it (R5)."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from txbatch.core.fence import Fence, FenceWatch

FENCED_EXIT_CODE = 86
_LOOK_SECONDS_MAX = 5.0


@contextmanager
def stopped_when_fenced(name: str, read: Callable[[], Fence]) -> Iterator[None]:
    """Meanwhile a thread looks at the fence, and ends this process, with FENCED_EXIT_CODE, when the attempt must stop.

    `read` raises while the fence cannot be read: here at the start that is the caller's error, later a beat missed.
    """
    watch, over, deciding = FenceWatch(read(), time.monotonic()), threading.Event(), threading.Lock()

    def look() -> None:
        while (why := watch.why_stop(_read(read), time.monotonic())) is None:
            if over.wait(min(watch.fence.lease_seconds / 8, _LOOK_SECONDS_MAX)):
                return
        with deciding:
            if not over.is_set():
                _stop(name, why)

    threading.Thread(target=look, name="fence", daemon=True).start()
    try:
        yield
    finally:
        with deciding:  # from here on the process is no longer this attempt's
            over.set()


def _stop(name: str, why: str) -> None:
    print(f"txbatch: {name}: stopped, for {why}; nothing was changed", file=sys.stderr, flush=True)
    os._exit(FENCED_EXIT_CODE)


def _read(read: Callable[[], Fence]) -> Fence | None:
    try:
        return read()
    except Exception:
        return None
