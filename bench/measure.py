"""Interleaved timing: every contestant runs once before any of them runs again, so that noise falls on all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

# Runs by the length of the first one, in seconds: noise matters less where a run is long.
REPEATS = ((30, 5), (300, 3))


@dataclass
class Stopwatch:
    """What a contestant reports: seconds of the part that counts, and anything else worth keeping."""

    seconds: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the time of a block; preparing and cleaning up stay outside."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began


Contestant = Callable[[Stopwatch], None]


@dataclass(frozen=True)
class Figure:
    """A ratio that is promised: `measure` / `against`, at least and aimed at. `higher`: the larger the better.

    Without `against` it is the measure itself, in milliseconds.
    """

    name: str
    measure: str
    against: str | None
    at_least: float
    aim: float
    higher: bool = False


def interleaved(contestants: Mapping[str, Contestant], repeats: int | None = None) -> dict[str, list[Stopwatch]]:
    """Every contestant's runs. `repeats` None: five where the longest first run is under 30 s, three under 5 min, else one."""
    runs: dict[str, list[Stopwatch]] = {name: [] for name in contestants}
    wanted = repeats or 1
    while len(next(iter(runs.values()))) < wanted:
        for name, contestant in contestants.items():
            watch = Stopwatch()
            contestant(watch)
            runs[name].append(watch)
            print(f"    {name}: {watch.seconds:.3f} s", flush=True)
        if repeats is None and wanted == 1:
            longest = max(found[0].seconds for found in runs.values())
            wanted = next((count for seconds, count in REPEATS if longest < seconds), 1)
    return runs


def median(runs: list[Stopwatch]) -> float:
    """The median of the runs' seconds."""
    return statistics.median(run.seconds for run in runs)
