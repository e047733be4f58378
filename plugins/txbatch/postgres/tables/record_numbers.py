"""The numbers of records in the ledger in PostgreSQL (R29): read under its locks, decided by `core.topology.numbered`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection

from txbatch.core.protocol.ledger import RunPlan
from txbatch.core.protocol.record_numbers import Bases, pin_record_numbers
from txbatch.postgres.database.queries import query


def bases(connection: Connection, topology: str, streams: Collection[str]) -> Bases:
    """Return the numbers of the next records of these streams, of those of which some are committed."""
    found = connection.execute(query("next_numbers"), {"topology": topology, "streams": sorted(streams)})
    return {row.stream: row.number for row in found if row.number is not None}


def pin(connection: Connection, topology: str, streams: Collection[str], plans: Sequence[RunPlan]) -> list[RunPlan]:
    """Return plans that say from which number on their records are; a restate has that of its position."""
    known = bases(connection, topology, streams)
    return [(run, plan if run.restate else pin_record_numbers(plan, streams, known)) for run, plan in plans]
