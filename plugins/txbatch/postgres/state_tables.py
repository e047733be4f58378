"""The tables of a topology's states: made once, compared ever after, never inside a commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, RowMapping

from txbatch.core.errors import SchemaMismatch, UnknownName
from txbatch.core.persistent_aggregate import PersistentAggregate
from txbatch.core.transaction import canonical_json
from txbatch.postgres import report_views, rows
from txbatch.postgres.expressions import quoted
from txbatch.postgres.queries import query
from txbatch.postgres.report_views import changes_name
from txbatch.postgres.statements import StateStatements

# A contribution partition holds this many txids.
PARTITION_TXIDS = 1_000


def ensure(connection: Connection, topology: str, aggregate: PersistentAggregate, next_txid: int) -> bool:
    """Create the state's tables and report view, or check that they are as now defined (SchemaMismatch).

    Whether the state is new here. One that is kept apart has its tables elsewhere: see `postgres.apart`.
    """
    state = aggregate.state
    row = {
        "state": state.name,
        "topology": topology,
        "kind": str(state.kind),
        "contributions": state.contributions,
        "columns": canonical_json(columns(aggregate)),
        "database": state.database,
    }
    if connection.execute(query("insert_state"), row).first() is None:
        check(connection, topology, aggregate)
        _run(connection, report_views.missing(connection, aggregate) if state.database is None else [])
        return False
    if state.database is not None:
        return True
    statements = StateStatements(aggregate)
    execute(connection, statements.create_state())
    if state.contributions:
        execute(connection, statements.create_contribution())
        _create_partition(connection, state.name, next_txid)
    _run(connection, report_views.statements(connection, aggregate))
    return True


def _run(connection: Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        execute(connection, statement)


def check(connection: Connection, topology: str, aggregate: PersistentAggregate) -> None:
    """SchemaMismatch when the state is another topology's, or has another kind or other columns."""
    state = aggregate.state
    stored = connection.execute(query("state"), {"state": state.name}).mappings().first()
    if stored is None:
        raise UnknownName(f"state {state.name!r} is not in the ledger; run the topology once")
    if stored["topology"] != topology:
        raise SchemaMismatch(
            f"state {state.name!r} belongs to topology {stored['topology']!r}; a state has one topology: name another state"
        )
    way_out = f"name a new state, or `txbatch drop {topology}` and run it again from the start"
    if stored["kind"] != state.kind or stored["contributions"] != state.contributions:
        raise SchemaMismatch(
            f"state {state.name!r} is stored as {_kind(stored['kind'], stored['contributions'])}, now defined as "
            f"{_kind(state.kind, state.contributions)}; {way_out}"
        )
    if stored["database"] != state.database:
        raise SchemaMismatch(
            f"state {state.name!r} is kept in {_database(stored['database'])}, now defined in {_database(state.database)}; "
            f"{way_out}"
        )
    check_columns(stored, columns(aggregate), way_out)


def _database(name: str | None) -> str:
    return "the ledger's database" if name is None else f"database {name!r}"


def _kind(kind: str, contributions: bool) -> str:
    return f"{kind} {'with' if contributions else 'without'} contributions"


def check_columns(stored: RowMapping, defined: dict[str, Any], way_out: str) -> None:
    """SchemaMismatch names the first column that is stored otherwise."""
    before = {name: spec for part in ("keys", "values") for name, *spec in stored["columns"][part]}
    now = {name: spec for part in ("keys", "values") for name, *spec in defined[part]}
    for name in [*before, *now]:
        if before.get(name) != now.get(name):
            raise SchemaMismatch(
                f"state {stored['state']!r}, column {name!r}: stored {_spec(before.get(name))}, now defined "
                f"{_spec(now.get(name))}; {way_out}"
            )
    if stored["columns"].get("remove", False) != defined.get("remove", False):
        raise SchemaMismatch(
            f"state {stored['state']!r} is stored {'with' if 'remove' in stored['columns'] else 'without'} remove, now "
            f"defined {'with' if 'remove' in defined else 'without'}; {way_out}"
        )
    if stored["columns"] != defined:
        raise SchemaMismatch(f"state {stored['state']!r}: keys or values are in another order now; {way_out}")


def _spec(spec: list[str] | None) -> str:
    return " ".join(spec) if spec else "not at all"


def columns(aggregate: PersistentAggregate) -> dict[str, Any]:
    """Keys and values with their types, as the ledger keeps them."""
    values = [[column.name, column.partial.type, str(column.partial.merge)] for column in aggregate.columns]
    keys = [[key.name, key.type] for key in aggregate.keys]
    return {"keys": keys, "values": values, **({"remove": True} if aggregate.removable else {})}


def ensure_partitions(connection: Connection, topology: str, txid: int) -> None:
    """Make sure that the contributions of this txid, and of those soon to come, have their partition."""
    for state in connection.execute(query("states_of"), {"topology": topology}).mappings():
        if state["contributions"]:
            _create_partition(connection, state["state"], txid + PARTITION_TXIDS // 2)
            _create_partition(connection, state["state"], txid)


def _create_partition(connection: Connection, state: str, txid: int) -> None:
    first = (txid - 1) // PARTITION_TXIDS * PARTITION_TXIDS + 1
    name = f"contribution_partition.{quoted(f'{state}@{first}')}"
    if connection.execute(query("relation_exists"), {"name": name}).scalar_one():
        return
    parent, end = f"contribution.{quoted(state)}", first + PARTITION_TXIDS
    # Made apart and attached: this waits for no open report, as CREATE TABLE ... PARTITION OF would.
    execute(connection, f"CREATE TABLE {name} (LIKE {parent} INCLUDING ALL, CHECK (txid >= {first} AND txid < {end}))")
    execute(connection, f"ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({end})")


def drop(connection: Connection, topology: str) -> list[str]:
    """Drop the tables and views of a topology's states and forget it; returns the states' names.

    States apart are dropped before, by `Warehouses.drop`.
    """
    rows.lock_topology(connection, topology)
    names = [row["state"] for row in connection.execute(query("states_of"), {"topology": topology}).mappings()]
    for name in names:
        execute(connection, f"DROP VIEW IF EXISTS report.{quoted(name)}")
        if connection.execute(query("state"), {"state": changes_name(name)}).first() is None:
            execute(connection, f"DROP VIEW IF EXISTS report.{quoted(changes_name(name))}")
        execute(connection, f"DROP TABLE IF EXISTS contribution.{quoted(name)}")
        execute(connection, f"DROP TABLE IF EXISTS state.{quoted(name)}")
    connection.execute(query("forget_topology"), {"topology": topology})
    return names


def execute(connection: Connection, statement: str) -> Any:
    """Run a statement made by `StateStatements`; returns the driver's cursor."""
    cursor = connection.connection.cursor()
    cursor.execute(statement)
    return cursor
