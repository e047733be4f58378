"""`txbatch follow`: a call that goes on for good, and counts what comes as soon as it is there.

It is run after run by one warm application, each planned, fenced and committed like any other. Between two of them it holds
nothing: two followers, or one beside Airflow, are in each other's way as any two runs are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime

from txbatch.core.batch.plan import BatchPlan, Ranges
from txbatch.core.batch.transaction import Batch, Interval, Metadata, Run
from txbatch.core.errors import (
    ChangeTooEarly,
    IntervalNotOver,
    LeaseHeld,
    NotItsTurn,
    OutcomeUnknown,
    PartitionUnreadable,
    StaleAttempt,
    Unavailable,
)
from txbatch.core.protocol.ledger import Head
from txbatch.core.protocol.planning import plan_batch
from txbatch.run.run_names import RUN_PREFIX
from txbatch.run.runner import Runner
from txbatch.run.steps import Steps

log = logging.getLogger(__name__)
# What goes by: the database or a source is away for a while, another live run is in the way, or took the batch.
PASSING = (
    *(Unavailable, OutcomeUnknown, LeaseHeld, NotItsTurn, StaleAttempt),
    *(ChangeTooEarly, PartitionUnreadable, IntervalNotOver),
)
# Between two looks; while something is in the way each time twice as much, to the bound.
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.5, 10.0
# Looks that find nothing take this part of the time at most.
IDLE_SHARE = 0.1
# Looks whether it is to end so often.
_STEP_SECONDS = 0.1
# Yields what there is to be counted now, batch by batch as it is committed.
Look = Callable[[], Generator[Batch, None, None]]


def follow(look: Look, ended: Callable[[], bool]) -> Iterator[Batch]:
    """Yield each batch as it is committed, until `ended`, which is asked between two batches.

    What goes by is waited out. Everything else is raised: somebody must look, or start it anew.
    """
    pause = PAUSE_SECONDS
    while not ended():
        began, idle = time.process_time(), True
        try:
            with closing(look()) as batches:
                for batch in batches:
                    pause, idle = PAUSE_SECONDS, False
                    yield batch
                    if ended():
                        return
            pause = _pause_after(time.process_time() - began) if idle else PAUSE_SECONDS
        except PASSING as error:
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
            log.warning("%s; it is tried again in %g s", error, pause)
        _rest(pause, ended)


def _pause_after(seconds: float) -> float:
    """Return how long to rest after an idle look that took so much of a processor."""
    return min(max(PAUSE_SECONDS, seconds * (1 / IDLE_SHARE - 1)), PAUSE_SECONDS_MAX)


def _rest(seconds: float, ended: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not ended() and time.monotonic() < until:
        time.sleep(_STEP_SECONDS)


@dataclass
class Arrivals:
    """Looks for what is new, of a job that does not read by time. The first look also finishes what earlier calls left.

    Of less than `at_least` it waits for more, up to `seconds`: bytes of files, records of a log.
    """

    runner: Runner
    parameters: Metadata
    at_least: int = 1
    seconds: float = 0.0
    _first: bool = field(default=True, init=False)
    _since: float | None = field(default=None, init=False)
    _head: Head | None = field(default=None, init=False)

    def __call__(self) -> Generator[Batch, None, None]:
        if self._first or self._due():
            self._head = None
            yield from self.runner.run(parameters=self.parameters, until_idle=True)
            self._first, self._since = False, None

    def _as_it_stands(self, run: Run) -> Head:
        """Return the head; the one that was read last, where all batches were final then and no run has planned since."""
        ledger, name = self.runner.steps.ledger, self.runner.job.topology.name
        if self._head is None or self._head.pending or ledger.last_txid(name) + 1 != self._head.next_txid:
            self._head = ledger.head(name, run)
        return self._head

    def _due(self) -> bool:
        """Ask the spouts, as planning does, and store nothing."""
        steps = self.runner.steps
        run = Run(f"{RUN_PREFIX}follow", parameters=self.parameters)
        head = self._as_it_stands(run)
        if head.pending:
            return True
        planned = plan_batch(steps.job.topology, head, run, steps.ledger.upstream)
        if planned is None:
            self._since = None
            return False
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        size = _size(BatchPlan.from_json(planned))
        return size is None or size >= self.at_least or now - self._since >= self.seconds


def _size(plan: BatchPlan) -> int | None:
    """Return how much a batch would read, as its partitions count; None where they do not."""
    ranges = [each for of in plan.streams.values() if isinstance(of, Ranges) for each in of.partitions.values()]
    if not ranges or not all(isinstance(each.start, int) and isinstance(each.end, int) for each in ranges):
        return None
    size: int = sum(each.end - each.start for each in ranges)
    return size


@dataclass
class Clock:
    """Looks for intervals that are over, of a job that reads by time: `over` cuts them from a moment on, as of another.

    The first look also finishes what earlier calls left. One whose source is not ready is asked for again.
    """

    runner: Runner
    parameters: Metadata
    over: Callable[[datetime, datetime], list[Interval]]
    since: datetime
    _first: bool = field(default=True, init=False)

    def __call__(self) -> Generator[Batch, None, None]:
        asked = self.over(self.since, datetime.now(UTC))
        if asked or self._first:
            yield from self.runner.run_each(asked, self.parameters)
            self._first = False
            self._go_on_behind(self.runner.steps, asked)

    def _go_on_behind(self, steps: Steps, asked: list[Interval]) -> None:
        """Ask no more for what is counted. PartitionUnreadable for an interval that is not."""
        name = steps.job.topology.name
        runs = [Run(f"{RUN_PREFIX}follow", interval=each, parameters=self.parameters) for each in asked]
        for interval, head in zip(asked, steps.ledger.heads(name, runs) if runs else (), strict=True):
            if head.own is None or not head.own.succeeded:
                raise PartitionUnreadable(f"{name}: the source is not ready for {interval}")
            self.since = interval.end
