"""`txbatch plan`: the guarantees of a job, and its next batch."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from txbatch.cli import arguments
from txbatch.cli.database import chosen_engine, chosen_settings
from txbatch.cli.old_spelling import spelled_now
from txbatch.cli.plan.explain import appeared, passed_over, preview
from txbatch.cli.plan.plan_rebuild import SAMPLE, preview_rebuild, show_rebuild
from txbatch.cli.plan.plan_restate import preview_restate, show_restate
from txbatch.cli.plan.policy import stored_policy
from txbatch.cli.printing import Rows, prints_rows, show_plan
from txbatch.core.batch.transaction import Run
from txbatch.formats.changes import changed
from txbatch.launch.job_file import check_emission, load_job
from txbatch.launch.job_search import jobs_above
from txbatch.launch.submission import LOCAL_MASTER
from txbatch.postgres.ledger import PostgresLedger
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.run.run_names import RUN_PREFIX
from txbatch.spouts.tables.late_rows import changed_tables


def _show_plan(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if "replaces" in row:
            show_restate(row)
        elif "rebuilds" in row:
            show_rebuild(row)
        else:
            show_plan([row])


@click.command()
@click.argument("job", type=arguments.TEXT)
@click.option("--run-id", type=arguments.TEXT, help="Plan for the run with this name, instead of a new run.")
@arguments.interval_option
@arguments.param_option
@click.option("--restate", type=arguments.TXID, hidden=True)
@click.option("--rebuild", is_flag=True, hidden=True)
@click.option("--sample", type=arguments.LIMIT, hidden=True)
@click.option("--all", "everything", is_flag=True, hidden=True)
@click.option("--master", type=arguments.MASTER, default=LOCAL_MASTER, hidden=True)
@prints_rows(nothing="", show=_show_plan)
def plan(
    job: str,
    run_id: str | None,
    interval: tuple[datetime, datetime] | None,
    params: tuple[tuple[str, Any], ...],
    restate: int | None,
    rebuild: bool,
    sample: int | None,
    everything: bool,
    master: str,
) -> Rows:
    """Show the guarantees of the job file JOB, and its next batch.

    Uses no txid, and starts no Spark. If a run would be rejected, prints the reason. To preview a restate or a rebuild, use
    `txbatch restate --plan` and `txbatch rebuild --plan`.
    """
    if (restate is not None or rebuild) and (run_id or interval or params):
        raise click.UsageError("--restate and --rebuild say what is read: leave out --run-id, --interval and --param")
    if (restate is not None) + rebuild > 1 or (not rebuild and (sample or everything)) or (sample and everything):
        raise click.UsageError("give --restate, or --rebuild, and with that --sample or --all")
    loaded = load_job(job)
    if restate is not None:
        spelled_now("plan --restate", "restate", job, str(restate), "--plan")
        return preview_restate(loaded, chosen_settings(), [restate], master, skipped=True)
    if rebuild:
        spelled_now("plan --rebuild", "rebuild", job, "--plan")
        return [preview_rebuild(loaded, chosen_settings(), None if everything else sample or SAMPLE, master)]
    check_emission(loaded)
    between = arguments.interval(loaded, interval)
    name = "plan" if run_id is None else run_id
    run = Run(f"{RUN_PREFIX}{name}", interval=between, parameters=arguments.parameters(loaded, params))
    where = chosen_settings()
    for aggregate in loaded.topology.aggregates:
        if aggregate.state.database is not None:
            where.warehouse_url(aggregate.state.database)  # a run without the URL is rejected
    engine = chosen_engine(where)
    finishes = RUN_PREFIX if run_id is None else ""
    ledger = PostgresLedger(engine, jobs=jobs_above(engine, loaded.path.parent))
    found = preview(ledger, loaded.topology, run, loaded.name, finishes=finishes)
    found |= stored_policy(engine, loaded.topology)
    found["warnings"] += passed_over(loaded.topology, found["next"])
    reader = LedgerReader(engine)
    found["changed"] = [
        *changed(reader.counted(loaded.topology.name)),
        *changed_tables(reader.counted_tables(loaded.topology.name)),
        *appeared(loaded.topology, found["next"]),
    ]
    return [found]
