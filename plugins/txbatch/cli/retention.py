"""`txbatch gc`: fold what need not be asked for or restated any more (R22)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from sqlalchemy import Engine

from txbatch.cli import arguments, database
from txbatch.cli.printing import Rows, prints_rows
from txbatch.core.corrections import growth
from txbatch.core.definition.keep_policy import describe_policy, kept_windows
from txbatch.core.state.keep import Keep
from txbatch.core.topology.topology import Topology
from txbatch.postgres.corrections.retention import Retention
from txbatch.postgres.corrections.window_retention import PostgresWindows
from txbatch.run import window_retention
from txbatch.run.retention import waiting
from txbatch.wiring import open_collector


@click.command()
@click.argument("topology", required=False, type=arguments.TEXT)
@click.option("--keep-txids", type=arguments.Number(1, 2**31), help="The newest so many txids stay as they are.")
@click.option(
    "--keep-days", type=arguments.Number(1, 36_500), help="What was committed in the last so many days stays."
)
@click.option("--dry-run", is_flag=True, help="Say how far it would go, and change nothing.")
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

    What stays is said by the job, Topology("word_count", keep=Keep(days=90)), unless it is said here. The values stay. What is
    folded can be asked for no more by `as-of` and `why`, and not be restated. Windows that are older than their state keeps them,
    OpaqueState("hourly", keep_windows="90 days"), leave it once all that made them is folded.

    Commits and reports go on meanwhile; a call that
    was ended is called again. The newest batch is never folded.
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


def stored_policy(engine: Engine, topology: Topology) -> dict[str, Any]:
    """Return what a job says that is kept, and what was until now: what is stored of it, where there is something.

    `growth` is what a month of batches comes to, as its last ones say, with that in words; None where nothing is known.
    """
    retention = Retention(engine)
    policies, until_now, found = retention.policies(), None, retention.growth(topology.name)
    if topology.name in policies:
        until_now = describe_policy(policies[topology.name], PostgresWindows(engine).policy(topology.name))
    grows = {**asdict(found), "does": growth.describe_growth(found, topology.keep)} if found else None
    return {
        "keep": describe_policy(topology.keep, kept_windows(topology)),
        "kept_until_now": until_now,
        "growth": grows,
    }
