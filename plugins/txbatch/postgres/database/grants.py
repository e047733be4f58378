"""The only source of roles and grants: fill the statements of `sql/grants/` for three roles, and run them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, text

from txbatch.core.errors import (
    InvalidArgument,
    InvalidName,
    NotMigrated,
    PermissionDenied,
)
from txbatch.core.text import one_line
from txbatch.postgres.database.driver_errors import granted_by
from txbatch.postgres.database.engine import check_server, place
from txbatch.postgres.database.expressions import listed, pg_name, pg_text
from txbatch.postgres.database.queries import query, sql_root
from txbatch.postgres.database.transaction import transaction

# What ends a body in sql/grants/: no name may hold it. PostgreSQL takes the first two for everybody and nobody, quoted or not.
_BODY = "$grants$"
_NO_ROLES = ("public", "none")
_NAME_BYTES = 63
# So many rights that are missing are named for each use.
_CITED = 8
_SLOT = re.compile(r""":("|')(owner|writer|reader)\1|:makers\b|:quarantine """)


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles to migrate the ledger, to plan and commit, and to read reports. Raise DefinitionError for an impossible name."""

    owner: str
    writer: str
    reader: str

    def __post_init__(self) -> None:
        for name in (self.owner, self.writer, self.reader):
            if not name or "\0" in name or _BODY in name or name in _NO_ROLES or len(name.encode()) > _NAME_BYTES:
                raise InvalidName(f"{name!r} cannot be a role of PostgreSQL here: give the role another name")
        if self.reader in (self.owner, self.writer):
            raise InvalidArgument(
                f"the reader {self.reader!r} would be a writer as well: give readers a role of their own"
            )

    def fill(self, statements: str, *, quarantine: bool = False) -> str:
        """Return statements of `sql/grants/` with the names of the roles, quoted."""
        names = {"owner": self.owner, "writer": self.writer, "reader": self.reader}
        makers = listed(dict.fromkeys(map(pg_name, (self.owner, self.writer))))

        def filled(slot: re.Match[str]) -> str:
            if slot[0] == ":makers":
                return makers
            if slot[0] == ":quarantine ":
                return "" if quarantine else "-- "
            return pg_name(names[slot[2]]) if slot[1] == '"' else pg_text(names[slot[2]])

        return _SLOT.sub(filled, statements)


def roles_sql(roles: Roles) -> str:
    """Return the statements an administrator runs before `txbatch migrate`, in the ledger's database and in each warehouse."""
    return roles.fill(_file("roles"))


def ledger_sql(roles: Roles, *, quarantine: bool = False) -> str:
    """Return the statements the owner runs after `txbatch migrate`. `quarantine`: the reader reads records in quarantine, too."""
    files = ["reader"] if roles.owner == roles.writer else ["writer", "reader"]
    return roles.fill("\n".join(map(_file, files)), quarantine=quarantine)


def warehouse_sql(roles: Roles) -> str:
    """Return the statements to run in a database with states apart (R21)."""
    return roles.fill(_file("warehouse"))


def whole(statements: str) -> str:
    """Return statements as a file for psql: all statements run, or none."""
    return f"\\set ON_ERROR_STOP on\nBEGIN;\n\n{statements.strip()}\n\nCOMMIT;\n"


def create(engine: Engine, roles: Roles) -> list[str]:
    """Create the missing roles, and grant rights on the database. Return PostgreSQL's warnings."""
    with transaction(engine) as connection:
        check_server(connection)
        return _run(connection, roles_sql(roles))


def apply(engine: Engine, roles: Roles, *, quarantine: bool = False) -> None:
    """Grant on a ledger. Raise DefinitionError if roles are missing, TerminalError if this role may not grant; NotMigrated.

    DefinitionError names the missing roles, TerminalError the role to run as.
    """
    with transaction(engine) as connection:
        _check(connection, roles, (roles.owner, roles.writer))
        if not connection.execute(query("has_ledger")).scalar_one():
            raise NotMigrated(
                f"{place(connection)} has no ledger yet: see whether it is the database that you mean; if it is, run "
                f"`txbatch migrate` as {roles.owner!r}, then `txbatch grants` again"
            )
        _run(connection, ledger_sql(roles, quarantine=quarantine))


def apply_warehouse(engine: Engine, roles: Roles) -> None:
    """Grant on a database with states apart. Raise DefinitionError and TerminalError as on a ledger."""
    with transaction(engine) as connection:
        _check(connection, roles, (roles.writer,))
        _run(connection, warehouse_sql(roles))


def check_rights(engine: Engine) -> str:
    """Return that the session's role may run, rebuild and report. Raise TerminalError, with each missing right, if it may not."""
    with transaction(engine) as connection:
        me, lacking = _lacking(connection, "rights")
    if not lacking:
        return f"role {me} may run, rebuild and report"
    raise PermissionDenied(f"role {me!r} lacks {lacking}: {granted_by(None)}")


def check_rights_apart(connection: Connection, database: str, states: Sequence[str]) -> None:
    """Raise TerminalError, with each missing right, if the session's role lacks a right in a database with states apart."""
    me, lacking = _lacking(connection, "rights_apart", states=list(states))
    if lacking:
        raise PermissionDenied(f"role {me!r} lacks in database {database!r} {lacking}: {granted_by(database)}")


def _lacking(connection: Connection, name: str, **parameters: Any) -> tuple[str, str]:
    """Return the session's role, and by use the missing rights that a named statement finds."""
    lacking: dict[str, list[str]] = {}
    for row in connection.execute(query(name), parameters):
        lacking.setdefault(row.use, []).append(f"{row.privileges} on {row.object}")
    me = str(connection.execute(text("SELECT current_user")).scalar_one())
    return me, "; ".join(f"for {use}: {_cited(rights)}" for use, rights in lacking.items())


def _cited(rights: Sequence[str]) -> str:
    more = len(rights) - _CITED
    return ", ".join(rights[:_CITED]) + (f" and {more} more" if more > 0 else "")


def _check(connection: Connection, roles: Roles, makers: Sequence[str]) -> None:
    check_server(connection)
    names = [roles.owner, roles.writer, roles.reader]
    there = {row.role: row for row in connection.execute(query("roles"), {"roles": names})}
    if missing := [name for name in dict.fromkeys(names) if name not in there]:
        raise InvalidArgument(
            f"the server has no role {', '.join(map(repr, missing))}: an administrator runs what "
            "`txbatch grants OWNER WRITER READER --create` prints, once"
        )
    for maker in makers:
        if not there[maker].member:
            raise PermissionDenied(
                f"role {there[maker].me!r} may not grant what {maker!r} owns: run it as {roles.owner!r}, to whom an "
                f"administrator gave GRANT {pg_name(roles.writer)} TO {pg_name(roles.owner)} (`txbatch grants ... --create`)"
            )


def _run(connection: Connection, statements: str) -> list[str]:
    cursor = connection.connection.cursor()
    cursor.execute(statements)
    return [one_line(notice.strip()) for notice in cursor.connection.notices]


def _file(name: str) -> str:
    return (sql_root() / "grants" / f"{name}.sql").read_text(encoding="utf-8")
