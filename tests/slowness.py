"""How much slower this machine is now than the one that budgets were made for, and what follows from it for guards.

A guard against hanging counts what a test could have done, not seconds: on a slow or a busy machine its seconds are longer.
"""

from __future__ import annotations

import json
import os
import time
from functools import cache
from pathlib import Path
from statistics import fmean
from threading import Event, Thread

FILE = Path(__file__).parent / "budget.json"
CORES = len(os.sched_getaffinity(0))
# However busy the machine is: what hangs is found, late.
PACE_LEAST = 0.1
# How often a run measures the speed of the machine, in seconds: other work makes the machine slower and faster again.
LOOK_SECONDS = 20.0


@cache
def slowness() -> float:
    """Return by how much, 1 at least, when it was asked first."""
    return times_slower(min(same_work() for _ in range(5)))


def times_slower(seconds: float) -> float:
    """Return how many times longer than on the machine of the budgets the same work took, 1 at least."""
    return max(1.0, seconds / json.loads(FILE.read_text(encoding="utf-8"))["yardstick"])


def same_work() -> float:
    """Return the CPU seconds that this thread takes now for work that is always the same."""
    before = time.thread_time()
    sum(number * number % 7 for number in range(400_000))
    return time.thread_time() - before


class Speedometer:
    """How slow the machine is along a run, measured now and then by a thread of its own.

    Two virtual cores may be one real core: each is slower while the other works. So the mean of all looks counts, of looks
    while Spark and servers work too; the best of a few looks finds the moment in which the other core waits.
    """

    def __init__(self, seconds: float = LOOK_SECONDS) -> None:
        self.looks = [times_slower(same_work())]
        self._seconds, self._ended = seconds, Event()
        Thread(target=self._measure, name="speedometer", daemon=True).start()

    def mean(self) -> float:
        """Return by how much the machine was slower on the average, 1 at least."""
        return fmean(self.looks)

    def end(self) -> None:
        """Measure no more."""
        self._ended.set()

    def _measure(self) -> None:
        while not self._ended.wait(self._seconds):
            self.looks.append(times_slower(same_work()))


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
