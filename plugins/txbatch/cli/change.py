"""`txbatch change`: apply a changed definition to what is counted (R23)."""

from __future__ import annotations

from typing import Any

import click

from txbatch.cli import arguments, database
from txbatch.cli.printing import Rows, prints_rows
from txbatch.core.redefinition import how
from txbatch.launch.job_file import check_emission
from txbatch.postgres.ledger import PostgresLedger
from txbatch.postgres.warehouses import Warehouses


def show(rows: list[dict[str, Any]]) -> None:
    """Below the table: that nothing is changed yet."""
    if any(not row["applied"] for row in rows):
        click.echo("nothing is changed yet: say --why '...' --yes to apply all of it", err=True)


@click.command()
@click.argument("job", metavar="TOPOLOGY|JOB", type=arguments.TEXT)
@click.option("--why", type=arguments.WHY, help="Kept with the change.")
@click.option("--yes", is_flag=True, help="Really apply it.")
@prints_rows("how", "what", nothing="nothing is defined otherwise", show=show)
def change(job: str, why: str | None, yes: bool) -> Rows:
    """Apply to what is counted what the job file JOB defines otherwise now.

    \b
      txbatch change jobs/sales.py
      txbatch change jobs/sales.py --why "finance asks for the dearest sale" --yes

    Without --yes each change is listed, with what becomes of it, and nothing is changed: in place, from now on
    (older rows show null), or rebuild, which this does not do. All is applied in one transaction, or nothing.
    """
    if yes and why is None:
        raise click.UsageError("--yes changes what people report on: say --why, too, which is kept")
    where = database.started()
    engine = database.migrated(where)
    loaded = arguments.job_of(job, where)
    check_emission(loaded)
    ledger = PostgresLedger(engine, warehouses=Warehouses(where.warehouse_url))
    topology = loaded.topology
    found = (
        ledger.change(topology, loaded.name, why or "", arguments.whoever()) if yes else ledger.redefinitions(topology)
    )
    return [{"how": how(each), "what": each.what, "applied": yes} for each in found]
