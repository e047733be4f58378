"""Snapshots of PostgreSQL: which transactions had ended at a moment, and which ended between two moments.

The text of a snapshot, `pg_current_snapshot()::text`, is `xmin:xmax:xip`: all transactions below `xmin` had ended, none from
`xmax` on, and `xip` lists the transactions in progress in between. A row is in the window between two snapshots if its
transaction ended in the later snapshot and not in the earlier.

>>> a, b = Snapshot.parse("10:13:10,12"), Snapshot.parse("12:15:12,13")
>>> [xid for xid in range(8, 16) if b.sees(xid) and not a.sees(xid)]
[10, 14]
>>> str(until(a, b, 10))
'12:13:12'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from txbatch.core.errors import InvalidPlan

# The least number of an ordinary transaction.
FIRST_XID = 3
_TEXT = re.compile(r"([0-9]{1,20}):([0-9]{1,20}):((?:[0-9]{1,20}(?:,[0-9]{1,20})*)?)")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The transactions that had ended at a moment: all below `xmax` but those `in_progress`, in order."""

    xmax: int
    in_progress: tuple[int, ...] = ()

    @property
    def xmin(self) -> int:
        """The least transaction that had not ended."""
        return self.in_progress[0] if self.in_progress else self.xmax

    def sees(self, xid: int) -> bool:
        """Return whether a transaction had ended.

        >>> snapshot = Snapshot(12, (10,))
        >>> snapshot.sees(9), snapshot.sees(10), snapshot.sees(11), snapshot.sees(12)
        (True, False, True, False)
        """
        return xid < self.xmax and xid not in self.in_progress

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.in_progress))}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the snapshot of a text; raise InvalidPlan if the text is no snapshot.

        >>> Snapshot.parse("10:14:10,12")
        Snapshot(xmax=14, in_progress=(10, 12))
        """
        match = _TEXT.fullmatch(text)
        if match is None:
            raise InvalidPlan(f"{text!r} is no snapshot of PostgreSQL; a snapshot is xmin:xmax:xip")
        snapshot = cls.of(int(match[2]), map(int, match[3].split(",")) if match[3] else ())
        if str(snapshot) != text:
            raise InvalidPlan(f"{text!r} is no snapshot of PostgreSQL; its numbers contradict each other")
        return snapshot

    @classmethod
    def of(cls, xmax: int, in_progress: Iterable[int]) -> Self:
        """Return the snapshot with these transactions in progress; numbers from `xmax` on are left out."""
        return cls(xmax, tuple(sorted({xid for xid in in_progress if xid < xmax})))


# Before everything.
FIRST = Snapshot(FIRST_XID)


def horizon(xmin: int) -> Snapshot:
    """Return the snapshot in which all transactions below a number had ended, and no others.

    >>> str(horizon(754))
    '754:754:'
    """
    return Snapshot(xmin)


def both(a: Snapshot, b: Snapshot) -> Snapshot:
    """Return the snapshot of the transactions that had ended in either snapshot.

    >>> str(both(Snapshot.parse("10:14:10,12"), Snapshot.parse("12:12:")))
    '12:14:12'
    """
    least, most = sorted((a, b), key=lambda each: each.xmax)
    return Snapshot.of(most.xmax, (xid for xid in most.in_progress if not least.sees(xid)))


def until(a: Snapshot, b: Snapshot, xid: int) -> Snapshot:
    """Return the snapshot that sees, of the window between two snapshots, the transactions up to a number alone.

    `b` sees all that `a` sees.
    """
    xmax = max(a.xmax, xid + 1)
    return Snapshot.of(xmax, (*b.in_progress, *(each for each in a.in_progress if each > xid)))


def left_open(a: Snapshot, b: Snapshot) -> Iterator[int]:
    """Yield the transactions that were in progress in `a` and had ended in `b`, in order."""
    return (xid for xid in a.in_progress if b.sees(xid))
