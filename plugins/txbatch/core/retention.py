"""Retention: which positions are folded into one row a key, and can be restated no more (R22). Decided on what a ledger has read.

Up to the horizon every position is folded, with all its versions; so none of them may have a version above it that counts, nor
be waited for by a restate in flight. What reports showed at any txid from the horizon on can then still be asked for.

>>> versions = [Version(1, 1), Version(2, 2, replaced_by=4), Version(3, 3), Version(2, 4)]
>>> reach(versions, 3, pending=()), reach(versions, 4, pending=()), reach(versions, 4, pending={3})
(1, 4, 1)
>>> folded(versions, 4)
Folded(counting=(1, 3, 4), all=(1, 2, 3, 4))
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from txbatch.core.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class Keep:
    """How much of a topology's past can be asked for and restated: its last `txids`, or those of the last `days`."""

    txids: int | None = None
    days: float | None = None

    def __post_init__(self) -> None:
        if (self.txids is None) == (self.days is None):
            raise DefinitionError("retention keeps a number of txids or of days: say one of both")
        if (self.txids is not None and self.txids < 1) or (self.days is not None and self.days <= 0):
            raise DefinitionError("retention keeps at least one txid, or more than 0 days")


@dataclass(frozen=True, slots=True)
class Version:
    """A committed version of a position; `replaced_by` is the txid that counts in its place since."""

    position: int
    txid: int
    replaced_by: int | None = None


@dataclass(frozen=True, slots=True)
class Folded:
    """Txids whose contributions go: of those that are `counting` they are folded into the base."""

    counting: tuple[int, ...]
    all: tuple[int, ...]


def reach(versions: Collection[Version], wanted: int, pending: Collection[int]) -> int:
    """Return how far the horizon may rise. `pending` are the positions that a restate in flight is going to replace."""
    late = [each for each in versions if each.replaced_by is None and (each.txid > wanted or each.position in pending)]
    below = min((each.position for each in late if each.position <= wanted), default=None)
    return wanted if below is None else reach(versions, below - 1, pending)


def folded(versions: Collection[Version], horizon: int) -> Folded:
    """Return what is folded up to a horizon that can be reached."""
    gone = [each for each in versions if each.txid <= horizon]
    counting = [each.txid for each in gone if each.replaced_by is None]
    return Folded(tuple(sorted(counting)), tuple(sorted(each.txid for each in gone)))


def newest_to_fold(wanted: int, final: Sequence[int]) -> int:
    """Return up to which txid may be folded: the newest final one always stays as it is; 0: none.

    >>> newest_to_fold(9, [1, 2, 4]), newest_to_fold(1, [1, 2, 4]), newest_to_fold(9, [])
    (2, 1, 0)
    """
    return max((txid for txid in final[:-1] if txid <= wanted), default=0)
