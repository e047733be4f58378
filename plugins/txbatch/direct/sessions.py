"""Makes a batch's own sessions, in memory. Compare `spark.sessions`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from txbatch.core.records.time_buckets import micros_of
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.windows.session_window import SessionWindow
from txbatch.direct.batch_operations import Record, grouped


def own_sessions(
    aggregate: PersistentAggregate, kept: Iterable[Record], late_before: int | None = None
) -> Iterable[Record]:
    """Return a batch's records with the start of the session in the key. Without sessions, return the records unchanged.

    Records before `late_before` are late, and share no session with other records.
    """
    sessions = aggregate.sessions
    return kept if sessions is None else _begun(aggregate, sessions, kept, late_before)


def _begun(
    aggregate: PersistentAggregate, sessions: SessionWindow, kept: Iterable[Record], late_before: int | None
) -> Iterator[Record]:
    start = sessions.name
    for same in grouped(kept, aggregate.keys[:-1]).values():
        dated = [record for record in same if record[start] is not None]
        yield from (record for record in same if record[start] is None)
        for late in (True, False):
            part = (
                each for each in dated if (late_before is not None and micros_of(each[start]) < late_before) is late
            )
            for session in sessions.together(part, of=lambda record: (record[start], record[start])):
                yield from (record | {start: session[0][start]} for record in session)
