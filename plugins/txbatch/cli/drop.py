"""`txbatch drop`: a topology with all its states, to count from the start."""

from __future__ import annotations

from typing import Any

import click

from txbatch import settings
from txbatch.cli import arguments
from txbatch.cli.database import chosen_engine, chosen_settings
from txbatch.cli.printing import Rows, prints_rows
from txbatch.core.errors import UnknownName
from txbatch.core.text import one_line
from txbatch.postgres.apart.warehouses import Warehouses, identity_of
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.postgres.schema import state_tables
from txbatch.postgres.tables.batches import unknown_topology
from txbatch.storage.staging import Staging


@click.command()
@click.argument("topology", type=arguments.TEXT)
@click.option("--yes", is_flag=True, help="Really drop the topology's states, contributions and batches.")
@click.option("--leave-apart", is_flag=True, help="Keep the topology's states in other databases.")
@click.option("--database", type=arguments.TEXT, help="Drop only the topology's states in this other database.")
@click.option(
    "--ledger", type=arguments.LEDGER, help="With --database: drop the states of another ledger, by its UUID."
)
@prints_rows("dropped", "states", nothing="")
def drop(topology: str, yes: bool, leave_apart: bool, database: str | None, ledger: str | None) -> Rows:
    """Drop TOPOLOGY with all its states, to count from the start."""
    where = chosen_settings()
    warehouses = Warehouses(where.warehouse_url)
    if database is not None:
        return [_drop_in(where, database, topology, ledger, yes)]
    if ledger is not None:
        raise click.UsageError("--ledger is whose states to drop in another database: give --database, too")
    engine = chosen_engine(where)
    known = LedgerReader(engine).status(topology)
    if not known:
        raise unknown_topology(topology)
    _confirm(yes, f"{topology!r} and its states, {', '.join(known[0]['states'])}")
    with transaction(engine) as connection:
        if not leave_apart:
            warehouses.drop(connection, topology)
        dropped = state_tables.drop(connection, topology)
    Staging(where.staging).topology(topology).remove()
    return [{"dropped": topology, "states": dropped}]


def _drop_in(where: settings.Settings, database: str, topology: str, ledger: str | None, yes: bool) -> dict[str, Any]:
    """Drop a topology's states in another database: of this ledger, or of the named ledger."""
    warehouses, owner = Warehouses(where.warehouse_url), ledger or identity_of(chosen_engine(where))
    left = {row["ledger"]: row for row in warehouses.owners(database, topology)}
    if owner not in left:
        others = "; ".join(f"--ledger {each}, its last txid is {row['txid']}" for each, row in left.items())
        if ledger is None and others:
            raise click.UsageError(
                f"the states of {topology!r} in {database!r} belong to another ledger; if that is lost for good, say {others}"
            )
        raise UnknownName(f"of topology {topology!r} of ledger {owner} nothing is in {database!r}")
    found = left[owner]
    whose = "" if ledger is None else f" of ledger {owner}"
    _confirm(
        yes,
        f"{topology!r} and its states in {database!r}, {', '.join(found['states'])}{whose}, at txid {found['txid']}",
    )
    return {"dropped": topology, "states": warehouses.drop_in(database, topology, owner)}


def _confirm(yes: bool, what: str) -> None:
    if not yes:
        raise click.UsageError(one_line(f"this drops {what}; say --yes if that is meant"))
