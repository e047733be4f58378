"""Moves a state to another database, and back (R21, R23). The copy is committed before the original goes, and may be made again.

The topology's row is locked, and no batch is open: nobody writes to the state meanwhile.
"""

from __future__ import annotations

from sqlalchemy import Connection

from txbatch.core.persistent_aggregate import PersistentAggregate
from txbatch.postgres import state_tables
from txbatch.postgres.queries import query
from txbatch.postgres.statements import statements_of
from txbatch.postgres.warehouses import Warehouses


def to_warehouse(ledger: Connection, warehouses: Warehouses, aggregate: PersistentAggregate) -> None:
    """Let the database that the state names have it; contributions and reports of it go from the ledger's."""
    last = warehouses.receive(ledger, aggregate)
    name, database = aggregate.state.name, aggregate.state.database
    state_tables.drop_tables(ledger, name)
    ledger.execute(query("state_moved"), {"state": name, "database": database, "applied_txid": last.txid or None})


def to_ledger(ledger: Connection, warehouses: Warehouses, aggregate: PersistentAggregate, was: str) -> None:
    """Let the ledger's database have a state again; its reports are made, and its original dropped, by whoever calls."""
    state_tables.execute(ledger, statements_of(aggregate).create_state())
    warehouses.give_back(ledger, aggregate, was)
    ledger.execute(query("state_moved"), {"state": aggregate.state.name, "database": None, "applied_txid": None})
