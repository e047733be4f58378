"""Connections: our own session settings, and the driver's errors in our words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg2
from sqlalchemy import Connection, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from txbatch.core.errors import (
    BadRecord,
    DefinitionError,
    NotMigrated,
    OutcomeUnknown,
    TransientError,
    TxbatchError,
    Unavailable,
)

SERVER_VERSION_MIN = 150000
_SESSION = " ".join(
    f"-c {name}={value}"
    for name, value in {
        "default_transaction_isolation": r"read\ committed",
        "default_transaction_read_only": "off",
        "default_transaction_deferrable": "off",
        "synchronous_commit": "on",
        "lock_timeout": "60s",
        "idle_in_transaction_session_timeout": "600s",
        "statement_timeout": "0",
        "timezone": "UTC",
        "search_path": "pg_catalog",
        "jit": "off",
    }.items()
)
_OUT_OF_RANGE = {
    "22003": "a value is out of range",
    "22021": "invalid UTF-8 or U+0000",
    "22P05": "a character cannot be stored",
    "23502": "a key is null",
}


def connect(url: str, *, application_name: str = "txbatch", what: str = "TXBATCH_DATABASE_URL") -> Engine:
    """An engine on this SQLAlchemy URL, which errors call `what`. DefinitionError when it is no psycopg2 URL; no connection
    is made yet.

    Isolation, timeouts and search path are set by us, whatever the role or the database has as default (R10).
    """
    try:
        parsed = make_url(url)
        if parsed.drivername not in ("postgresql", "postgresql+psycopg2"):
            raise DefinitionError(f"{what}: {parsed.drivername!r} is not postgresql+psycopg2://")
        return create_engine(
            parsed.set(drivername="postgresql+psycopg2"),
            pool_size=2,
            pool_pre_ping=True,  # a batch's steps lie minutes apart
            isolation_level="READ COMMITTED",
            connect_args={
                "options": _SESSION,
                "application_name": application_name[:63],
                "client_encoding": "UTF8",
                "connect_timeout": 10,
            },
        )
    except (ArgumentError, NoSuchModuleError, ValueError):  # whose text may hold the password
        raise DefinitionError(f"{what} is not a URL; write postgresql+psycopg2://user@host:port/database") from None


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """One transaction. Driver errors come out as txbatch errors; a COMMIT without an answer as OutcomeUnknown (R10)."""
    committing = False
    try:
        with engine.connect() as connection:
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
        raise translated(error.orig, committing) from error
    except psycopg2.Error as error:
        raise translated(error, committing) from error


def translated(error: BaseException | None, committing: bool = False) -> TxbatchError:
    """The driver's error in our words."""
    code = getattr(error, "pgcode", None)
    message = str(error).strip().split("\n")[0]
    if code in ("3F000", "42P01"):
        return NotMigrated(f"the database lacks a table of the ledger ({message}): run `txbatch migrate`")
    if code in _OUT_OF_RANGE:
        return BadRecord(f"{_OUT_OF_RANGE[code]}: {message}")
    if committing and (code is None or code.startswith(("08", "57"))):
        return OutcomeUnknown("the answer to COMMIT was lost; try again: the ledger knows whether it happened")
    if code is None or code.startswith(("08", "40", "53", "55", "57")):
        return Unavailable(f"PostgreSQL: {message}; try again, or see `txbatch doctor`")
    return TransientError(f"PostgreSQL refused: {message} ({code})")


def check_server(connection: Connection) -> None:
    """DefinitionError for a server older than PostgreSQL 15 or one that cannot be written to."""
    raw = connection.connection.dbapi_connection
    version = getattr(raw, "server_version", 0)
    if version < SERVER_VERSION_MIN:
        raise DefinitionError(f"PostgreSQL {version // 10000} is too old: txbatch needs 15 or newer")
