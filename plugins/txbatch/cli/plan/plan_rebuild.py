"""`txbatch rebuild --plan`: the changes by counting all batches again. Reads the source with Spark, and stores nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from txbatch.cli.differences import key_told, values_told
from txbatch.cli.printing import print_table
from txbatch.core.batch.transaction import Batch
from txbatch.core.corrections.verify import Again, EmitAgain
from txbatch.core.errors import SourceChanged, Unverifiable
from txbatch.core.protocol.restate import check_whole
from txbatch.core.text import one_line
from txbatch.launch.job_file import Job, check_emission
from txbatch.postgres.corrections.rebuild import PostgresRebuilds
from txbatch.postgres.corrections.rebuild_preview import differences, extent, newest
from txbatch.run.rebuild import plan_of
from txbatch.run.steps import Steps
from txbatch.settings import Settings
from txbatch.tables import plain
from txbatch.wiring import open_application, open_emitter, open_steps, reader_beside

NAME = "plan"
# The default number of newest batches to count.
SAMPLE = 3
# The maximum number of keys shown of a state, changed keys first; --json has some more.
SHOWN = 5


def preview_rebuild(job: Job, where: Settings, sample: int | None, master: str) -> dict[str, Any]:
    """Return the batches and changes of a rebuild. `sample` None: of all batches. Raise the errors of a rejected rebuild."""
    check_emission(job)
    steps = open_steps(job, where)
    topology, engine = job.topology, reader_beside(steps).engine
    found = extent(engine, topology, job.name)
    versions = newest(engine, topology.name, found.positions if sample is None else sample)
    emitter = open_emitter(steps, open_application(job, where, master))
    try:
        emitted = [(version, again) for version in versions if (again := _emit(steps, emitter, version)) is not None]
        states = [asdict(each) for each in differences(engine, topology, emitted)]
    finally:
        emitter.close()
    before = reader_beside(steps).batches_by_txid(topology.name, [version.txid for version, _ in emitted])
    running = PostgresRebuilds(engine).running(topology.name)
    return {
        "rebuilds": topology.name,
        **asdict(found),
        "running": None if running is None else f"{running} runs: {PostgresRebuilds(engine).progress(running)}",
        "changes": [each.what for each in steps.ledger.redefinitions(topology)],
        "counted": [version.position for version, _ in emitted],
        "records_before": sum(each["records"] or 0 for each in before),
        "records_after": sum(again.manifest.records for _, again in emitted),
        "states": states,
    }


def _emit(steps: Steps, emitter: EmitAgain, version: Batch) -> Again | None:
    """Read and aggregate a version. Return None if another version has replaced this version meanwhile."""
    planned = plan_of(steps, version, NAME)
    if planned is None:
        return None
    try:
        again = emitter.emit(version.topology, version.txid, planned.plan, version.position)
        check_whole(steps.job.topology, planned.version, planned.plan, again.manifest)
        return again
    except Unverifiable as error:
        raise SourceChanged(
            f"{version.topology}: position {version.position} cannot be counted by the job as it is now: {error}"
        ) from error


def show_rebuild(row: Mapping[str, Any]) -> None:
    """Print the batches to count, the time of the earlier counting, and some keys before and after."""
    took = f"; counting them took {plain(row['took'])}" if row["took"] else ""
    click.echo(
        f"{row['rebuilds']}: {row['positions']:,} batches would be counted again, txids {row['first']} to {row['last']}: "
        f"{row['records']:,} records{took}"
    )
    for told in [*row["changes"], *([row["running"]] if row["running"] else [])]:
        click.echo(one_line(f"{row['rebuilds']}: {told}"))
    print_table(row["reads"])
    counted = row["counted"]
    which = (
        "all of them"
        if len(counted) == row["positions"]
        else f"{len(counted):,} of them, the newest (--all counts all)"
    )
    click.echo(
        f"Counted now, {which}: {row['records_after']:,} records, {row['records_before']:,} before. Of these alone:"
    )
    print_table([{name: value for name, value in each.items() if name != "examples"} for each in row["states"]])
    for state in row["states"]:
        for each in state["examples"][:SHOWN]:
            before, after = values_told(each["stored"]), values_told(each["recomputed"])
            side = after if state["changed"] is None else f"{before} -> {after}"
            click.echo(one_line(f"{state['state']}, {key_told(each)}: {side}"))
        if (more := (state["after"] or 0) - min(len(state["examples"]), SHOWN)) > 0:
            click.echo(f"{state['state']}: and {more:,} more keys")
    click.echo("nothing is stored")
