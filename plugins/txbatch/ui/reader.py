"""The connection of the pages: read-only, few, short, and made when a page is first asked for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from psycopg2 import errors
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, TimeoutError

from txbatch import settings
from txbatch.core.errors import TxbatchError, Unavailable
from txbatch.postgres.database.engine import connect_to_show
from txbatch.postgres.database.transaction import transaction

log = logging.getLogger(__name__)
NAME = "txbatch ui"
SECONDS_MAX = 5
# How long a URL is kept: of a connection of Airflow, and without a connection. Airflow tells a secrets backend that failed
# for a moment and a missing connection in the same words: a URL taken instead must give way soon.
KEPT_SECONDS, FALLBACK_SECONDS = 60, 10


class TooSlow(Exception):
    """A statement took longer than `SECONDS_MAX`."""


class Busy(Exception):
    """All connections of the pages are in use, and none became free within a second."""


@dataclass
class Reader:
    """A ledger's database, asked for pages. `url` returns the URL, which may hold a password, and what errors call the URL.

    The URL is looked up again after some time, and after each failed connect: connections of Airflow are edited.
    """

    url: Callable[[], tuple[str, str]]
    _engine: Engine | None = None
    _of: tuple[str, str] | None = None
    _until: float = 0.0
    _answers: bool = False
    _lock: Lock = field(default_factory=Lock)

    @property
    def engine(self) -> Engine:
        """The engine of the URL as last looked up. Raise DefinitionError if the URL is wrong."""
        with self._lock:
            if self._engine is None or time.monotonic() >= self._until:
                return self._resolved()
            return self._engine

    def _resolved(self) -> Engine:
        found = url, what = self.url()
        if self._engine is None or found != self._of:
            made = connect_to_show(url, application_name=NAME, seconds=SECONDS_MAX, what=what)
            event.listen(made, "handle_error", self._noticed)
            if self._engine is not None:
                self._engine.dispose()
            self._engine, self._of = made, found
        kept = FALLBACK_SECONDS if what == settings.DATABASE_URL else KEPT_SECONDS
        self._until = time.monotonic() + kept
        return self._engine

    def _noticed(self, context: ExceptionContext) -> None:
        """Look the URL up anew at the next use if the server could not be reached, or refused the session."""
        if context.connection is None or context.is_disconnect:
            self._until, self._answers = 0.0, False

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Context manager. Open one snapshot. Raise TooSlow, and Busy if all connections are in use; Unavailable if all wait
        for a server without an answer.
        """
        try:
            with told_if_slow(), transaction(self.engine) as connection:
                self._answers = True
                yield connection
        except Busy as error:
            if self._answers:
                raise
            raise Unavailable("the server of the ledger has not answered") from error


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
