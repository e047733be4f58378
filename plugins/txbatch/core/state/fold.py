"""The fold: what a key's contributions amount to (R17..R19, R22). `postgres.state.folds` says the same in SQL.

A position is the ordinary txid that a contribution stands for; its versions are that txid and those of its restates, of which
the newest counts. What was folded by retention is the key's base, before all positions.

>>> from txbatch.core.aggregates.merge import ADD
>>> from txbatch.core.aggregates.merger import Merger
>>> add = Merger([ADD])
>>> monday = [Contribution(1, 1, Change((4,)), replaced_by=3), Contribution(2, 2, Change((1,)))]
>>> today = [*monday, Contribution(1, 3, Change((5,)))]
>>> fold(None, today, add), fold(None, today, add, at=2), fold((10,), today, add, at=2)
((6,), (5,), (15,))
>>> last_changed(today), last_changed(today, at=2)
(3, 2)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from txbatch.core.aggregates.merge import Partial
from txbatch.core.aggregates.merger import Merger
from txbatch.core.state.update import Change


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one version of a position does to a key; `replaced_by` is the txid that counts in its place since."""

    position: int
    txid: int
    change: Change
    replaced_by: int | None = None

    def counts(self, at: int | None = None) -> bool:
        """True if it counted when `at` was the newest final txid; None: if it does now."""
        if at is None:
            return self.replaced_by is None
        return self.txid <= at and not self.replaced_at(at)

    def replaced_at(self, at: int | None = None) -> bool:
        """True if it had counted before `at`, and did not any more."""
        return self.replaced_by is not None and (at is None or self.replaced_by <= at)


def fold(
    base: Partial | None, contributions: Iterable[Contribution], combine: Merger, at: int | None = None
) -> Partial | None:
    """Return a key's value now, or when `at` was the newest final txid; None: there was no such key.

    In the order of positions, where that matters: for keys that were removed.
    """
    value = base
    for each in sorted((each for each in contributions if each.counts(at)), key=lambda each: each.position):
        value = each.change.after(value, combine.on_the_way)
    return None if value is None else combine.checked(value)


def last_changed(contributions: Collection[Contribution], at: int | None = None) -> int | None:
    """Return the txid that changed a key last, be it that it took a contribution away; None: none did."""
    changed = [each.txid for each in contributions if at is None or each.txid <= at]
    changed += [each.replaced_by for each in contributions if each.replaced_by is not None and each.replaced_at(at)]
    return max(changed, default=None)
