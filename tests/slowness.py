"""How much slower this machine is now than the one that budgets were made for, and what follows from it for guards.

A guard against hanging counts what a test could have done, not seconds: on a slow or a busy machine its seconds are longer.
"""

from __future__ import annotations

import json
import os
import time
from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "budget.json"
CORES = len(os.sched_getaffinity(0))
# However busy the machine is: what hangs is found, late.
PACE_LEAST = 0.1


@cache
def slowness() -> float:
    """Return by how much, 1 at least, when it was asked first."""
    return slowness_now()


def slowness_now() -> float:
    """Return by how much, 1 at least."""
    return max(1.0, yardstick() / json.loads(FILE.read_text(encoding="utf-8"))["yardstick"])


def yardstick() -> float:
    """CPU seconds that this machine takes now for work that is always the same."""

    def once() -> float:
        before = time.process_time()
        sum(number * number % 7 for number in range(400_000))
        return time.process_time() - before

    return min(once() for _ in range(5))


def pace() -> float:
    """Return how much of a second of an idle machine of the usual speed a second by the clock is now."""
    others = max(1.0, os.getloadavg()[0] / CORES)
    return max(PACE_LEAST, 1 / (slowness() * others))


class Patience:
    """So many seconds of an idle machine of the usual speed, which are used up as the clock goes on."""

    def __init__(self, seconds: float) -> None:
        self.left, self.seen = seconds, time.monotonic()

    def lasts(self) -> bool:
        """Take off what went by since the last call; return whether some is left."""
        now = time.monotonic()
        self.left -= (now - self.seen) * pace()
        self.seen = now
        return self.left > 0
