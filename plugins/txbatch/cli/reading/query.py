"""`txbatch query`: counted values, by key."""

from __future__ import annotations

import click

from txbatch.cli import arguments
from txbatch.cli.database import chosen_engine, chosen_settings
from txbatch.cli.printing import Rows, prints_rows
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.reading.ledger_reader import LedgerReader


@click.command(context_settings={"ignore_unknown_options": True})  # -1 is a key
@click.argument("state", type=arguments.TEXT)
@click.argument("keys", nargs=-1, type=arguments.KEY)
@prints_rows(nothing="")
def query(state: str, keys: tuple[str, ...]) -> Rows:
    """Look up the values of KEYS in STATE, including missing keys.

    Write a key with several columns in CSV: `txbatch query flights AA,JFK B6,LGA`. A global value has no key: name the
    STATE alone.
    """
    where = chosen_settings()
    reader = LedgerReader(chosen_engine(where), Warehouses(where.warehouse_url))
    return reader.query(state, arguments.keys(keys, reader.key_columns(state)))
