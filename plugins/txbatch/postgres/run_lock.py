"""A lock on a run's name that ends with the process that holds it, so that a killed run is known to be dead at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

from txbatch.core.transaction import Interval, Run
from txbatch.postgres.engine import transaction
from txbatch.postgres.queries import query


@contextmanager
def hold(engine: Engine, run: str) -> Iterator[bool]:
    """Hold the run's name meanwhile; yields False when a living process holds it."""
    with engine.connect() as connection:
        held = connection.execute(query("try_run_lock"), {"run": run}).scalar_one()
        connection.commit()
        try:
            yield bool(held)
        finally:
            connection.invalidate()  # the session itself must end, and with it the lock


def held(engine: Engine, run: str) -> bool:
    """Whether a living process holds the run's name."""
    with transaction(engine) as connection:
        return bool(connection.execute(query("run_lock_held"), {"run": run}).scalar_one())


def oldest_unfinished(engine: Engine, topology: str, above: int) -> tuple[int, Run] | None:
    """The oldest batch above a txid that `txbatch run` began and did not finish: its txid, and the run that looked after it."""
    with transaction(engine) as connection:
        given = {"topology": topology, "above": above}
        found = connection.execute(query("resumable_run"), given).mappings().first()
    if found is None:
        return None
    interval = Interval(found["interval_start"], found["interval_end"]) if found["interval_start"] else None
    return found["txid"], Run(found["run"], interval=interval, parameters=found["parameters"] or {})
