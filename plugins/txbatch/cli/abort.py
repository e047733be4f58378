"""`txbatch abort`: free the records of a batch, or give the records up (R16)."""

from __future__ import annotations

from contextlib import suppress

import click

from txbatch.cli import arguments
from txbatch.cli.database import chosen_engine, chosen_settings
from txbatch.cli.printing import Rows, prints_rows
from txbatch.core.errors import UnknownName
from txbatch.core.text import one_line
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.ledger import PostgresLedger


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
    worker = _at_work(ledger, topology, txid)
    batch = ledger.skip(topology, txid, why, partition) if skip else ledger.abort(topology, txid, why)
    if worker is not None:
        click.echo(
            one_line(f"{topology}: {worker} was at work on txid {txid}; it fails, and its next try plans anew"),
            err=True,
        )
    given_up = {"given up by txid": batch.txid if skip else None, **({"partition": partition} if partition else {})}
    return [{"topology": topology, "aborted": txid, **given_up, "why": why}]


def _at_work(ledger: PostgresLedger, topology: str, txid: int) -> str | None:
    """Return the run that looks after an open batch; None if the batch is abandoned."""
    with suppress(UnknownName):  # `abort` has a message of its own
        batch = ledger.batch(topology, txid)
        return batch.lease_run if batch.lease_live and not batch.status.final else None
    return None
