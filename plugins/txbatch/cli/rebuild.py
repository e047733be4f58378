"""`txbatch rebuild`: count all batches again by the job as it is now, and swap (R23)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click
from sqlalchemy import Engine

from txbatch import settings
from txbatch.cli import arguments, database
from txbatch.cli.plan.plan_rebuild import SAMPLE, preview_rebuild, show_rebuild
from txbatch.cli.printing import Rows, print_table, prints_rows
from txbatch.core.errors import UnknownName
from txbatch.core.text import one_line
from txbatch.launch.job_file import check_emission
from txbatch.launch.submission import LOCAL_MASTER
from txbatch.postgres.corrections.rebuild import PostgresRebuilds
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.tables import batches, definitions
from txbatch.wiring import open_application, open_rebuilder, open_steps

COLUMNS = (
    "topology",
    "rebuild",
    "status",
    "counted",
    "to_count",
    "records",
    "swapped_txid",
    "started_at",
    "ended_at",
    "why",
)


def _show(rows: list[dict[str, Any]]) -> None:
    """Print a preview, or a table of rebuilds with the result of the call below."""
    for row in rows:
        if "rebuilds" in row:
            show_rebuild(row)
    there = [row for row in rows if "rebuilds" not in row]
    if there:
        print_table(there, COLUMNS, drop=("records", "started_at"), cut=("why",))
    elif not rows:
        click.echo("no rebuild yet", err=True)
    for row in there:
        if "told" in row:
            click.echo(one_line(row["told"]))


@click.command()
@click.argument("job", metavar="TOPOLOGY|JOB", type=arguments.TEXT)
@click.option(
    "--why", type=arguments.WHY, help="The reason, kept with the rebuild. Needed to begin a rebuild, not to go on."
)
@click.option(
    "--plan",
    is_flag=True,
    help="Show the changes by a rebuild: Spark counts the newest batches, and nothing is stored.",
)
@click.option(
    "--sample", type=arguments.LIMIT, help=f"With --plan: count this many of the newest batches.  [default: {SAMPLE}]"
)
@click.option("--all", "everything", is_flag=True, help="With --plan: count all batches.")
@click.option("--cancel", is_flag=True, help="Cancel the running rebuild, and drop its counts.")
@click.option(
    "--drop-past", is_flag=True, help="Drop replaced generations: as-of then shows no txid before the last swap."
)
@click.option("--status", is_flag=True, help="Show the rebuilds, and their progress.")
@click.option("--master", type=arguments.MASTER, default=LOCAL_MASTER, show_default=True, help="Spark master.")
@prints_rows(nothing="no rebuild yet", show=_show)
def rebuild(
    job: str,
    why: str | None,
    plan: bool,
    sample: int | None,
    everything: bool,
    cancel: bool,
    drop_past: bool,
    status: bool,
    master: str,
) -> Rows:
    """Count all batches again by the job as it is now, while reports go on.

    \b
      txbatch rebuild jobs/word_count.py --plan
      txbatch rebuild jobs/word_count.py --why "the longest word, too"

    New states are counted beside the current states. When every batch is counted, including batches committed meanwhile,
    one transaction swaps the two. If a rebuild is killed or stopped by an error, call again to go on. A later call with the
    same reason for the same job counts nothing, and prints the finished rebuild.
    """
    if cancel + drop_past + status > 1 or ((cancel or drop_past or status) and (plan or why is not None)):
        raise click.UsageError(
            "--why begins a rebuild; --plan, --cancel, --drop-past and --status do only what they say: give one"
        )
    if ((sample or everything) and not plan) or (sample and everything):
        raise click.UsageError("--sample and --all say how many batches --plan counts: give it, and one of the two")
    where = database.ready()
    if cancel or drop_past or status:
        return _other(where, job, cancel=cancel, drop_past=drop_past)
    loaded = arguments.job_of(job, where)
    if plan:
        return [preview_rebuild(loaded, where, None if everything else sample or SAMPLE, master)]
    check_emission(loaded)
    steps = open_steps(loaded, where)
    done = open_rebuilder(steps, open_application(loaded, where, master)).run(why, arguments.whoever())
    rows = PostgresRebuilds(connect(where.database_url)).all(done.rebuild.topology)
    told = {"earlier": done.earlier, "told": str(done)}
    return [{**each, **told} for each in rows if each["rebuild"] == done.rebuild.number]


def _other(where: settings.Settings, given: str, *, cancel: bool, drop_past: bool) -> Rows:
    """Do the options without Spark. The job file need not load."""
    engine = connect(where.database_url)
    rebuilds, topology = PostgresRebuilds(engine), _topology(engine, given, where)
    if cancel:
        return [{"topology": topology, "rebuild": rebuilds.cancel(topology).number, "status": "cancelled"}]
    if drop_past:
        return [
            {"topology": topology, "rebuild": each, "status": "past dropped"} for each in rebuilds.drop_past(topology)
        ]
    return rebuilds.all(topology)


def _topology(engine: Engine, given: str, where: settings.Settings) -> str:
    """Return the name of a known topology, from its name or its job file. Raise UnknownName if unknown."""
    with suppress(UnknownName), transaction(engine) as connection:
        return str(batches.topology_row(connection, given)["topology"])
    with suppress(OSError):
        job = arguments.job_of(given, where)
        with transaction(engine) as connection:
            definitions.check_name(connection, job.topology, job.name)
            return str(batches.topology_row(connection, job.topology.name)["topology"])
    raise batches.unknown_topology(given)
