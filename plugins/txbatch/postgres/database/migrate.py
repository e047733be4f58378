"""`txbatch migrate`: numbered migrations, applied once each, in one transaction."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine

from txbatch.core.errors import NotMigrated, SchemaMismatch
from txbatch.core.text import list_numbers
from txbatch.postgres.database.engine import check_server, place, unless_made
from txbatch.postgres.database.queries import query, sql_root
from txbatch.postgres.database.transaction import transaction

_FILE_NAME = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """A numbered file of `sql/migrations/` or `sql/warehouse/`."""

    number: int
    name: str
    sql: str


def migrations(folder: str = "migrations") -> list[Migration]:
    """Return all migrations of a folder below `sql/`, in order."""
    return [Migration(number, name, file.read_text(encoding="utf-8")) for number, name, file in _files(folder)]


def _files(folder: str) -> list[tuple[int, str, Path]]:
    """Return number, name and file of all migrations of a folder below `sql/`, in order."""
    found = ((_FILE_NAME.fullmatch(file.name), file) for file in (sql_root() / folder).iterdir())
    return sorted((int(match[1]), match[2], file) for match, file in found if match)


def migrate(engine: Engine) -> list[Migration]:
    """Apply the missing migrations; return them. Safe to call at any time, also by several callers at once."""
    with transaction(engine) as connection:
        check_server(connection)
        if not _missing(connection):
            return []
        if not connection.execute(query("has_ledger")).scalar_one():  # then there is nothing to lock yet
            with unless_made(connection):
                return _apply(connection)
        connection.execute(query("lock_migrations"))
        _check_names(connection)
        return _apply(connection)


def _check_names(connection: Connection) -> None:
    """Raise SchemaMismatch if a state has the name of a report that an earlier version did not have."""
    from txbatch.core.state.state import REPORTS

    for state in connection.execute(query("states_called"), {"names": sorted(REPORTS)}).scalars():
        raise SchemaMismatch(
            f"state {state!r} has the name of a report that this version brings: give it another one by the version that runs "
            f'it, OpaqueState("another", was="{state}") and `txbatch change`, then migrate again'
        )


def _apply(connection: Connection) -> list[Migration]:
    missing = _missing(connection)
    for migration in missing:
        connection.connection.cursor().execute(migration.sql)
        connection.execute(query("insert_migration"), {"number": migration.number, "name": migration.name})
    return missing


def _missing(connection: Connection) -> list[Migration]:
    done = _applied(connection) or set()
    return [migration for migration in migrations() if migration.number not in done]


def has_ledger(engine: Engine) -> bool:
    """Return whether the database has a ledger, of whatever version."""
    with transaction(engine) as connection:
        check_server(connection)
        return bool(connection.execute(query("has_ledger")).scalar_one())


def check_migrated(engine: Engine) -> None:
    """Raise NotMigrated if the database lacks a migration of the installed version, or has an unknown migration."""
    with transaction(engine) as connection:
        check_server(connection)
        if (applied := _applied(connection)) is None:
            raise NotMigrated(
                f"{place(connection)} has no ledger: see whether it is the database that you mean, by TXBATCH_DATABASE_URL or "
                "Airflow's connection; if it is, run `txbatch migrate` as the owner"
            )
        known = {number for number, _, _ in _files("migrations")}
        where = place(connection)
    if known - applied:
        raise NotMigrated(f"{where} lacks {list_numbers('migration', known - applied)}: run `txbatch migrate`")
    if applied - known:
        raise NotMigrated(
            f"{where} has {list_numbers('migration', applied - known)} of a newer txbatch: update this one"
        )


def _applied(connection: Connection) -> set[int] | None:
    """Return the numbers of the applied migrations; None if there is no ledger."""
    if not connection.execute(query("has_ledger")).scalar_one():
        return None
    return set(connection.execute(query("migrations")).scalars())
