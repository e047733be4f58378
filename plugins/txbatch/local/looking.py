"""Waiting for what nobody tells: to look again and again, for so long."""

from __future__ import annotations

import time
from collections.abc import Iterator


def looks(seconds: float, every: float) -> Iterator[None]:
    """Yield for each look, with a pause between two, until so many seconds are over: once at least."""
    deadline = time.monotonic() + seconds
    yield
    while time.monotonic() < deadline:
        time.sleep(every)
        yield
