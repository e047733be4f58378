"""Connections: txbatch's session settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, cast

from psycopg2 import errors
from sqlalchemy import Connection, Dialect, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from txbatch.core.errors import InvalidSetting
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
def unless_made(connection: Connection) -> Iterator[None]:
    """Context manager. Create something; if another session was quicker and has ended, create nothing and leave the block."""
    cursor = connection.connection.cursor()
    cursor.execute("SAVEPOINT unmade")
    try:
        yield
    except (errors.UniqueViolation, errors.DuplicateSchema, errors.DuplicateTable):
        cursor.execute("ROLLBACK TO unmade")


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
