"""Connections: txbatch's session settings, and the driver's errors in txbatch's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, cast

import psycopg2
from psycopg2 import errors
from sqlalchemy import Connection, Dialect, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from txbatch.core.errors import (
    BadKey,
    BadRecord,
    BadText,
    DatabaseRefused,
    InvalidSetting,
    NotMigrated,
    OutcomeUnknown,
    OutOfRange,
    PermissionDenied,
    SchemaMismatch,
    StateInUse,
    TxbatchError,
    Unavailable,
    error_of,
)
from txbatch.core.state.state import REPORTS
from txbatch.postgres.database import pooler
from txbatch.postgres.database.url import no_url, parse

# So long the swap waits for each lock, and whoever came after it waits for the swap.
LOCK_TIMEOUT = "500ms"

SERVER_VERSION_MIN = 150000
# A session keeps the temporary tables of its commits, which no vacuum may freeze: none lives for weeks.
RECYCLE_SECONDS = 3600
_SESSION = {
    "default_transaction_isolation": r"read\ committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "synchronous_commit": "on",
    "lock_timeout": "60s",
    "idle_in_transaction_session_timeout": "600s",
    "idle_session_timeout": "0",  # a session that holds a run's name idles as long as Spark is at work
    "statement_timeout": "0",
    "array_nulls": "on",  # else a null in an array is the text NULL
    "exit_on_error": "off",  # errors are expected behind savepoints
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",  # else doubles are read rounded
    "search_path": "pg_catalog",
    "client_min_messages": "warning",  # what SQLAlchemy would log else: that a table is there already
    "jit": "off",
    **pooler.MARK,
    # A client or a server whose host is gone is known to be within two minutes.
    "tcp_keepalives_idle": "60",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "6",
}
_KEEPALIVES = {"keepalives_idle": 60, "keepalives_interval": 10, "keepalives_count": 6}
# By the version that brought them: an older server refuses a connection that names them, and logs that.
_SESSION_SINCE = {170000: {"transaction_timeout": "0"}}
_NOT_THERE = ("3F000", "42P01")
_NO_SETTING = re.compile(r"invalid |definition of service|service file|could not find a .*home directory")
# A view raises an error by the cast of a text: `postgres.schema.sessions`.
_CAST = re.compile(r"^.*?(TX305 .*?)\W?$")
# What a message of a server that speaks English names besides; a message is never judged by its words, but by its SQLSTATE.
_DENIED = re.compile(r"permission denied for (?P<kind>[a-z ]+?) (?P<name>\S.*)")
# A name of a state's table or view, quoted as the server's language does it: "state.words", »state.words«.
_OF_A_STATE = re.compile(r"[^\w.](?:state|contribution|contribution_base|contribution_partition|report)\.")
_OF_THE_LEDGER = re.compile(rf"\breport\.({'|'.join(sorted(REPORTS))})\W")
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


def connect(
    url: str,
    *,
    application_name: str = "txbatch",
    what: str = "TXBATCH_DATABASE_URL",
    warehouse: str | None = None,
) -> Engine:
    """Return an engine on a SQLAlchemy URL; errors call the URL `what`. Raise DefinitionError if it is no psycopg2 URL.

    No connection is made yet. `warehouse` is the name of a database with states apart: errors name its grants by the name.
    The engine sets isolation, timeouts and search path, whatever defaults the role or the database has (R10).
    """
    pool = {"pool_size": 2, "isolation_level": "READ COMMITTED", "execution_options": {"warehouse": warehouse}}
    return _engine(url, what, application_name, pool, {"connect_timeout": 10}, _SESSION)


def connect_to_show(url: str, *, application_name: str, seconds: int, what: str = "TXBATCH_DATABASE_URL") -> Engine:
    """Return an engine for reports on a page: read-only, with few connections, and no statement longer than `seconds`.

    If the server does not answer, the error comes within three seconds. Raise DefinitionError if the URL is no psycopg2 URL.
    """
    pool = {"pool_size": 3, "max_overflow": 0, "pool_timeout": 1, "isolation_level": "REPEATABLE READ"}
    session = {
        "default_transaction_read_only": "on",
        "statement_timeout": f"{seconds}s",
        "lock_timeout": "2s",
        "idle_in_transaction_session_timeout": "30s",
    }
    return _engine(
        url, what, application_name, pool, {"connect_timeout": 2, "tcp_user_timeout": 2000}, _SESSION | session
    )


def _engine(
    url: str,
    what: str,
    application_name: str,
    pool: Mapping[str, Any],
    patience: Mapping[str, int],
    session: Mapping[str, str],
) -> Engine:
    """Return an engine whose sessions have the given settings."""
    try:
        engine = create_engine(
            parse(url, what),
            pool_pre_ping=True,  # a batch's steps lie minutes apart
            pool_recycle=RECYCLE_SECONDS,
            connect_args={
                "application_name": application_name[:63],
                "client_encoding": "UTF8",
                **_KEEPALIVES,
                **patience,
            },
            **pool,
        )
    except (ArgumentError, NoSuchModuleError, ValueError):  # whose text may hold the password
        raise no_url(what) from None
    event.listen(engine, "do_connect", _connecting(session))
    return engine


def _options(settings: Mapping[str, str]) -> str:
    return " ".join(f"-c {name}={value}" for name, value in settings.items())


def _connecting(session: Mapping[str, str]) -> Callable[..., DBAPIConnection]:
    """Return a function that makes an engine's connections, with all settings of a session known to the server.

    If the server knows more settings than the first connection asked for, the first connection is made again.
    """
    settings = session

    def connecting(dialect: Dialect, _: object, args: Sequence[Any], options: dict[str, Any]) -> DBAPIConnection:
        nonlocal settings
        asked = settings  # another thread may set it while this one connects
        connection: Any = dialect.connect(*args, **options | {"options": _options(asked)})
        if asked != (known := _settings(session, connection.server_version)):
            connection.close()
            settings = known
            connection = dialect.connect(*args, **options | {"options": _options(known)})
        pooler.check_settings(connection)
        return cast("DBAPIConnection", connection)

    return connecting


def _settings(session: Mapping[str, str], version: int) -> dict[str, str]:
    """Return the settings of a session, with those known to a server of the given version."""
    newer = (settings for since, settings in _SESSION_SINCE.items() if version >= since)
    return {**session} | dict(chain.from_iterable(each.items() for each in newer))


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """Context manager. Run one transaction. Raise txbatch errors; OutcomeUnknown if the answer to COMMIT is lost (R10)."""
    committing, session = False, None
    try:
        with engine.connect() as connection:
            session = connection.connection.dbapi_connection
            begun = connection.begin()
            try:
                yield connection
            except BaseException:
                if not connection.closed and not connection.invalidated:
                    begun.rollback()
                raise
            committing = True
            begun.commit()
    except DBAPIError as error:
        raise translate(error.orig, committing, _warehouse(engine, session, error.orig)) from error
    except psycopg2.Error as error:
        raise translate(error, committing, _warehouse(engine, session, error)) from error


def _warehouse(engine: Engine, session: object, error: object) -> str | None:
    """Return the warehouse whose session raised an error, or None.

    While a transaction of a warehouse is open, the ledger may be asked, and its session may raise the error.
    """
    cursor = getattr(error, "cursor", None)
    own = cursor is None or cursor.connection is session
    return engine.get_execution_options().get("warehouse") if own else None


def translate(error: BaseException | None, committing: bool = False, warehouse: str | None = None) -> TxbatchError:
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
    if committing and (code is None or code.startswith(("08", "57"))):
        return OutcomeUnknown(
            "outcome unknown: the answer to COMMIT was lost; try again: the ledger knows whether it happened"
        )
    if code is None or code.startswith(("08", "40", "53", "55", "57")):
        unavailable = StateInUse if code == "55P03" else Unavailable
        return unavailable(f"PostgreSQL: {message}; try again, or see `txbatch doctor`")
    return DatabaseRefused(f"PostgreSQL refused: {message} ({code})")


def message_of(error: BaseException | None) -> str:
    """Return the first line of the driver's error, without the severity: a server translates the word ERROR as well."""
    told = getattr(getattr(error, "diag", None), "message_primary", None)
    return (told or str(error)).strip().split("\n")[0]


