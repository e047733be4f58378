"""A session on a source, read-only, with errors that show no credentials."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl

from txbatch.core.errors import (
    BadRecord,
    InvalidSetting,
    LoginRefused,
    PartitionUnreadable,
    SourceAway,
    SourceChanged,
    SourceUnfit,
    TxbatchError,
)
from txbatch.core.text import one_line

if TYPE_CHECKING:
    import psycopg2

SERVER_VERSION_MIN = 150000
# Set in the transaction: a pooler refuses options at the start, and hands a session's settings to others.
SETTINGS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "row_security": "off",  # an error, in place of rows that are hidden in silence
    "search_path": "pg_catalog",
    "lock_timeout": "60s",
    "jit": "off",
}
_SCHEME = re.compile(r"postgres(?:ql)?(?:\+psycopg2)?://")
# All that is shown of a failed connection without a word of the server; the rest may hold a piece of a password.
_NETWORK = re.compile(
    r"Connection refused|timeout expired|could not translate host name|No such file or directory|Connection reset|"
    r"server closed the connection unexpectedly|Network is unreachable|No route to host|SSL error|"
    r"target_session_attrs|session is (?:not )?read-only"
)
_SETTING = re.compile(
    r"invalid (?:port number|integer value|\S+ value)|(?:root )?certificate file .* does not exist|private key file|"
    r"could not read (?:root )?certificate file"
)
_FATAL = re.compile(r"FATAL:\s+(.+)")
_LOGIN = re.compile(
    r"password authentication failed|no password supplied|authentication failed|no pg_hba\.conf entry|pg_hba\.conf rejects|"
    r"(?:role|database) .* does not exist|is not permitted to log in|permission denied for database|no such database|"
    r"is not currently accepting connections|does not support SSL|certificate verify failed|does not match host name|"
    r"requires a valid client certificate|alert (?:certificate (?:required|expired|unknown)|unknown ca|bad certificate)"
)
# A character that is not in the encoding of the client, or not in that of the server.
_NO_TEXT = ("22021", "22P05")
# A server that is lost, overloaded, or ends sessions.
_AWAY = ("08", "53", "57P0")
# A query casts a text with these words to another type at a row that must not be read: the server ends the query there.
NEWER, _NO_VALUE = "txbatch: newer than the cut", "22P02"
_UNFIT = ("42P01", "42703", "42704", "42809", "3F000", "42883", "25006")


class Writable(Protocol):
    """A receiver of the rows of a COPY, one row at a time."""

    def write(self, row: bytes, /) -> object:
        """Take a row, with the line's end."""


class Session:
    """A read-only transaction on a source. `of` is the source, or the table, in errors."""

    def __init__(self, connection: Any, of: str) -> None:
        self.of, self._connection = of, connection
        self._cursor = connection.cursor()

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        with _told(self.of):
            self._cursor.execute(statement, values or None)
            return list(self._cursor.fetchall())

    def row(self, statement: str, *values: Any) -> tuple[Any, ...]:
        """Return the only row of a statement."""
        (row,) = self.rows(statement, *values)
        return row

    def copy(self, query: str, to: Writable) -> None:
        """Copy the rows of a query in the text format, a line for each row."""
        with _told(self.of):
            self._cursor.copy_expert(f"COPY ({query}) TO STDOUT", to)

    def set_up(self) -> None:
        """Set what reading needs, in this transaction. A SET takes no snapshot: a lock may come before the rows are fixed."""
        self._run("; ".join(f"SET LOCAL {name} TO '{value}'" for name, value in SETTINGS.items()))

    def lock(self, table: str) -> None:
        """Wait for who writes a table anew, and let nobody begin to; `table` is a name in SQL."""
        self._run(f"LOCK TABLE {table} IN ACCESS SHARE MODE")

    def renew(self) -> None:
        """End the transaction by a commit, and begin the next one."""
        with _told(self.of):
            self._connection.commit()
        self.set_up()

    def _run(self, statement: str) -> None:
        with _told(self.of):
            self._cursor.execute(statement)

    def cancel(self) -> None:
        """Cancel the statement at work, from another thread."""
        with suppress(Exception):
            self._connection.cancel()


@contextmanager
def reading(source: str, url: str, of: str = "", *, fixed: bool = False) -> Iterator[Session]:
    """Context manager. Yield a session on a source, in a read-only transaction.

    `fixed`: all statements see the rows as of the first statement. `of` is the table in errors.
    """
    of = f"{of} (source {source!r})" if of else f"source {source!r}"
    connection = connected(source, url)
    try:
        if connection.server_version < SERVER_VERSION_MIN:
            raise SourceUnfit(
                f"{of} is on PostgreSQL {connection.server_version // 10000}; 15 is the least to read from"
            )
        connection.set_session(isolation_level="REPEATABLE READ" if fixed else "READ COMMITTED", readonly=True)
        session = Session(connection, of)
        session.set_up()
        yield session
    finally:
        connection.close()


