"""Interleaved timing: every contestant runs once before any of them runs again, so that noise falls on all alike."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any
from unittest.mock import patch

# Runs by the length of the first one, in seconds: noise matters less where a run is long.
REPEATS = [(30, 5), (300, 3)]


class LeftOut(Exception):
    """A contestant that cannot be had here, and why; the others run without it, and the result says so."""


@dataclass
class Stopwatch:
    """What a contestant reports: seconds of the part that counts, and anything else worth keeping."""

    seconds: float = 0.0
    cpu: float = 0.0  # seconds of this process and its ended children, not of PostgreSQL
    notes: dict[str, Any] = field(default_factory=dict)
    left_out: str = ""

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the time of a block; preparing and cleaning up stay outside."""
        began, used = time.perf_counter(), sum(os.times()[:4])
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began
            self.cpu += sum(os.times()[:4]) - used


Contestant = Callable[[Stopwatch], None]


@contextmanager
def calls_of(name: str, watch: Stopwatch, note: str) -> Iterator[None]:
    """Context manager. Note how often the block calls what has this name, which is called all the same."""
    with patch(name, wraps=resolve_name(name)) as called:
        yield
    watch.notes[note] = called.call_count


def noted(runs: Mapping[str, list[Stopwatch]], name: str, note: str) -> dict[str, list[Stopwatch]]:
    """A note of a contestant's runs, as a contestant that a figure can name."""
    return {f"{name}, {note}": [Stopwatch(float(run.notes[note])) for run in runs[name]]}


def paired(runs: Mapping[str, list[Stopwatch]], name: str, against: str) -> dict[str, list[Stopwatch]]:
    """The ratio of two contestants in each round, as a contestant that a figure can name: what slows one round slows both."""
    rounds = zip(runs[name], runs[against], strict=True)
    return {f"{name} / {against}": [Stopwatch(one.seconds / other.seconds) for one, other in rounds]}


@dataclass(frozen=True)
class Figure:
    """A ratio, `measure` / `against`, and what is promised of it, if anything. `higher`: the larger the better.

    Without `against` it is the measure itself in a unit: 0.001 of a second, or whatever else was measured.
    """

    name: str
    measure: str
    against: str | None
    at_least: float | None = None
    aim: float | None = None
    higher: bool = False
    unit: float = 0.001


def interleaved(contestants: Mapping[str, Contestant], repeats: int | None = None) -> dict[str, list[Stopwatch]]:
    """Every contestant's runs. `repeats` None: five where the longest first run is under 30 s, three under 5 min, else one.

    Who is left out has one run, which says why.
    """
    runs: dict[str, list[Stopwatch]] = {name: [] for name in contestants}
    wanted, done = repeats or 1, 0
    while done < wanted:
        for name, contestant in contestants.items():
            if not any(run.left_out for run in runs[name]):
                runs[name].append(_run(name, contestant))
        done += 1
        if repeats is None and done == 1:
            longest = max(found[0].seconds for found in runs.values())
            wanted = next((count for seconds, count in REPEATS if longest < seconds), 1)
    return runs


def _run(name: str, contestant: Contestant) -> Stopwatch:
    watch = Stopwatch()
    try:
        contestant(watch)
    except LeftOut as error:
        print(f"    {name}: left out, {error}", flush=True)
        return Stopwatch(left_out=str(error))
    print(f"    {name}: {watch.seconds:.3f} s, CPU {watch.cpu:.3f} s", flush=True)
    return watch


def median(runs: list[Stopwatch]) -> float:
    """The median of the runs' seconds."""
    return statistics.median(run.seconds for run in runs)
