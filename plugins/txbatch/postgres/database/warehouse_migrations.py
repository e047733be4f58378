"""The numbered migrations of a database with states apart, `sql/warehouse/`: the first run that needs them applies them."""

from __future__ import annotations

from sqlalchemy import Connection

from txbatch.core.errors import NotMigrated
from txbatch.postgres.database.engine import check_server, unless_made
from txbatch.postgres.database.migrate import Migration, migrations
from txbatch.postgres.database.queries import query

# A warehouse made before migrations were counted is as the first one leaves it, and has no table of them.
_UNCOUNTED = frozenset({1})


def migrate_warehouse(connection: Connection, *, create: bool) -> None:
    """Apply the missing migrations to the database. If the database never had states apart, do so only with `create`.

    Safe to call at any time, also by several callers at once. Raise NotMigrated if the database is of a newer version.
    """
    check_server(connection)
    applied = _applied(connection)
    if not applied and create:
        with unless_made(connection):
            _apply(connection)
    elif applied and _missing(applied):
        connection.execute(query("lock_warehouse"))  # one migration at a time, and no commit meanwhile
        _apply(connection)


def _apply(connection: Connection) -> None:
    for migration in _missing(_applied(connection)):
        connection.connection.cursor().execute(migration.sql)
        if migration.number not in _UNCOUNTED:
            row = {"number": migration.number, "name": migration.name}
            connection.execute(query("insert_warehouse_migration"), row)


def _missing(applied: set[int]) -> list[Migration]:
    known = migrations("warehouse")
    if newer := applied - {migration.number for migration in known}:
        raise NotMigrated(
            f"a database with states apart has migrations {sorted(newer)} of a newer txbatch: update this one"
        )
    return [migration for migration in known if migration.number not in applied]


def _applied(connection: Connection) -> set[int]:
    if not connection.execute(query("has_apart")).scalar_one():
        return set()
    if not connection.execute(query("counts_warehouse_migrations")).scalar_one():
        return set(_UNCOUNTED)
    return set(connection.execute(query("warehouse_migrations")).scalars())
