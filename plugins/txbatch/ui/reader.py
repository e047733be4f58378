"""The connection of the pages: read-only, few, short, and made when a page is first asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from psycopg2 import errors
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, TimeoutError

from txbatch.core.errors import TxbatchError
from txbatch.postgres.database.engine import connect_to_show, transaction

log = logging.getLogger(__name__)
NAME = "txbatch ui"
SECONDS_MAX = 5


class TooSlow(Exception):
    """A statement took longer than `SECONDS_MAX`."""


class Busy(Exception):
    """All connections of the pages are in use, and none became free within a second."""


@dataclass
class Reader:
    """A ledger's database, asked for pages. `url` returns the URL, which may hold a password, and what errors call the URL."""

    url: Callable[[], tuple[str, str]]
    _engine: Engine | None = None
    _lock: Lock = field(default_factory=Lock)

    @property
    def engine(self) -> Engine:
        """The engine, made at the first use. Raise DefinitionError if the URL is wrong."""
        with self._lock:
            if self._engine is None:
                url, what = self.url()
                self._engine = connect_to_show(url, application_name=NAME, seconds=SECONDS_MAX, what=what)
            return self._engine

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Context manager. Open one snapshot. Raise TooSlow, and Busy if all connections are in use."""
        with told_if_slow(), transaction(self.engine) as connection:
            yield connection


@contextmanager
def told_if_slow() -> Iterator[None]:
    """Context manager. Raise TooSlow for a cancelled statement, Busy if no connection became free."""
    try:
        yield
    except TimeoutError as error:
        raise Busy from error
    except TxbatchError as error:
        cause = error.__cause__
        if isinstance(cause, DBAPIError) and isinstance(cause.orig, errors.QueryCanceled):
            raise TooSlow from error
        raise
