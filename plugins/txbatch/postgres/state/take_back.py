"""Undo the writes of an attempt to an opaque state in another database (R21)."""

from __future__ import annotations

from collections.abc import Sequence

from txbatch.core.topology.persistent_aggregate import PREVIOUS_PREFIX
from txbatch.postgres.database.expressions import listed, pg_name

# What a tombstone needs to be a row again.
RESTORED_MARKS = ("removed = false", "counted = true")


def take_back(state: str, values: Sequence[str], txid: int, also: Sequence[str] = ()) -> Sequence[str]:
    """Return the statements that undo all writes of a txid to an opaque state.

    `values` are the names of the value columns, `also` more assignments for rows that existed before: see `RESTORED_MARKS`.
    """
    table = f"state.{pg_name(state)}"
    restored = [f"{pg_name(value)} = {pg_name(PREVIOUS_PREFIX + value)}" for value in values]
    return (
        f"DELETE FROM {table} WHERE txid = {txid:d} AND prev_txid IS NULL",
        f"UPDATE {table} SET {listed([*restored, *also, 'txid = prev_txid'])} WHERE txid = {txid:d}",
    )
