"""Hold a run's name in one process until the process ends: a killed run counts as dead at once.

The name stands in a table only writers reach, with the random key of an advisory lock. The process's session holds the lock.
A role that may only read can neither take a name nor keep a name.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from txbatch.postgres.database.driver_errors import translate
from txbatch.postgres.database.queries import query
from txbatch.postgres.database.transaction import transaction


@dataclass(frozen=True, slots=True)
class PostgresRunLocks:
    """`core.protocol.ports.RunLocks` on a migrated database."""

    engine: Engine

    @contextmanager
    def hold(self, topology: str, name: str) -> Iterator[bool]:
        """Context manager. Hold a name of a topology until the block ends. Yield False if a living process holds the name."""
        mine = {"topology": topology, "name": name, "key": secrets.randbits(63)}
        try:
            with self.engine.connect() as connection:
                try:
                    connection.execute(query("prove_alive"), mine)
                    held = connection.execute(query("hold_name"), mine).first() is not None
                    connection.commit()
                    yield held
                finally:
                    with suppress(DBAPIError):  # of a session that is gone, which holds nothing
                        connection.rollback()
                        connection.execute(query("release_name"), mine)
                        connection.commit()
                    connection.invalidate()  # the session itself must end, and with it the lock
        except DBAPIError as error:
            raise translate(error.orig) from error

    def held(self, topology: str, name: str) -> bool:
        """Return whether a living process holds the name."""
        with transaction(self.engine) as connection:
            return bool(connection.execute(query("name_held"), {"topology": topology, "name": name}).scalar_one())
