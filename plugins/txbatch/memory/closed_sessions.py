"""Finds closed sessions that were closed before, in memory.

Compare `postgres.upstream.closed_sessions`: both ask `core.upstream.closed_sessions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txbatch.core.batch.transaction import Metadata
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.upstream.closed_sessions import Asked, Before, SessionVersion, first_closed, same_sessions
from txbatch.core.upstream.closed_windows import asked_since, asks_touching
from txbatch.core.upstream.ranges import Replaced
from txbatch.memory.stored import StoredState
from txbatch.memory.tables import Tables

Key = tuple[Any, ...]


def closed_since(
    tables: Tables,
    state: str,
    stored: StoredState,
    gap: int,
    cut: int,
    range_: Metadata,
    session: tuple[Key, Any],
    replaced: Sequence[Replaced],
) -> int | None:
    """Return the first cut a range asks for with a part of the session closed. A session is a key and a last time.

    Return None if nothing was closed before the session's cut. `replaced` are the generations of earlier cuts.
    """
    key, last = session
    closings = sorted(
        (txid, times.closed_to[state])
        for (topology, txid), times in tables.times.items()
        if topology == stored.topology and times.closed_to and state in times.closed_to
    )
    ends = micros_of(key[-1]), micros_of(last)
    before = [Before(_versions_before(tables, each, state, stored, key[:-1]), each.last) for each in replaced]
    asked = Asked(gap, closings, asked_since(range_), asks_touching(range_))
    return first_closed(ends, _versions(tables, stored, key[:-1]), cut, asked, before)


def _versions_before(tables: Tables, of: Replaced, state: str, now: StoredState, others: Key) -> list[SessionVersion]:
    """Return all versions in a replaced generation; none if the generation had no such sessions."""
    past = tables.rebuilds[of.rebuild].past.get(state)
    return (
        _versions(tables, past, others)
        if past and same_sessions(*(each.definition.columns for each in (past, now)))
        else []
    )


def _versions(tables: Tables, stored: StoredState, others: Key) -> list[SessionVersion]:
    """Return all versions of pieces with the same other keys; folded pieces are a single version, with the last txid."""
    folded = [
        SessionVersion.of(key[-1], row.value[0], row.txid) for key, row in stored.base.items() if key[:-1] == others
    ]
    contributed = [
        SessionVersion.of(key[-1], partial[0], txid, tables.batches[stored.topology, txid].replaced_by)
        for (key, _, txid), partial in stored.contributions.items()
        if key[:-1] == others
    ]
    return [*folded, *contributed]