@contextmanager
def unless_made(connection: Connection) -> Iterator[None]:
    """Context manager. Create something; if another session was quicker and has ended, create nothing and leave the block."""
    cursor = connection.connection.cursor()
    cursor.execute("SAVEPOINT unmade")
    try:
        yield
    except (errors.UniqueViolation, errors.DuplicateSchema, errors.DuplicateTable):
        cursor.execute("ROLLBACK TO unmade")


def _not_there(message: str) -> TxbatchError:
    """Return the error for a missing table or schema. Migrations make the ledger's tables, jobs make the states' tables."""
    if _OF_A_STATE.search(message) and not _OF_THE_LEDGER.search(message):
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
        return f"the ledger's owner grants it by `txbatch grants OWNER WRITER READER`, {BY_AN_ADMINISTRATOR}"
    return (
        f"the owner of database {warehouse!r} grants it by `txbatch grants OWNER WRITER READER --warehouse {warehouse}`, "
        f"{BY_AN_ADMINISTRATOR}; a table there that another role made is given by ALTER TABLE ... OWNER TO"
    )


def _role(error: object) -> str:
    """Return the role of an error's session; if the session has ended, its role is unknown."""
    connection = getattr(getattr(error, "cursor", None), "connection", None)
    if connection is None or connection.closed:
        return "this role"
    return f"role {connection.info.user!r}"


def place(connection: Connection) -> str:
    """Describe where a connection leads: the database, the server and the role, and no password."""
    info: Any = getattr(connection.connection.dbapi_connection, "info", None)
    return f"database {info.dbname!r} at {info.host or 'localhost'}:{info.port}, asked as {info.user!r},"


def check_server(connection: Connection) -> None:
    """Raise DefinitionError if the server is older than PostgreSQL 15."""
    raw = connection.connection.dbapi_connection
    version = getattr(raw, "server_version", 0)
    if version < SERVER_VERSION_MIN:
        raise InvalidSetting(f"PostgreSQL {version // 10000} is too old: txbatch needs 15 or newer")


def run_all(connection: Connection, statements: Iterable[str]) -> None:
    """Run statements one after the other."""
    for statement in statements:
        execute(connection, statement)


def execute(connection: Connection, statement: str) -> Any:
    """Run a statement made by `StateStatements`; return the driver's cursor."""
    cursor = connection.connection.cursor()
    cursor.execute(statement)
    return cursor


def hurry(connection: Connection) -> None:
    """Limit how long the transaction waits for a lock to `LOCK_TIMEOUT`."""
    execute(connection, f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
