"""Closed sessions that had been closed before, in memory. Compare `postgres.closed_sessions`: both ask `core.closed_sessions`."""

from __future__ import annotations

from typing import Any

from txbatch.core.closed_sessions import Version, closed_before
from txbatch.core.closings import Closing
from txbatch.core.cuts import micros_of
from txbatch.memory.tables import StoredState, Tables

Key = tuple[Any, ...]


def handed_on(
    tables: Tables, state: str, stored: StoredState, closing: Closing, cut: int, since: int, session: tuple[Key, Any]
) -> bool:
    """Return whether something of a session, which is its key and its last time, was closed before a batch closed it."""
    key, last = session
    marks = {
        txid: times.closed_to[state]
        for (topology, txid), times in tables.times.items()
        if topology == stored.topology and times.closed_to and state in times.closed_to
    }

    def closed_to(at: int) -> int | None:
        return max((mark for txid, mark in marks.items() if txid <= at), default=None)

    ends = micros_of(key[-1]), micros_of(last)
    return closed_before(ends, _versions(tables, stored, key[:-1]), closing.gap, closed_to, cut, since)


def _versions(tables: Tables, stored: StoredState, others: Key) -> list[Version]:
    """Return all versions of pieces that are equal in their other keys; what was folded is one, of its last txid."""
    folded = [Version.of(key[-1], row.value[0], row.txid) for key, row in stored.base.items() if key[:-1] == others]
    contributed = [
        Version.of(key[-1], partial[0], txid, tables.batches[stored.topology, txid].replaced_by)
        for (key, _, txid), partial in stored.contributions.items()
        if key[:-1] == others
    ]
    return [*folded, *contributed]
