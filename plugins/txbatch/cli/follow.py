"""`txbatch run --follow`: what goes together, and until when it goes on."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import click

from txbatch.cli.cron import over
from txbatch.core.batch.transaction import Interval, Metadata
from txbatch.core.errors import DefinitionError
from txbatch.core.topology.topology import Topology
from txbatch.run.follow import Arrivals, Clock, Look, follow
from txbatch.run.runner import Runner

# So many of the batches of a call that ends are shown.
SHOWN = 20
LATENCY_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Following:
    """What --follow was given with."""

    follow: bool
    since: datetime | None
    min_batch: int | None
    max_latency: int | None
    delay: int | None
    cron: str | None
    timezone: str | None

    def check(self, others: Sequence[object]) -> None:
        """Refuse what does not go together; `others` are options that name what to read."""
        if not self.follow:
            if any(given is not None for given in (self.since, self.min_batch, self.max_latency, self.delay)):
                raise click.UsageError("--since, --delay, --min-batch and --max-latency are for --follow: give it, too")
            return
        if any(others):
            raise click.UsageError("--follow reads all that comes: leave out --run-id, --interval and --until-idle")
        if self.timezone is not None and self.cron is None:
            raise click.UsageError("--timezone is the zone of --cron: give both")
        if self.max_latency is not None and self.min_batch is None:
            raise click.UsageError("--max-latency is how long --min-batch is waited for: give both")

    def look(self, runner: Runner, parameters: Metadata) -> Look:
        """Return what looks for something to count. UsageError where the job reads otherwise than these options say."""
        if not runner.job.topology.by_interval:
            self._check_arrivals(runner.job.topology)
            seconds = LATENCY_SECONDS if self.max_latency is None else self.max_latency
            return Arrivals(runner, parameters, self.min_batch or 1, seconds)
        if self.cron is None or self.since is None or self.min_batch is not None:
            raise click.UsageError(
                f"{runner.job.topology.name} reads by time: give --cron, and --since, where it begins; no --min-batch"
            )
        cut = partial(_over, delay=timedelta(seconds=self.delay or 0), cron=self.cron, zone=self.timezone or "UTC")
        cut(self.since, datetime.now(UTC))  # refused now, and not in the middle
        return Clock(runner, parameters, cut, self.since)

    def _check_arrivals(self, topology: Topology) -> None:
        if self.cron is not None or self.since is not None or self.delay is not None:
            raise click.UsageError(f"{topology.name} does not read by time: leave out --cron, --since and --delay")


def _over(start: datetime, now: datetime, delay: timedelta, cron: str, zone: str) -> list[Interval]:
    try:
        return over(start, now - delay, cron, zone)
    except DefinitionError as error:
        raise click.BadParameter(str(error), param_hint="--cron") from error


def newest(look: Look) -> list[int]:
    """Follow until SIGTERM; return the txids of the newest batches."""
    with _told_to_end() as ended:
        return list(deque((batch.txid for batch in follow(look, ended)), maxlen=SHOWN))


@contextmanager
def _told_to_end() -> Iterator[Callable[[], bool]]:
    """Context manager. Yield what says whether SIGTERM came: the batch at work is brought to its end first."""
    came = list[int]()
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGTERM, before)