def run_all(source: str, url: str, statements: Iterator[str] | list[str], of: str) -> None:
    """Run statements on a source, each in a transaction of its own."""
    connection = connected(source, url)
    try:
        connection.autocommit = True
        for statement in statements:
            with _told(f"{of} (source {source!r})"):
                connection.cursor().execute(statement)
    finally:
        connection.close()


def connected(source: str, url: str) -> Any:
    """Return a connection of psycopg2; raise TransientError if the server does not answer, TerminalError if no login helps."""
    import psycopg2

    options = {"connect_timeout": "10", "keepalives_idle": "60", "keepalives_interval": "10", "keepalives_count": "6"}
    try:
        return psycopg2.connect(dsn(source, url, options), application_name="txbatch source", client_encoding="UTF8")
    except psycopg2.Error as error:
        raise no_connection(source, str(error)) from None


def dsn(source: str, url: str, defaults: Mapping[str, str]) -> str:
    """Return the connection string of a URL; raise DefinitionError, which shows no part of the URL, if the URL is none."""
    import psycopg2
    from psycopg2.extensions import make_dsn

    scheme, (start, _, query) = _SCHEME.match(url), url.partition("?")
    wrong = InvalidSetting(f"source {source!r} is no URL of PostgreSQL; write postgresql://user@host:port/database")
    if scheme is None:
        raise wrong
    if start.count("@") > 1:
        raise InvalidSetting(f"source {source!r} is no URL: it has two @; write %40 for an @ of the password")
    given = dict(parse_qsl(query, keep_blank_values=True))
    try:
        return make_dsn(f"postgresql://{start[scheme.end() :]}", **{**defaults, **given})
    except (psycopg2.Error, TypeError, ValueError):  # whose text may hold the password
        raise wrong from None


def no_connection(source: str, said: str) -> TxbatchError:
    """Return the error for a failed connection, by what libpq said: by the server's line, or by words of an allow-list."""
    if _SETTING.search(said):
        return InvalidSetting(f"source {source!r}: its URL has a port or an option that cannot be used; mend the URL")
    fatal, network = _FATAL.search(said), _NETWORK.search(said)
    line = one_line(fatal[1], 300) if fatal else ""
    if login := _LOGIN.search(said):
        state = "28P01: " if "password" in login[0] else ""
        return LoginRefused(
            f"source {source!r} refuses the login ({state}{line or login[0]}); mend its URL or its rights"
        )
    return SourceAway(
        f"source {source!r} does not answer ({line or (network[0] if network else 'no connection')}); try again"
    )


@contextmanager
def _told(of: str) -> Iterator[None]:
    """Context manager. Raise the errors of the block's statements in txbatch's words."""
    import psycopg2

    try:
        yield
    except psycopg2.Error as error:
        raise in_our_words(of, error.pgcode, _line(error)) from None


def _line(error: psycopg2.Error) -> str:
    return one_line(getattr(error.diag, "message_primary", None) or "the connection was lost", 300)


def in_our_words(of: str, state: str | None, line: str) -> TxbatchError:
    """Return the error of a statement, by the SQLSTATE and the server's first line."""
    told = f"{line} ({state})" if state else line
    if state == "42501":
        return SourceUnfit(
            f"{of}: {told}: GRANT the role SELECT on the table and its partitions, USAGE on the schema, and BYPASSRLS where row "
            "security hides rows"
        )
    if state in _UNFIT:
        return SourceUnfit(f"{of}: {told}; mend the table, or the fields of the job")
    if state and state.startswith("28"):
        return LoginRefused(f"{of} refuses the login ({told}); mend its URL or its rights")
    if state in _NO_TEXT:
        return BadRecord(
            f"{of}: {told}: a text of the table is no UTF-8, as a database of the encoding SQL_ASCII takes any bytes; mend the "
            "row, or read the table without the column"
        )
    if state == _NO_VALUE and NEWER in line:
        return SourceChanged(
            f"{of}: rows of the batch were updated while several tasks read them: a row may have moved from the blocks of one "
            "task to those of another; emit again: from the third attempt on, one task reads all"
        )
    if state and state.startswith("22"):
        return BadRecord(f"{of}: {told}; mend the row, or declare the field a string")
    if state and not state.startswith(_AWAY):
        return PartitionUnreadable(f"{of} cannot be read now ({told}); try again")
    return SourceAway(f"{of} does not answer ({told}); try again")
