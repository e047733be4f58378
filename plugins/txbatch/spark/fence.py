"""A driver that works for nobody stops itself: the last resort, where its parent's death did not end it (R5)."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

from txbatch.core.fence import Fence, FenceWatch

FENCED_EXIT_CODE = 86
_LOOK_SECONDS_MAX = 5.0


def stop_when_fenced(name: str, read: Callable[[], Fence]) -> None:
    """Look at the fence until this process ends, in a thread; end it at once, with FENCED_EXIT_CODE, when it must stop.

    `read` raises while the fence cannot be read: here at the start that is the caller's error, later a beat missed.
    """
    watch = FenceWatch(read(), time.monotonic())
    threading.Thread(target=_look, args=(name, watch, read), name="fence", daemon=True).start()


def _look(name: str, watch: FenceWatch, read: Callable[[], Fence]) -> None:
    while (why := watch.why_stop(_read(read), time.monotonic())) is None:
        time.sleep(min(watch.fence.lease_seconds / 8, _LOOK_SECONDS_MAX))
    print(f"txbatch: {name}: stopped, for {why}; nothing was changed", file=sys.stderr, flush=True)
    os._exit(FENCED_EXIT_CODE)


def _read(read: Callable[[], Fence]) -> Fence | None:
    try:
        return read()
    except Exception:
        return None
