"""Retention: which positions are folded into one row a key, and can be restated no more (R22). Decided on what a ledger has read.

A position is folded once the version of it that counts is not above the horizon, with all its versions. Until then all of them
stay, so that every txid from the horizon on can still be asked for.

>>> versions = [Version(1, 1, replaced_by=4), Version(2, 2), Version(3, 3), Version(1, 4)]
>>> folded(versions, 3, pending=frozenset({3}))
Folded(counting=(2,), all=(2,))
>>> folded(versions, 4, pending=frozenset())
Folded(counting=(2, 3, 4), all=(1, 2, 3, 4))
>>> in_order(versions, 3, pending=frozenset())
0
>>> restatable(versions, 3, pending=frozenset({2}))
1
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
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


def folded(versions: Collection[Version], horizon: int, pending: Collection[int]) -> Folded:
    """Return what is folded up to a horizon. `pending` are the positions that a restate in flight is going to replace."""
    counting = [each for each in _counting(versions) if each.txid <= horizon and each.position not in pending]
    positions = {each.position for each in counting}
    gone = [each.txid for each in versions if each.position in positions]
    return Folded(tuple(sorted(each.txid for each in counting)), tuple(sorted(gone)))


def restatable(versions: Collection[Version], horizon: int, pending: Collection[int]) -> int:
    """Return the horizon, lowered so that what a restate in flight replaces is above it: its commit would be refused else."""
    replaced = [each.txid for each in _counting(versions) if each.position in pending]
    return min([horizon, *(txid - 1 for txid in replaced)])


def in_order(versions: Collection[Version], horizon: int, pending: Collection[int]) -> int:
    """Return the horizon, lowered so that all positions up to it are folded: where keys are removed, their order matters."""
    late = [each.position for each in _counting(versions) if each.txid > horizon or each.position in pending]
    below = min((position for position in late if position <= horizon), default=None)
    return horizon if below is None else in_order(versions, below - 1, pending)


def newest_to_fold(wanted: int, final: Sequence[int]) -> int:
    """Return up to which txid may be folded: the newest final one always stays as it is; 0: none.

    >>> newest_to_fold(9, [1, 2, 4]), newest_to_fold(1, [1, 2, 4]), newest_to_fold(9, [])
    (2, 1, 0)
    """
    return max((txid for txid in final[:-1] if txid <= wanted), default=0)


def _counting(versions: Iterable[Version]) -> Iterable[Version]:
    return (each for each in versions if each.replaced_by is None)
