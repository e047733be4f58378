"""`txbatch restate`: count committed batches again, in their places (R17)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from txbatch.cli import arguments, database
from txbatch.cli.plan.plan_restate import preview_restate, show_restate
from txbatch.cli.printing import Rows, print_table, prints_rows
from txbatch.cli.progress import show_progress
from txbatch.core.batch.transaction import BatchStatus, Interval, Run
from txbatch.core.protocol.lookback import LatePosition
from txbatch.core.protocol.restate import positions_within, uncounted
from txbatch.core.text import one_line
from txbatch.launch.job_file import Job, check_emission
from txbatch.launch.submission import LOCAL_MASTER
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.run.progress import watch
from txbatch.run.replaced import in_place_of
from txbatch.run.steps import Steps
from txbatch.wiring import already_committed, open_runner

COLUMNS = ("position", "txid", "status", "replaces", "records_before", "records", "keys", "interval_start", "took")


def _show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if "states" in row:
            show_restate(row)
    if done := [row for row in rows if "states" not in row]:
        print_table(done, COLUMNS, drop=("took", "interval_start", "status", "replaces"))


@click.command()
@click.argument("job", metavar="TOPOLOGY|JOB", type=arguments.TEXT)
@click.argument("txids", nargs=-1, type=arguments.TXID, metavar="[TXID]...")
@click.option(
    "--interval",
    nargs=2,
    type=arguments.Moment(),
    metavar="START END",
    help="Restate all batches with intervals between START and END.",
)
@click.option("--why", type=arguments.WHY, help="The reason, kept with each batch. Needed, except with --plan.")
@click.option(
    "--plan", is_flag=True, help="Show the changes by a restate, each batch by itself: read by Spark, not stored."
)
@click.option(
    "--accept-missing",
    is_flag=True,
    help="Leave out unreadable records. Without this option, nothing is counted if records are unreadable.",
)
@click.option("--skipped", is_flag=True, help="Include batches with records given up.")
@click.option("--master", type=arguments.MASTER, default=LOCAL_MASTER, show_default=True, help="Spark master.")
@prints_rows(nothing="", show=_show)
def restate(
    job: str,
    txids: tuple[int, ...],
    interval: tuple[datetime, datetime] | None,
    why: str | None,
    plan: bool,
    accept_missing: bool,
    skipped: bool,
    master: str,
) -> Rows:
    """Count committed batches again, from their current source and by the current job.

    \b
      txbatch restate flights 3 --plan
      txbatch restate flights 3 --why "the file of the 3rd was cut off"
      txbatch restate flights --interval 2013-01-03T05:00Z 2013-01-05T05:00Z --why "late files"

    Each batch gets a new txid, oldest first, and the new counts replace the old counts. If a call was stopped, call again
    with the same TXIDs and --why to go on.
    """
    if bool(txids) == (interval is not None):
        raise click.UsageError("name TXIDs, or give --interval START END: one of both")
    if why is None and not plan:
        raise click.UsageError("--why is kept with each batch: give it, or --plan, which stores nothing")
    where = database.ready()
    loaded = arguments.job_of(job, where)
    check_emission(loaded)
    between = arguments.interval(loaded, interval)
    reader = LedgerReader(database.connected(where))
    asked = txids if between is None else _within(reader, loaded, between)
    if why is None or plan:
        return preview_restate(loaded, where, asked, master, accept_missing=accept_missing, skipped=skipped)
    with open_runner(loaded, where, master) as runner:
        batches = runner.restate(asked, why, arguments.whoever(), accept_missing=accept_missing, skipped=skipped)
        with show_progress(loaded.topology.name, len(asked), runner.application) as tell:
            done = {batch.txid for batch in watch(batches, len(asked), tell, found=runner.found)}
    return [{**row, "took": row["duration"]} for row in reader.restated(loaded.topology.name, sorted(done))]


def tell_committed(steps: Steps, run: Run) -> None:
    """If a run's batch is committed, print the changes in its source since, and the command to count again (R15)."""
    own = steps.ledger.head(steps.job.topology.name, run).own
    if own is not None and own.status is BatchStatus.COMMITTED:
        stays = f"{own.topology}: txid {own.txid} is not changed{in_place_of(steps.ledger, own)}"
        click.echo(one_line(f"{stays}{already_committed(steps, own)}"), err=True)


def tell_counted(reader: LedgerReader, topology: str, asked: Sequence[Interval]) -> None:
    """Print how many consecutive intervals are committed already, and how to count these again."""
    whole = Interval(asked[0].start, asked[-1].end)
    counted = reader.counted_within(topology, whole) if reader.status(topology) else {}
    if counted:
        start, end = whole.start.isoformat(), whole.end.isoformat()
        click.echo(
            f"{topology}: {len(counted):,} of {len(asked):,} intervals are committed and stay as they are; `txbatch verify "
            f'{topology}` tells whether their source changed, `txbatch restate {topology} --interval {start} {end} --why "..."` '
            "counts them again",
            err=True,
        )


def tell_late(topology: str, told: Sequence[LatePosition]) -> None:
    """Print the positions with late records left as counted by a run."""
    for late in told:
        click.echo(one_line(f"{topology}: {late.told(topology)}"), err=True)


def _within(reader: LedgerReader, job: Job, interval: Interval) -> Sequence[int]:
    name = job.topology.name
    counted = reader.counted_within(name, interval)
    positions = positions_within(name, interval, counted)
    for each in uncounted(interval, counted.values()):
        click.echo(
            f"{name}: no batch counts {each}, so nothing of it is counted again; `txbatch run` counts it", err=True
        )
    return positions
