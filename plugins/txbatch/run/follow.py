"""`txbatch follow`: a call without end, to count new records soon after they arrive.

One warm application does run after run; each run is planned, fenced and committed like any run. Between two runs the
follower holds nothing. Two followers, or a follower and Airflow, may get in each other's way like any two runs.
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
# Errors that pass: the database or a source is away for a while, another live run is in the way, or took the batch.
PASSING = (
    *(Unavailable, OutcomeUnknown, LeaseHeld, NotItsTurn, StaleAttempt),
    *(ChangeTooEarly, PartitionUnreadable, IntervalNotOver),
)
# The pause between two looks; after each passing error the pause doubles, up to the maximum.
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.5, 10.0
# Looks without new records take at most this share of the time.
IDLE_SHARE = 0.1
# The seconds between two checks whether to end.
_STEP_SECONDS = 0.1
# Counts all new records, and yields each batch after its commit.
Look = Callable[[], Generator[Batch, None, None]]


def follow(look: Look, ended: Callable[[], bool]) -> Iterator[Batch]:
    """Yield each batch after its commit, until `ended` returns True. `ended` is called between two batches.

    Passing errors (PASSING) are logged, and the look is repeated after a pause. All other errors are raised: somebody must
    act, or start the follower again.
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
    """Return the seconds to rest after an idle look, from the processor seconds of the look."""
    return min(max(PAUSE_SECONDS, seconds * (1 / IDLE_SHARE - 1)), PAUSE_SECONDS_MAX)


def _rest(seconds: float, ended: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not ended() and time.monotonic() < until:
        time.sleep(_STEP_SECONDS)


@dataclass
class Arrivals:
    """Looks for new records, for a job that does not read by time. The first look also finishes the batches of earlier calls.

    If fewer than `at_least` are new, wait for more, up to `seconds`. `at_least` counts bytes of files, or records of a log.
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
        """Return the head of the topology.

        The last head is returned again if all its batches were final and no run has planned since.
        """
        ledger, name = self.runner.steps.ledger, self.runner.job.topology.name
        if self._head is None or self._head.pending or ledger.last_txid(name) + 1 != self._head.next_txid:
            self._head = ledger.head(name, run)
        return self._head

    def _due(self) -> bool:
        """True if a look would find a batch. Asks the spouts just like planning, and stores nothing."""
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
    """Return the size of a batch, in the unit of its partitions; None if their ranges are not numbers."""
    ranges = [each for of in plan.streams.values() if isinstance(of, Ranges) for each in of.partitions.values()]
    if not ranges or not all(isinstance(each.start, int) and isinstance(each.end, int) for each in ranges):
        return None
    size: int = sum(each.end - each.start for each in ranges)
    return size


@dataclass
class Clock:
    """Looks for ended intervals, for a job that reads by time. `over` returns the intervals between two times.

    The first look also finishes the batches of earlier calls. If the source of an interval is not ready, the interval is
    tried again.
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
            self._tell_late()
            self._first = False
            self._go_on_behind(self.runner.steps, asked)

    def _tell_late(self) -> None:
        """Log the positions with late records left as counted."""
        name = self.runner.job.topology.name
        for late in self.runner.told:
            log.warning("%s: %s", name, late.told(name))
        self.runner.told.clear()

    def _go_on_behind(self, steps: Steps, asked: list[Interval]) -> None:
        """Move `since` to the end of each counted interval. Raise PartitionUnreadable for an interval that is not counted."""
        name = steps.job.topology.name
        runs = [Run(f"{RUN_PREFIX}follow", interval=each, parameters=self.parameters) for each in asked]
        for interval, head in zip(asked, steps.ledger.heads(name, runs) if runs else (), strict=True):
            if head.own is None or not head.own.succeeded:
                raise PartitionUnreadable(f"{name}: the source is not ready for {interval}")
            self.since = interval.end
