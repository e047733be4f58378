"""`txbatch follow`: count new records soon after they arrive. Checks options, and ends on SIGTERM."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import click

from txbatch.cli import arguments
from txbatch.cli.cron import over
from txbatch.cli.database import chosen_engine, chosen_settings
from txbatch.cli.printing import Rows, prints_rows
from txbatch.cli.reading.batches import BATCH_COLUMNS, DROPPED
from txbatch.core.batch.transaction import Interval, Metadata
from txbatch.core.errors import DefinitionError
from txbatch.core.topology.topology import Topology
from txbatch.launch.job_file import load_job
from txbatch.launch.submission import LOCAL_MASTER
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.run.follow import Arrivals, Clock, Look
from txbatch.run.follow import follow as count_what_comes
from txbatch.run.runner import Runner
from txbatch.wiring import open_runner

# The number of newest batches to show at the end of a call.
SHOWN = 20
LATENCY_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Following:
    """The options of `follow`: the start, and the waits."""

    since: datetime | None
    min_batch: int | None
    max_latency: int | None
    delay: int | None
    cron: str | None
    timezone: str | None

    @property
    def zone(self) -> str | None:
        """The zone in which --cron cuts intervals; None without --cron."""
        return None if self.cron is None else self.timezone or "UTC"

    def check(self) -> None:
        """Reject options that do not go together."""
        if self.timezone is not None and self.cron is None:
            raise click.UsageError("--timezone is the zone of --cron: give both")
        if self.max_latency is not None and self.min_batch is None:
            raise click.UsageError("--max-latency is how long --min-batch is waited for: give both")

    def look(self, runner: Runner, parameters: Metadata) -> Look:
        """Return a function that looks for new batches. Raise UsageError if the options do not fit the job."""
        if not runner.job.topology.by_interval:
            self._check_arrivals(runner.job.topology)
            seconds = LATENCY_SECONDS if self.max_latency is None else self.max_latency
            return Arrivals(runner, parameters, self.min_batch or 1, seconds)
        if self.cron is None or self.since is None or self.min_batch is not None:
            raise click.UsageError(
                f"{runner.job.topology.name} reads by time: give --cron, and --since, where it begins; no --min-batch"
            )
        cut = partial(_over, delay=timedelta(seconds=self.delay or 0), cron=self.cron, zone=self.zone or "UTC")
        cut(self.since, datetime.now(UTC))  # bad options are rejected now, not later
        return Clock(runner, parameters, cut, self.since)

    def _check_arrivals(self, topology: Topology) -> None:
        if self.cron is not None or self.since is not None or self.delay is not None:
            raise click.UsageError(f"{topology.name} does not read by time: leave out --cron, --since and --delay")


def _over(start: datetime, now: datetime, delay: timedelta, cron: str, zone: str) -> list[Interval]:
    try:
        return over(start, now - delay, cron, zone)
    except DefinitionError as error:
        raise click.BadParameter(str(error), param_hint="--cron") from error


@click.command()
@click.argument("job", type=arguments.TEXT)
@arguments.param_option
@click.option(
    "--cron", type=arguments.TEXT, help="For a spout that reads by time: the times between intervals; needs --since."
)
@click.option("--timezone", type=arguments.TEXT, help="The zone of --cron.  [default: UTC]")
@click.option(
    "--since",
    type=arguments.MOMENT,
    help="For a spout that reads by time: the start of the first interval; needs --cron.",
)
@click.option(
    "--delay",
    type=arguments.LIMIT,
    help="Wait this many seconds after an interval ends before counting it, because files can arrive late.",
)
@click.option(
    "--min-batch", type=arguments.LIMIT, help="Wait until this many bytes of files, or records of a log, are new."
)
@click.option(
    "--max-latency",
    type=arguments.LIMIT,
    help=f"With --min-batch: wait at most this many seconds.  [default: {LATENCY_SECONDS}]",
)
@click.option("--master", type=arguments.MASTER, default=LOCAL_MASTER, show_default=True, help="Spark master.")
@prints_rows(*BATCH_COLUMNS, nothing="nothing new", drop=DROPPED, cut=("run",))
def follow(
    job: str,
    params: tuple[tuple[str, Any], ...],
    cron: str | None,
    timezone: str | None,
    since: datetime | None,
    delay: int | None,
    min_batch: int | None,
    max_latency: int | None,
    master: str,
) -> Rows:
    """Count new records for the job file JOB soon after they arrive, until SIGTERM.

    \b
      txbatch follow jobs/word_count.py
      txbatch follow jobs/flights.py --cron "0 5 * * *" --since 2013-01-01T05:00Z

    The steps are the steps of `txbatch run`, in one warm Spark application. First finishes the batches of killed calls. On
    SIGTERM, finishes the current batch, then ends.
    """
    return follow_job(job, params, Following(since, min_batch, max_latency, delay, cron, timezone), master)


def follow_job(job: str, params: Sequence[tuple[str, Any]], following: Following, master: str) -> Rows:
    """Follow until SIGTERM. Return rows of the newest batches."""
    following.check()
    loaded, where = load_job(job), chosen_settings()
    parameters = arguments.parameters(loaded, params)
    reader = LedgerReader(chosen_engine(where))
    with open_runner(loaded, where, master, zone=following.zone) as runner:
        return reader.batches_by_txid(loaded.topology.name, _newest(following.look(runner, parameters)))


def _newest(look: Look) -> list[int]:
    """Follow until SIGTERM. Return the txids of the newest batches."""
    with _watching_for_sigterm() as ended:
        return list(deque((batch.txid for batch in count_what_comes(look, ended)), maxlen=SHOWN))


@contextmanager
def _watching_for_sigterm() -> Iterator[Callable[[], bool]]:
    """Context manager. Yield a function that returns whether SIGTERM was received. The current batch is finished first."""
    came = list[int]()
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGTERM, before)
