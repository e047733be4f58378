"""The progress of a call with many batches: after each batch on a terminal, or now and then in a line of the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import timedelta
from threading import Event, Lock, Thread

from txbatch.core.batch.transaction import INTERVAL_KEY, Batch, Interval
from txbatch.core.text import how_many

log = logging.getLogger(__name__)
# The minimum seconds between two lines of the log.
LOGGED_SECONDS = 10.0
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """Numbers of committed batches, of their records, and of seconds since the call began. `of` is the number of all
    batches, if known.

    If `of` is unknown, `behind` more batches are planned. `found` batches, with `records_found` records, were committed
    before the call. `first` is the number of seconds until the first batch of the call was committed.

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
        """Return the estimated seconds for the remaining batches; None if there is no estimate.

        The estimate leaves out the time until the first commit: Spark starts before, and emits many batches by one job.
        """
        own = self.batches - self.found
        if not self.of or own < 2 or self.batches > self.of:
            return None
        return (self.seconds - self.first) / (own - 1) * (self.of - self.batches)

    @property
    def last(self) -> bool:
        """True after the last of several batches, if the number of batches is known."""
        return self.batches == self.of and self.batches > 1

    @property
    def committed(self) -> str:
        """Return the number of committed batches, and of all batches if known.

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
    asked: Iterable[Interval] | None = None,
) -> Iterator[Batch]:
    """Yield batches, and call `tell` with the progress after each. A batch yielded twice counts once.

    If intervals are `asked` for, a batch of another interval, finished for a killed call, does not count.

    If `of` is unknown, `behind` returns the number of planned batches behind the last batch. Batches with the txids `found`
    were committed before, and do not count for the speed.
    """
    keys = None if asked is None else {f"{INTERVAL_KEY}{each}" for each in asked}
    began, seen, now = time.monotonic(), set[int](), Progress(0, 0, 0.0, of)
    for batch in batches:
        if batch.txid not in seen and (keys is None or batch.key in keys):
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
    """Context manager. Yield a function to log the progress of a call: at the end, if known, and now and then before.

    If there is no progress for LOGGED_SECONDS, log that the call is at work, and the `stage` of Spark, if any.
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
    """Logs progress from one thread, and signs of life from another, together at most one line in LOGGED_SECONDS."""

    topology: str
    stage: Callable[[], str]
    now: Progress
    logged: float = field(default_factory=lambda: time.monotonic())
    lock: Lock = field(default_factory=Lock)

    def tell(self, now: Progress) -> None:
        self.now = now
        self._say(str(now), last=now.last)

    def at_work(self) -> None:
        done = self.now.committed if self.now.of else f"{self.now.committed} by this call"
        self._say(f"{done}; at work" + (f", Spark: {stage}" if (stage := self.stage()) else ""))

    def _say(self, line: str, *, last: bool = False) -> None:
        with self.lock:
            if last or time.monotonic() - self.logged > LOGGED_SECONDS:
                self.logged = time.monotonic()
                log.info("%s: %s", self.topology, line)


def now_and_then(seconds: float, tell: Tell) -> Tell:
    """Return a function that calls `tell` at most once in `seconds`, and at the end of a call, if known."""
    told = time.monotonic()

    def told_now_and_then(now: Progress) -> None:
        nonlocal told
        if now.last or time.monotonic() - told > seconds:
            told = time.monotonic()
            tell(now)

    return told_now_and_then
