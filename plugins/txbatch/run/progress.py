"""How far a call of many batches has come, told after each: on a terminal, or by a line of the log now and then."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import timedelta
from threading import Event, Lock, Thread

from txbatch.core.batch.transaction import Batch
from txbatch.core.text import how_many

log = logging.getLogger(__name__)
# The log is told no more often.
LOGGED_SECONDS = 10.0
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """So many batches are committed, of so many if that is known, with so many records, in so many seconds.

    Where nobody knows of how many, `behind` are planned behind them. Of the batches `found`, with `records_found`, were
    committed before the call. Of the seconds, `first` had passed when the first of the others was.

    >>> print(Progress(73, 73_000, 20.0, of=365, first=2.0))
    73 of 365 batches are committed, 73,000 records, 3,650 a second, 0:01:13 left
    >>> print(Progress(1, 1, 0.0))
    1 batch is committed, 1 record
    >>> print(Progress(20, 40, 4.0, behind=60))
    20 batches are committed, 60 more are planned, 40 records, 10 a second
    >>> print(Progress(60, 6_000, 20.0, of=61, found=40, records_found=4_000))
    60 of 61 batches are committed, 6,000 records, 100 a second, 0:00:01 left
    """

    batches: int
    records: int
    seconds: float
    of: int | None = None
    behind: int = 0
    first: float = 0.0
    found: int = 0
    records_found: int = 0

    @property
    def seconds_left(self) -> float | None:
        """Return how long the others take if they go on like those behind the first; None where nobody can tell.

        Before the first one Spark starts, and emits many by one job: what that took is not what each takes.
        """
        own = self.batches - self.found
        if not self.of or own < 2 or self.batches > self.of:
            return None
        return (self.seconds - self.first) / (own - 1) * (self.of - self.batches)

    @property
    def last(self) -> bool:
        """True at the end of several, where that is known."""
        return self.batches == self.of and self.batches > 1

    @property
    def committed(self) -> str:
        """Return how many are committed, of how many.

        >>> Progress(73, 73_000, 20.0, of=365).committed
        '73 of 365 batches are committed'
        """
        of = f" of {self.of:,}" if self.of and self.batches <= self.of else ""
        one = (self.of if of else self.batches) == 1
        return f"{self.batches:,}{of} {'batch is' if one else 'batches are'} committed"

    def __str__(self) -> str:
        said = [
            self.committed,
            *([f"{how_many(self.behind, 'more is', 'more are')} planned"] if self.behind else []),
            how_many(self.records, "record"),
        ]
        if self.seconds and self.batches > self.found:
            said.append(f"{(self.records - self.records_found) / self.seconds:,.0f} a second")
        if self.seconds_left:
            said.append(f"{timedelta(seconds=round(self.seconds_left))} left")
        return ", ".join(said)


Tell = Callable[[Progress], None]


def watch(
    batches: Iterable[Batch],
    of: int | None,
    tell: Tell,
    behind: Callable[[], int] = lambda: 0,
    found: Container[int] = (),
) -> Iterator[Batch]:
    """Yield batches, and tell after each how far the call has come; one that comes again is not counted again.

    Where nobody knows of how many, `behind` says how many are planned behind the one that was yielded last. The txids `found`
    were committed before: they say nothing of how fast the call is.
    """
    began, seen, now = time.monotonic(), set[int](), Progress(0, 0, 0.0, of)
    for batch in batches:
        if batch.txid not in seen:
            seen.add(batch.txid)
            seconds = time.monotonic() - began
            now = _after(now, batch, seconds, 0 if of else behind(), was_found=batch.txid in found)
            tell(now)
        yield batch


def _after(now: Progress, batch: Batch, seconds: float, behind: int, *, was_found: bool) -> Progress:
    records, counted = batch.records or 0, replace(now, batches=now.batches + 1, seconds=seconds, behind=behind)
    counted = replace(counted, records=now.records + records)
    if was_found:
        return replace(counted, found=now.found + 1, records_found=now.records_found + records)
    return counted if now.batches > now.found else replace(counted, first=seconds)


@contextmanager
def log_progress(topology: str, of: int | None, stage: Callable[[], str]) -> Iterator[Tell]:
    """Context manager. Yield what logs how far a call has come: at its end, where that is known, and now and then before.

    Where it comes no further for so long, that it is at work is logged instead, and the `stage` of Spark, where there is one.
    """
    signs, ended = _Signs(topology, stage, Progress(0, 0, 0.0, of)), Event()

    def look() -> None:
        while not ended.wait(_LOOK_SECONDS):
            signs.at_work()

    thread = Thread(target=copy_context().run, args=(look,), name="signs of life", daemon=True)
    thread.start()
    try:
        yield signs.tell
    finally:
        ended.set()
        thread.join()


@dataclass(slots=True)
class _Signs:
    """Logs what is told by one thread, and that it is at work by another one: no more often together."""

    topology: str
    stage: Callable[[], str]
    now: Progress
    logged: float = field(default_factory=lambda: time.monotonic())
    lock: Lock = field(default_factory=Lock)

    def tell(self, now: Progress) -> None:
        self.now = now
        self._say(str(now), last=now.last)

    def at_work(self) -> None:
        self._say(f"{self.now.committed}; at work" + (f", Spark: {stage}" if (stage := self.stage()) else ""))

    def _say(self, line: str, *, last: bool = False) -> None:
        with self.lock:
            if last or time.monotonic() - self.logged > LOGGED_SECONDS:
                self.logged = time.monotonic()
                log.info("%s: %s", self.topology, line)


def now_and_then(seconds: float, tell: Tell) -> Tell:
    """Return what tells that at the end of a call, where that is known, and so often before."""
    told = time.monotonic()

    def told_now_and_then(now: Progress) -> None:
        nonlocal told
        if now.last or time.monotonic() - told > seconds:
            told = time.monotonic()
            tell(now)

    return told_now_and_then
