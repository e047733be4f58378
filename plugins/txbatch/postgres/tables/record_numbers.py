"""The numbers of records in the ledger in PostgreSQL (R29): read under the ledger's locks, decide by `core.topology.numbered`."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection

from txbatch.core.protocol.record_numbers import Bases
from txbatch.postgres.database.queries import query


def bases(connection: Connection, topology: str, streams: Collection[str]) -> Bases:
    """Return, by stream, the number of the next record; streams without committed records are left out."""
    found = connection.execute(query("next_numbers"), {"topology": topology, "streams": sorted(streams)})
    return {row.stream: row.number for row in found if row.number is not None}
