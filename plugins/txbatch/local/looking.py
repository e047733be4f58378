"""Wait for a state without notifications: look again and again, for a limited time."""

from __future__ import annotations

import time
from collections.abc import Iterator


def looks(seconds: float, every: float) -> Iterator[None]:
    """Yield for each look, with a pause between two looks, until the seconds are over: at least once."""
    deadline = time.monotonic() + seconds
    yield
    while time.monotonic() < deadline:
        time.sleep(every)
        yield
