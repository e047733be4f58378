"""Processes that die: every connection of one is cut before or after its n-th statement, and it can open none any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg2
from psycopg2.extensions import connection as Connection
from psycopg2.extensions import cursor as Cursor
from sqlalchemy import Engine

from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.database.engine import connect
from txbatch.postgres.ledger import PostgresLedger

_OF_THE_DRIVER = ("select pg_catalog.version()", "show ", "select 1", "select current_schema", "set ")


class Life:
    """Counts the statements of a process, and ends it at one of them: the `at`-th, or the first that says `at`; 0: at none.

    What a driver says to a new connection is none of them.
    """

    def __init__(self, at: int | str = 0, *, after: bool = False) -> None:
        self.at, self.after, self.statements, self.over = at, after, 0, False
        self.connections: list[Connection] = []
        self.last = ""

    def statement(self, what: str, call: Callable[[], Any]) -> Any:
        """Carry out a statement, or die at it."""
        self.alive()
        ours = not what.lower().startswith(_OF_THE_DRIVER)
        self.statements += ours
        mine = ours and (self.at in what if isinstance(self.at, str) else self.statements == self.at)
        if mine and not self.after:
            self.end(what)
        answer = call()
        if mine:
            self.end(what)
        return answer

    def alive(self) -> None:
        if self.over:
            raise psycopg2.OperationalError("this process is dead")

    def end(self, what: str) -> None:
        """All its sessions are cut at once."""
        self.over, self.last = True, what
        for each in self.connections:
            Connection.close(each)
        raise psycopg2.OperationalError("the connection was cut")


class Dying(Connection):
    """A session of a process that may die."""

    life: Life

    def commit(self) -> None:
        self.life.statement("COMMIT", super().commit)


class DyingCursor(Cursor):
    def execute(self, statement: Any, arguments: Any = None) -> Any:
        life = self.connection.life
        return life.statement(str(statement), lambda: Cursor.execute(self, statement, arguments))

    def copy_expert(self, statement: Any, file: Any, size: int = 8192) -> Any:
        life = self.connection.life
        return life.statement(str(statement), lambda: Cursor.copy_expert(self, statement, file, size))


def mortal(url: str, life: Life) -> Engine:
    """An engine whose sessions die with the process."""
    engine = connect(url)

    def begin(*arguments: Any, **options: Any) -> Any:
        life.alive()
        session = psycopg2.connect(*arguments, **options, connection_factory=Dying)
        session.life, session.cursor_factory = life, DyingCursor
        life.connections.append(session)
        return session

    engine.dialect.connect = begin  # type: ignore[method-assign]
    return engine


class Process:
    """A process with a ledger and its warehouses."""

    def __init__(self, url: str, url_of: Callable[[str], str], life: Life | None = None) -> None:
        self.life = life or Life()
        self.engine = mortal(url, self.life)
        warehouses = Warehouses(url_of)
        warehouses.engine = self._warehouse  # type: ignore[method-assign]
        self._url_of, self._engines = url_of, dict[str, Engine]()
        self.ledger = PostgresLedger(self.engine, warehouses=warehouses)

    def _warehouse(self, database: str) -> Engine:
        if database not in self._engines:
            self._engines[database] = mortal(self._url_of(database), self.life)
        return self._engines[database]

    def end(self) -> None:
        """It ends well."""
        for engine in (self.engine, *self._engines.values()):
            engine.dispose()
