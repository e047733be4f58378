"""`txbatch gc`: fold contributions no longer needed for as-of or a restate (R22)."""

from __future__ import annotations

from pathlib import Path

import click

from txbatch.cli import arguments, database
from txbatch.cli.printing import Rows, prints_rows
from txbatch.core.state.keep import Keep
from txbatch.run import window_retention
from txbatch.run.retention import waiting
from txbatch.wiring import open_collector


@click.command()
@click.argument("topology", required=False, type=arguments.TEXT)
@click.option("--keep-txids", type=arguments.Number(1, 2**31), help="Keep this many of the newest txids unfolded.")
@click.option(
    "--keep-days", type=arguments.Number(1, 36_500), help="Keep batches committed in the last so many days unfolded."
)
@click.option("--dry-run", is_flag=True, help="Print how far gc would fold, and change nothing.")
@prints_rows(
    "topology",
    "keep",
    "horizon_before",
    "horizon",
    "versions",
    "rows",
    "attempts",
    "quarantined",
    "windows",
    "folders",
    nothing="no topology has run yet; nothing is kept",
    cut=("topology", "keep"),
)
def gc(topology: str | None, keep_txids: int | None, keep_days: int | None, dry_run: bool) -> Rows:
    """Fold old contributions of TOPOLOGY, or of all topologies, into one row per key.

    \b
      txbatch gc
      txbatch gc word_count --keep-days 90

    The job decides how much stays, Topology("word_count", keep=Keep(days=90)), unless an option does. The values stay.
    Folded batches cannot be shown any more by `as-of` and `why`, and cannot be restated. Windows older than the time kept
    by their state, OpaqueState("hourly", keep_windows="90 days"), leave the state once all their batches are folded.

    Commits and reports go on meanwhile. If a call was ended, call again. The newest batch is never folded.
    """
    keep = _asked(topology, keep_txids, keep_days)
    collector = open_collector(database.ready(), Path.cwd())
    rows = [collector.one(topology, keep, dry_run=dry_run)] if topology else list(collector.all(dry_run=dry_run))
    for row in rows:
        for each in row.get("left", ()):
            click.echo(f"{row['topology']}: {window_retention.describe_windows(each)}", err=True)
        if row.get("waits_for"):
            click.echo(waiting(row), err=True)
    return rows


def _asked(topology: str | None, keep_txids: int | None, keep_days: int | None) -> Keep | None:
    if keep_txids is not None and keep_days is not None:
        raise click.UsageError("say what stays: --keep-txids N or --keep-days N")
    if keep_txids is None and keep_days is None:
        return None
    if topology is None:
        raise click.UsageError("--keep-txids and --keep-days are of one topology: name it")
    return Keep(keep_txids, keep_days)
