"""`txbatch abort`: free the records of a batch, or give the records up (R16)."""

from __future__ import annotations

import click

from txbatch.cli import arguments
from txbatch.cli.database import chosen_engine, chosen_settings
from txbatch.cli.printing import Rows, prints_rows
from txbatch.core.text import one_line
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.ledger import PostgresLedger
from txbatch.run.giving_up import give_up


@click.command()
@click.argument("topology", type=arguments.TEXT)
@click.argument("txid", type=arguments.TXID)
@click.option("--why", required=True, type=arguments.WHY, help="The reason, kept with the batch.")
@click.option("--skip", is_flag=True, help="Also give up the batch's records: no later batch reads these records.")
@click.option(
    "--partition",
    type=arguments.TEXT,
    help="With --skip: give up only records of this partition; the next batch reads the rest.",
)
@prints_rows(nothing="")
def abort(topology: str, txid: int, why: str, skip: bool, partition: str | None) -> Rows:
    """Free the records of TOPOLOGY's uncommitted batch TXID."""
    if partition is not None and not skip:
        raise click.UsageError("--partition says which records --skip gives up; give both, or neither")
    where = chosen_settings()
    ledger = PostgresLedger(chosen_engine(where), warehouses=Warehouses(where.warehouse_url))
    done = give_up(ledger, topology, txid, why, skip=skip, partition=partition)
    if done.of_worker is not None:
        click.echo(one_line(f"{topology}: {done.of_worker}"), err=True)
    return [done.to_json()]
