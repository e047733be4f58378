"""`txbatch run`: run a batch of a job, or several batches in turn."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from txbatch.cli import arguments
from txbatch.cli.database import chosen_engine, chosen_settings
from txbatch.cli.follow import Following, follow_job
from txbatch.cli.old_spelling import spelled_now
from txbatch.cli.printing import Rows, prints_rows
from txbatch.cli.progress import show_progress
from txbatch.cli.reading.batches import BATCH_COLUMNS, DROPPED
from txbatch.cli.restate import tell_committed, tell_counted, tell_late
from txbatch.core.batch.holes import describe_hole
from txbatch.core.batch.transaction import Run
from txbatch.core.text import one_line
from txbatch.launch.job_file import load_job
from txbatch.launch.submission import LOCAL_MASTER
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.run.progress import watch
from txbatch.run.run_names import RUN_PREFIX
from txbatch.wiring import open_runner


@click.command()
@click.argument("job", type=arguments.TEXT)
@click.option(
    "--run-id", type=arguments.TEXT, help="The run's name. A later call with the same name finds the same batch."
)
@arguments.interval_option
@arguments.param_option
@click.option(
    "--cron", type=arguments.TEXT, help="Cut the interval at these times, and run a batch for each piece, in order."
)
@click.option("--timezone", type=arguments.TEXT, help="The zone of --cron.  [default: UTC]")
@click.option("--until-idle", is_flag=True, help="Go on until nothing is new.")
@click.option("--follow", is_flag=True, hidden=True)
@click.option("--since", type=arguments.MOMENT, hidden=True)
@click.option("--delay", type=arguments.LIMIT, hidden=True)
@click.option("--min-batch", type=arguments.LIMIT, hidden=True)
@click.option("--max-latency", type=arguments.LIMIT, hidden=True)
@click.option("--master", type=arguments.MASTER, default=LOCAL_MASTER, show_default=True, help="Spark master.")
@prints_rows(*BATCH_COLUMNS, nothing="nothing new", drop=DROPPED, cut=("run",))
def run(
    job: str,
    run_id: str | None,
    interval: tuple[datetime, datetime] | None,
    params: tuple[tuple[str, Any], ...],
    cron: str | None,
    timezone: str | None,
    until_idle: bool,
    follow: bool,
    since: datetime | None,
    min_batch: int | None,
    max_latency: int | None,
    delay: int | None,
    master: str,
) -> Rows:
    """Run a batch of the job file JOB. First finishes the batches of killed calls.

    \b
      txbatch run jobs/word_count.py
      txbatch run jobs/flights.py --interval 2013-01-01T05:00Z 2013-01-02T05:00Z

    The steps are the steps of a DAG run: initialize, emit, commit, success. With --cron, runs each interval in turn. Stops
    at the first error; run the same command again to continue.
    """
    if follow:
        spelled_now("run --follow", "follow", job)
        if run_id or interval or until_idle:
            raise click.UsageError(
                "to follow is to read all that comes: leave out --run-id, --interval and --until-idle"
            )
        following = Following(since, min_batch, max_latency, delay, cron, timezone)
        return follow_job(job, params, following, master)
    if any(given is not None for given in (since, delay, min_batch, max_latency)):
        raise click.UsageError(f"--since, --delay, --min-batch and --max-latency are of `txbatch follow {job}`")
    arguments.check_cron(run_id, interval, cron, timezone)
    loaded, where = load_job(job), chosen_settings()
    parameters, between = arguments.parameters(loaded, params), arguments.interval(loaded, interval)
    pieces = arguments.pieces(between, cron, timezone or "UTC") if between and cron is not None else None
    reader = LedgerReader(chosen_engine(where))
    with open_runner(loaded, where, master, zone=None if cron is None else timezone or "UTC") as runner:
        if pieces is None:
            if run_id or between:
                tell_committed(runner.steps, Run(f"{RUN_PREFIX}{run_id}", interval=between))
            batches = runner.run(run_id, between, parameters, until_idle=until_idle)
        else:
            tell_counted(reader, loaded.topology.name, pieces)
            batches = runner.run_each(pieces, parameters)
        with show_progress(loaded.topology.name, len(pieces) if pieces else None, runner.application) as tell:
            of = len(pieces) if pieces else None
            done = [each.txid for each in watch(batches, of, tell, lambda: runner.behind, runner.found, pieces)]
        tell_late(loaded.topology.name, runner.told)
    for hole in reader.holes_of(loaded.topology.name, done):
        click.echo(one_line(f"{loaded.topology.name}: {describe_hole(hole)}"), err=True)
    return reader.batches_by_txid(loaded.topology.name, done)
