"""The sessions handed on after a batch closes them: only sessions in which nothing was closed before (R26, R27).

A record in time never reaches a closed session. A late record, or a restate, may make a closed session longer and open again,
or join a closed session to an open session. The closed session was handed on before, so the rest of the story is a change.

>>> first, late = SessionVersion(0, 10, txid=1), SessionVersion(30, 35, txid=3)
>>> closings = [(1, 20), (2, 45), (3, 45), (4, 70)]
>>> [first_closed((0, 35), [first, late], 4, Asked(30, closings, since)) for since in (0, 3)]
[2, None]
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter

from txbatch.core.batch.transaction import Metadata
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.windows.session_window import SessionWindow


@dataclass(frozen=True, slots=True)
class SessionVersion:
    """A txid's contribution to a piece of a session: the first and the last time, and the txid of the next version."""

    start: int
    last: int
    txid: int
    replaced_by: int | None = None

    @classmethod
    def of(cls, start: datetime, last: datetime, txid: int, replaced_by: int | None = None) -> SessionVersion:
        """Return the version with datetimes as microseconds."""
        return cls(micros_of(start), micros_of(last), txid, replaced_by)

    def counts(self, at: int) -> bool:
        """True if the version counted when `at` was the newest final txid."""
        return self.txid <= at and not (self.replaced_by is not None and self.replaced_by <= at)


@dataclass(frozen=True, slots=True)
class Before:
    """A key's versions in a replaced generation, which alone decides about sessions closed as of cuts up to `last`."""

    versions: Collection[SessionVersion]
    last: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The question about sessions `gap` apart: whether, from the cut `since` on, a session touching a given one was closed.

    `closings` are the commits that close sessions, by txid, each with the time up to which sessions are closed. An earlier
    version asked only for sessions that begin within the given session, without `touching`.
    """

    gap: int
    closings: Sequence[tuple[int, int]]
    since: int = 0
    touching: bool = True

    def closed(self, session: tuple[int, int], versions: Collection[SessionVersion], at: int, swapped: int = 0) -> bool:
        """True if a part of a session was closed as of a txid, by versions of a generation in reports since txid `swapped`.

        Reports showed a generation as of the commits after the swap: a txid aborted meanwhile showed nothing.
        """
        number, (begin, end) = bisect_right(self.closings, at, key=itemgetter(0)), session
        commit, shut = self.closings[number - 1] if number else (0, 0)
        return commit > swapped and any(
            start <= end and (last if self.touching else start) >= begin and last + self.gap < shut
            for start, last in _sessions(versions, self.gap, at)
        )


def first_closed(
    session: tuple[int, int],
    versions: Collection[SessionVersion],
    cut: int,
    asked: Asked,
    before: Sequence[Before] = (),
) -> int | None:
    """Return the first earlier cut as of which a part of a session was closed; None if no part was.

    The session, a first and a last time, is as of `cut`; `versions` are all versions of the session's key. Versions folded by
    retention count the same as of every asked cut, as no cut before the horizon is asked. Just before each change most was
    closed, as only time goes on between two changes: so only the cuts before changes are asked. `before` are the generations
    replaced until then, oldest first: a swap is a change.
    """
    (begin, end), swapped = session, 0
    for each in before:
        groups = (of for of in _together(each.versions, asked.gap) if of[0].start <= end and _last(of) >= begin)
        there = [version for group in groups for version in group]
        cuts = sorted(at for at in {*_before_changes(there), each.last} if asked.since <= at <= each.last)
        if (found := next((at for at in cuts if asked.closed(session, there, at, swapped)), None)) is not None:
            return found
        swapped = max(swapped, each.last)
    own = next(each for each in _together(versions, asked.gap) if each[0].start <= begin <= _last(each))
    cuts = sorted(at for at in _before_changes(own) if asked.since <= at < cut)
    return next((at for at in cuts if asked.closed(session, own, at, swapped)), None)


def same_sessions(columns: Metadata, others: Metadata) -> bool:
    """True if two stored definitions have sessions with the same keys."""
    return "sessions" in columns and all(columns.get(each) == others.get(each) for each in ("sessions", "keys"))


def _before_changes(versions: Iterable[SessionVersion]) -> set[int]:
    """Return the cuts just before a change."""
    return {txid - 1 for each in versions for txid in (each.txid, each.replaced_by) if txid is not None}


def _sessions(versions: Collection[SessionVersion], gap: int, at: int) -> list[tuple[int, int]]:
    """Return the first and last time of each session as of a txid."""
    there = (each for each in versions if each.counts(at))
    return [(pieces[0].start, _last(pieces)) for pieces in _together(there, gap)]


def _together(versions: Iterable[SessionVersion], gap: int) -> Iterator[list[SessionVersion]]:
    """Yield the groups of versions that would form one session if all counted: no wider session ever existed."""
    return SessionWindow("", "", gap).together(versions, of=lambda each: (each.start, each.last), micros=int)


def _last(versions: Iterable[SessionVersion]) -> int:
    return max(each.last for each in versions)
