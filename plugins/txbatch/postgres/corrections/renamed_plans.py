"""Rename a stream or a state (R23) in all stored plans, manifests and counts."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from txbatch.core.batch.transaction import Metadata
from txbatch.core.definition.redefinition import RenameState, RenameStream
from txbatch.core.stored_json import STORED_BYTES_MAX, canonical_json, digest
from txbatch.postgres.database.queries import query

_CHUNK_TXIDS = 1_000


def rename_stream(connection: Connection, topology: str, step: RenameStream) -> None:
    """Rename a stream of a topology whose row is locked and that has no open batch."""
    names = {"topology": topology, "stream": step.stream, "was": step.was}
    for statement in (
        "rename_stream_of_partitions",
        "rename_stream_of_consumed",
        "rename_stream_of_states",
        "rename_stream_of_behind",
        "rename_stream_of_watermarks",
        "rename_stream_of_windows_left",
        "rename_stream_of_came_late",
    ):
        connection.execute(query(statement), names)
    _rename(connection, topology, step)


def rename_looked_up(connection: Connection, step: RenameState) -> None:
    """Rename a state in the plans of every topology that looks up in the state; no such plan is of an open batch."""
    for topology in connection.execute(query("look_up_in"), {"state": step.was}).scalars().all():
        _rename(connection, topology, step)


def _rename(connection: Connection, topology: str, step: RenameStream | RenameState) -> None:
    newest = connection.execute(query("last_txid"), {"topology": topology}).scalar_one()
    for first in range(1, newest + 1, _CHUNK_TXIDS):
        txids = {"topology": topology, "first": first, "last": first + _CHUNK_TXIDS - 1}
        for select, update in (
            ("manifests_of_txids", "rename_manifest"),
            ("plans_of_txids", "rename_plan"),
            ("rebuilt_of_txids", "rename_rebuilt"),
        ):
            rows = [dict(row) for row in connection.execute(query(select), txids).mappings()]
            if rows:
                connection.execute(query(update), [row | _renamed(row, step) for row in rows])


def _renamed(row: Metadata, step: RenameStream | RenameState) -> dict[str, str]:
    """Return the columns of a row that hold names. A rebuild's `streams` column holds only the streams that the rebuild read.

    If a manifest has the digest of the plan, the manifest gets the digest of the renamed plan.
    """
    found: dict[str, dict[str, Any]] = {
        name: dict(step.within(row[name])) for name in ("metadata", "manifest") if row.get(name)
    }
    if "plan" in row and row["manifest"]["metadata_digest"] == digest(row["plan"]):
        found["manifest"]["metadata_digest"] = digest(step.within(row["plan"]))
    if "streams" in row:
        found["streams"] = step.within({"streams": row["streams"]})["streams"]
    return {name: canonical_json(value, STORED_BYTES_MAX) for name, value in found.items()}
