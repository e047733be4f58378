"""The update table R9 as pure functions: one class per kind of state, and per place. `postgres.state.statements` is the
same in SQL.

>>> from txbatch.core.aggregates.merge import ADD
>>> from txbatch.core.aggregates.merger import Merger
>>> add = Merger([ADD])
>>> stored = {"dog": OpaqueValue(2, (4,), (1,), 1)}
>>> in_ledger(StateKind.OPAQUE, add).update(stored, {"dog": Change((2,))}, txid=3).puts
{'dog': OpaqueValue(txid=3, value=(6,), prev=(4,), prev_txid=2)}
>>> apart(StateKind.OPAQUE, add).update(stored, {"dog": Change((2,))}, txid=2).puts
{'dog': OpaqueValue(txid=2, value=(3,), prev=(1,), prev_txid=1)}
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from txbatch.core.aggregates.merge import Partial
from txbatch.core.errors import StateAhead
from txbatch.core.state.state import NonTransactionalValue, OpaqueValue, StateKind, TransactionalValue, Value

Combine = Callable[[Partial, Partial], Partial]


@dataclass(frozen=True, slots=True)
class Change:
    """A batch's change to one key. If `removed`, the value before is dropped; if `counted`, records of the key count."""

    partial: Partial
    removed: bool = False
    counted: bool = True

    def also(self, other: Change, combine: Combine) -> Change:
        """Merge two changes of one key in one batch; the order does not matter."""
        both = combine(self.partial, other.partial)
        return Change(both, self.removed or other.removed, self.counted or other.counted)

    def after(self, value: Partial | None, combine: Combine) -> Partial | None:
        """Return the key's value after the batch, from the value before; None if the key does not exist."""
        if not self.counted:
            return None
        return self.partial if self.removed or value is None else combine(value, self.partial)


@dataclass(frozen=True, slots=True)
class StateUpdate:
    """The changes of one commit to one state: rows to write, and keys to remove."""

    txid: int
    puts: Mapping[Any, Value]
    removes: frozenset[Any] = frozenset()

    def applied(self, stored: Mapping[Any, Value]) -> dict[Any, Value]:
        """Return the rows of the state after the commit."""
        return {key: value for key, value in {**stored, **self.puts}.items() if key not in self.removes}


@dataclass(frozen=True, slots=True)
class Updater(ABC):
    """The decision R9 for a batch. `combine` merges the state's values."""

    combine: Combine

    def update(self, stored: Mapping[Any, Any], changes: Mapping[Any, Change], txid: int) -> StateUpdate:
        """Return a batch's changes. `stored` has the rows of the batch's keys; for a state apart, also all rows at `txid`.

        Raise StateAhead if a row is at a later txid, and in the ledger's own database also if a row is at `txid`.
        """
        after: dict[Any, Value | None] = {}
        for key, change in changes.items():
            before = stored.get(key)
            if before is not None:
                self._check(key, before.txid, txid)
            after[key] = self._value(before, change, txid)
        after.update(self._others(stored, changes, txid))
        puts = {key: value for key, value in after.items() if value is not None and self._stays(value)}
        return StateUpdate(txid, puts, frozenset(after.keys() - puts.keys()))

    @abstractmethod
    def _value(self, before: Any, change: Change, txid: int) -> Value | None:
        """Return the key's row after the batch, from the row before."""

    def _check(self, key: Any, stored: int, txid: int) -> None:
        if stored >= txid:
            raise _ahead(key, stored, txid)

    def _others(
        self, stored: Mapping[Any, Any], changes: Mapping[Any, Change], txid: int
    ) -> Mapping[Any, Value | None]:
        """Return the changes to rows with keys outside the batch."""
        return {}

    def _stays(self, value: Value) -> bool:
        return value.value is not None


class NonTransactional(Updater):
    """Combine with the stored value, in every place."""

    def _check(self, key: Any, stored: int, txid: int) -> None:
        pass

    def _value(self, before: NonTransactionalValue | None, change: Change, txid: int) -> Value | None:
        value = change.after(before.value if before else None, self.combine)
        return None if value is None else NonTransactionalValue(txid, value)


class Transactional(Updater):
    """Combine, in the ledger's database, where no txid comes twice."""

    def _value(self, before: TransactionalValue | None, change: Change, txid: int) -> Value | None:
        value = change.after(before.value if before else None, self.combine)
        return None if value is None else TransactionalValue(txid, value)


class Opaque(Updater):
    """Combine, and keep the value before, in the ledger's database."""

    def _value(self, before: OpaqueValue | None, change: Change, txid: int) -> Value | None:
        prev, prev_txid = self._prev(before, txid)
        return OpaqueValue(txid, change.after(prev, self.combine), prev, prev_txid)

    def _prev(self, before: OpaqueValue | None, txid: int) -> tuple[Partial | None, int | None]:
        return (None, None) if before is None or before.value is None else (before.value, before.txid)


class _Apart(Updater):
    """In a database apart from the ledger's (R21), a row at the batch's txid comes from an earlier attempt."""

    def _check(self, key: Any, stored: int, txid: int) -> None:
        if stored > txid:
            raise _ahead(key, stored, txid)


class TransactionalApart(_Apart, Transactional):
    """The row of an earlier attempt stays."""

    def _value(self, before: TransactionalValue | None, change: Change, txid: int) -> Value | None:
        if before is not None and before.txid == txid:
            return before
        return super()._value(before, change, txid)


class OpaqueApart(_Apart, Opaque):
    """The row of an earlier attempt is computed again from the value before, even if the present attempt lacks the key."""

    def _prev(self, before: OpaqueValue | None, txid: int) -> tuple[Partial | None, int | None]:
        if before is not None and before.txid == txid:
            return before.prev, before.prev_txid
        return super()._prev(before, txid)

    def _others(
        self, stored: Mapping[Any, Any], changes: Mapping[Any, Change], txid: int
    ) -> Mapping[Any, Value | None]:
        """Give keys of an earlier attempt at the txid the value before; remove tombstones of lower txids, final by now."""
        back: dict[Any, Value | None] = {}
        for key, value in stored.items():
            if key in changes or value.txid > txid or (value.txid < txid and value.value is not None):
                continue
            if value.txid < txid or value.prev is None or value.prev_txid is None:
                back[key] = None
            else:
                back[key] = OpaqueValue(value.prev_txid, value.prev, value.prev, value.prev_txid)
        return back

    def _stays(self, value: Value) -> bool:
        """A tombstone stays while the tombstone has a value to give back."""
        return value.value is not None or value.prev is not None


def in_ledger(kind: StateKind, combine: Combine) -> Updater:
    """Return the updater of a state in the ledger's own database."""
    match kind:
        case StateKind.NON_TRANSACTIONAL:
            return NonTransactional(combine)
        case StateKind.TRANSACTIONAL:
            return Transactional(combine)
        case StateKind.OPAQUE:
            return Opaque(combine)
        case other:
            assert_never(other)


def apart(kind: StateKind, combine: Combine) -> Updater:
    """Return the updater of a state in another database (R21)."""
    match kind:
        case StateKind.NON_TRANSACTIONAL:
            return NonTransactional(combine)
        case StateKind.TRANSACTIONAL:
            return TransactionalApart(combine)
        case StateKind.OPAQUE:
            return OpaqueApart(combine)
        case other:
            assert_never(other)


def _ahead(key: Any, stored: int, txid: int) -> StateAhead:
    return StateAhead(
        f"key {key!r} is already at txid {stored}, the batch is txid {txid}: state changed outside the ledger"
    )
