"""Which of the sessions that a batch closes are handed on: those in which nothing was closed before (R26, R27).

What comes in time never reaches a closed session. A late record, or a restate, may make one longer, so that it is open again, or
join it to one that is open: it was handed on, and what became of it is a change.

>>> first, late = Version(0, 10, txid=1), Version(30, 35, txid=3)
>>> closed_to = {1: 20, 2: 45, 3: 45, 4: 70}.get
>>> [first_closed((0, 35), [first, late], 30, closed_to, cut=4, since=since) for since in (0, 3)]
[2, None]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from txbatch.core.cuts import micros_of
from txbatch.core.session_window import SessionWindow


@dataclass(frozen=True, slots=True)
class Version:
    """What a txid contributed to a piece of a session: its first and its last time, and by which txid it was replaced."""

    start: int
    last: int
    txid: int
    replaced_by: int | None = None

    @classmethod
    def of(cls, start: datetime, last: datetime, txid: int, replaced_by: int | None = None) -> Version:
        """Return it of times."""
        return cls(micros_of(start), micros_of(last), txid, replaced_by)

    def counts(self, at: int) -> bool:
        """True if it counted when `at` was the newest final txid."""
        return self.txid <= at and not (self.replaced_by is not None and self.replaced_by <= at)


def first_closed(
    session: tuple[int, int],
    versions: Collection[Version],
    gap: int,
    closed_to: Callable[[int], int | None],
    cut: int,
    since: int = 0,
) -> int | None:
    """Return the first earlier cut, from `since` on, as of which something within a session was closed; None: none was.

    The session is as of `cut`. What retention folded is the same as of all of them: `since` is not before the horizon.

    `session` has its first and its last time, `versions` are all of its key; `closed_to` returns up to when sessions were closed
    as of a txid. Just before each change there was most to close: between two of them the time alone goes on.
    """
    begin, end = session
    versions = next(each for each in _together(versions, gap) if each[0].start <= begin <= _last(each))
    changed = {txid for each in versions for txid in (each.txid, each.replaced_by) if txid is not None}
    for before in sorted(txid - 1 for txid in changed if since < txid <= cut):
        shut = closed_to(before)
        if shut is not None and any(
            begin <= start <= end and last + gap < shut for start, last in _sessions(versions, gap, before)
        ):
            return before
    return None


def _sessions(versions: Collection[Version], gap: int, at: int) -> list[tuple[int, int]]:
    """Return first and last time of each session as of a txid."""
    there = (each for each in versions if each.counts(at))
    return [(pieces[0].start, _last(pieces)) for pieces in _together(there, gap)]


def _together(versions: Iterable[Version], gap: int) -> Iterator[list[Version]]:
    """Yield those that would be of one session if all counted: no others ever were."""
    return SessionWindow("", "", gap).together(versions, of=lambda each: (each.start, each.last), micros=int)


def _last(versions: Iterable[Version]) -> int:
    return max(each.last for each in versions)
