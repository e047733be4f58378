"""The errors of PostgreSQL's driver in txbatch's words."""

from __future__ import annotations

import re

from txbatch.core.errors import (
    BadKey,
    BadRecord,
    BadText,
    DatabaseRefused,
    InvalidSetting,
    NotMigrated,
    OutOfRange,
    PermissionDenied,
    SchemaMismatch,
    StateInUse,
    TxbatchError,
    Unavailable,
    error_of,
)
from txbatch.postgres.database import pooler

_NOT_THERE = ("3F000", "42P01")
_NO_SETTING = re.compile(r"invalid |definition of service|service file|could not find a .*home directory")
# No SQLSTATE comes with a login that is refused. In other languages than English the text has the reason alone.
_LOGIN = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|pg_hba\.conf rejects|is not permitted to log in|"
    r"role .* does not exist"
)
# A view raises an error by the cast of a text: `postgres.schema.sessions`.
_CAST = re.compile(r"^.*?(TX305 .*?)\W?$")
# What a message of a server that speaks English names besides; a message is never judged by its words, but by its SQLSTATE.
_DENIED = re.compile(r"permission denied for (?P<kind>[a-z ]+?) (?P<name>\S.*)")
# A name of a state's table or view, quoted as the server's language does it: "state.words", »state.words«.
_OF_A_STATE = re.compile(r"[^\w.](?:state|contribution|contribution_base|contribution_partition|report)\.")
# By what PostgreSQL calls a thing: what a writer needs on it.
_RIGHTS = {
    "schema": "USAGE or CREATE",
    "database": "CREATE",
    "table": "SELECT, INSERT, UPDATE or DELETE",
    "view": "SELECT",
    "function": "EXECUTE",
}
# How rights are granted that the ledger's owner cannot grant.
BY_AN_ADMINISTRATOR = "and an administrator what is on a database, by the same with `--create`"
_BAD_RECORD: dict[str, tuple[type[BadRecord], str]] = {
    "22003": (OutOfRange, "a value is out of range"),
    "22007": (OutOfRange, "a date or time that PostgreSQL cannot store"),
    "22008": (OutOfRange, "a date or time that PostgreSQL cannot store"),
    "22021": (BadText, "invalid UTF-8 or U+0000"),
    "22P05": (BadText, "a character cannot be stored"),
    "23502": (BadKey, "a key is null"),
    "54000": (BadKey, "a key or a name is too long for an index"),
}


def translate(error: BaseException | None, warehouse: str | None = None) -> TxbatchError:
    """Return the driver's error in txbatch's words; `warehouse` names the database with states apart that raised the error."""
    code = getattr(error, "pgcode", None)
    message = message_of(error)
    coded = error_of(_CAST.sub(r"\1", message) if code == "22P02" else message, TxbatchError)
    if type(coded) is not TxbatchError:  # a function of our own raised the error
        return coded
    if code in _NOT_THERE:
        return _not_there(message)
    if code == "42501":
        return _not_allowed(error, message, warehouse)
    if code is None and (problem := pooler.refused(message)):
        return problem
    if code is None and _NO_SETTING.match(message):
        return InvalidSetting(f"the database's URL is wrong: {message}; mend it")
    if code in _BAD_RECORD:
        kind, what = _BAD_RECORD[code]
        return kind(f"{what}: {message}")
    if code is None and _LOGIN.search(message):
        setting = f"TXBATCH_DATABASE_URL{f'_{warehouse.upper()}' if warehouse else ''}"
        return Unavailable(
            f"PostgreSQL: {message}; correct user or password in {setting}, in the password file or in Airflow's connection, "
            "then see `txbatch doctor`"
        )
    if code is None or code.startswith(("08", "40", "53", "55", "57")):
        unavailable = StateInUse if code == "55P03" else Unavailable
        return unavailable(f"PostgreSQL: {message}; try again, or see `txbatch doctor`")
    return DatabaseRefused(f"PostgreSQL refused: {message} ({code})")


def message_of(error: BaseException | None) -> str:
    """Return the first line of the driver's error, without the severity: a server translates the word ERROR as well."""
    told = getattr(getattr(error, "diag", None), "message_primary", None)
    return (told or str(error)).strip().split("\n")[0]


def _is_of_the_ledger(message: str) -> bool:
    """Return whether a message names a built-in report."""
    from txbatch.core.state.state import REPORTS

    return re.search(rf"\breport\.({'|'.join(sorted(REPORTS))})\W", message) is not None


def _not_there(message: str) -> TxbatchError:
    """Return the error for a missing table or schema. Migrations make the ledger's tables, jobs make the states' tables."""
    if _OF_A_STATE.search(message) and not _is_of_the_ledger(message):
        return SchemaMismatch(
            f"a table or view of a state is gone ({message}), dropped by hand or by another ledger: restore that database, or "
            "`txbatch drop` the topology and run it again from the start"
        )
    return NotMigrated(
        f"the database lacks a table of the ledger ({message}): see whether it is the database that you mean; if it is, run "
        "`txbatch migrate`"
    )


def _not_allowed(error: object, message: str, warehouse: str | None) -> PermissionDenied:
    """Return the error for a missing right: it names the role, the object, the right to grant, and the reader's alternative."""
    denied = _DENIED.fullmatch(message)
    on = f"{denied['kind']} {denied['name']}" if denied else "what it names"
    right = _RIGHTS.get(denied["kind"], "a right") if denied else "a right"
    return PermissionDenied(
        f"{message}: {_role(error)} lacks {right} on {on}. A role that runs batches or rebuilds needs it: "
        f"{granted_by(warehouse)}, and `txbatch doctor` names each right that is missing. A role that reads has "
        f"{'' if warehouse else '`txbatch psql` and '}the schema report, and needs no more"
    )


def granted_by(warehouse: str | None) -> str:
    """Return who grants a writer's missing right, in the ledger's database or in a warehouse, and how."""
    if warehouse is None:
        return f"the ledger's owner grants it by `txbatch grants OWNER WRITER READER --apply`, {BY_AN_ADMINISTRATOR}"
    return (
        f"the owner of database {warehouse!r} grants it by `txbatch grants OWNER WRITER READER --warehouse {warehouse} --apply`, "
        f"{BY_AN_ADMINISTRATOR}; a table there that another role made is given by ALTER TABLE ... OWNER TO"
    )


def _role(error: object) -> str:
    """Return the role of an error's session; if the session has ended, its role is unknown."""
    connection = getattr(getattr(error, "cursor", None), "connection", None)
    if connection is None or connection.closed:
        return "this role"
    return f"role {connection.info.user!r}"
