"""A run's name, held by one process until it ends, so that a killed run is known to be dead at once.

The name stands in a table that only writers reach, with the random key of an advisory lock that the process's session
holds: who may only read can neither take a name nor keep one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from txbatch.core.transaction import Interval, Run
from txbatch.postgres.engine import transaction, translated
from txbatch.postgres.queries import query


@contextmanager
def hold(engine: Engine, topology: str, name: str) -> Iterator[bool]:
    """Hold a topology's run's name meanwhile; yields False when a living process holds it."""
    mine = {"topology": topology, "name": name, "key": secrets.randbits(63)}
    try:
        with engine.connect() as connection:
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
        raise translated(error.orig) from error


def held(engine: Engine, topology: str, name: str) -> bool:
    """Whether a living process holds the name."""
    with transaction(engine) as connection:
        return bool(connection.execute(query("name_held"), {"topology": topology, "name": name}).scalar_one())


def oldest_unfinished(engine: Engine, topology: str, above: int) -> tuple[int, Run] | None:
    """The oldest batch above a txid that `txbatch run` began and did not finish: its txid, and the run that looked after it."""
    with transaction(engine) as connection:
        given = {"topology": topology, "above": above}
        found = connection.execute(query("resumable_run"), given).mappings().first()
    if found is None:
        return None
    interval = Interval(found["interval_start"], found["interval_end"]) if found["interval_start"] else None
    return found["txid"], Run(found["run"], interval=interval, parameters=found["parameters"] or {})
