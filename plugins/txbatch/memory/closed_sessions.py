"""Closed sessions that had been closed before, in memory. Compare `postgres.closed_sessions`: both ask `core.closed_sessions`."""

from __future__ import annotations

from typing import Any

from txbatch.core.closed_sessions import Version, first_closed
from txbatch.core.cuts import micros_of
from txbatch.memory.tables import StoredState, Tables

Key = tuple[Any, ...]


def closed_since(
    tables: Tables, state: str, stored: StoredState, gap: int, cut: int, since: int, session: tuple[Key, Any]
) -> int | None:
    """Return the first cut, from `since` on, as of which something of a session was closed; that is its key and its last time.

    None: nothing was before the cut as of which it is the session.
    """
    key, last = session
    marks = {
        txid: times.closed_to[state]
        for (topology, txid), times in tables.times.items()
        if topology == stored.topology and times.closed_to and state in times.closed_to
    }

    def closed_to(at: int) -> int | None:
        return max((mark for txid, mark in marks.items() if txid <= at), default=None)

    ends = micros_of(key[-1]), micros_of(last)
    return first_closed(ends, _versions(tables, stored, key[:-1]), gap, closed_to, cut, since)


def _versions(tables: Tables, stored: StoredState, others: Key) -> list[Version]:
    """Return all versions of pieces that are equal in their other keys; what was folded is one, of its last txid."""
    folded = [Version.of(key[-1], row.value[0], row.txid) for key, row in stored.base.items() if key[:-1] == others]
    contributed = [
        Version.of(key[-1], partial[0], txid, tables.batches[stored.topology, txid].replaced_by)
        for (key, _, txid), partial in stored.contributions.items()
        if key[:-1] == others
    ]
    return [*folded, *contributed]
