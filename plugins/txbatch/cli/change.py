"""`txbatch change`: apply a changed definition to committed counts (R23)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import click

from txbatch.cli import arguments, database
from txbatch.cli.printing import Rows, prints_rows
from txbatch.core.definition.redefinition import REBUILD, how
from txbatch.core.errors import SchemaMismatch, TxbatchError
from txbatch.core.text import one_line
from txbatch.launch.job_file import Job, check_emission
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.ledger import PostgresLedger


def show(rows: list[dict[str, Any]]) -> None:
    """Print below the table that nothing is changed yet, and the reason if a change is impossible now."""
    if any(not row["applied"] for row in rows):
        refused = rows[0]["refused"]
        told = f", and cannot be now: {refused}" if refused else f": {_way_on(rows)}"
        click.echo(one_line(f"nothing is changed yet{told}"), err=True)


def _way_on(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the way to apply the listed changes."""
    if all(row["how"] != REBUILD for row in rows):
        return "say --why '...' --yes to apply all of it"
    job = shlex.quote(click.get_current_context().params["job"])
    return f"put the old definition back, or `txbatch rebuild {job} --why '...'` counts all batches again"


@click.command()
@click.argument("job", metavar="TOPOLOGY|JOB", type=arguments.TEXT)
@click.option("--why", type=arguments.WHY, help="The reason, kept with the change.")
@click.option("--yes", is_flag=True, help="Really apply the changes.")
@prints_rows("how", "what", nothing="nothing is defined otherwise", show=show)
def change(job: str, why: str | None, yes: bool) -> Rows:
    """Apply changes in the definition of the job file JOB to committed counts.

    \b
      txbatch change jobs/sales.py
      txbatch change jobs/sales.py --why "finance asks for the dearest sale" --yes

    Without --yes, nothing is changed: each change is listed with its effect. The effect is in place, from now on (older
    rows show null), or rebuild; this command does not rebuild. With --yes, one transaction applies all changes, or none.
    """
    if yes and why is None:
        raise click.UsageError("--yes changes what people report on: say --why, too, which is kept")
    where = database.start_database()
    engine = database.migrated(where)
    loaded = arguments.job_of(job, where)
    check_emission(loaded)
    ledger = PostgresLedger(engine, warehouses=Warehouses(where.warehouse_url))
    topology = loaded.topology
    if yes:
        found = ledger.change(topology, loaded.name, why or "", arguments.whoever())
        return [{"how": how(each), "what": each.what, "applied": True} for each in found]
    told = {"applied": False, "refused": _refused(ledger, loaded)}
    return [{"how": how(each), "what": each.what, **told} for each in ledger.redefinitions(topology)]


def _refused(ledger: PostgresLedger, job: Job) -> str | None:
    """Return the reason if the change would be rejected now; None if accepted, or if a rebuild is needed, shown in its row."""
    try:
        ledger.check_change(job.topology, job.name)
    except SchemaMismatch:
        return None
    except TxbatchError as error:
        return str(error)
    return None
