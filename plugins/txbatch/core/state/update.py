"""The update table R9 in pure functions, for each kind of state. In SQL: `postgres.state.statements`, `writer`, `take_back`.

>>> from txbatch.core.aggregates.merge import ADD
>>> from txbatch.core.aggregates.merger import Merger
>>> add = Merger([ADD])
>>> stored = {"dog": OpaqueValue(2, (4,), (1,), 1)}
>>> Updater(StateKind.OPAQUE, add).update(stored, {"dog": Change((2,))}, txid=3).puts
{'dog': OpaqueValue(txid=3, value=(6,), prev=(4,), prev_txid=2)}
>>> Updater(StateKind.OPAQUE, add, apart=True).update(stored, {"dog": Change((2,))}, txid=2).puts
{'dog': OpaqueValue(txid=2, value=(3,), prev=(1,), prev_txid=1)}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from txbatch.core.aggregates.merge import Partial
from txbatch.core.errors import StateAhead
from txbatch.core.state.state import NonTransactionalValue, OpaqueValue, StateKind, TransactionalValue, Value

Combine = Callable[[Partial, Partial], Partial]


@dataclass(frozen=True, slots=True)
class Change:
    """A batch's change to one key: `removed` drops the value before, and unless `counted` the key goes, for no record counts."""

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
class Updater:
    """The decision R9 for a batch. `combine` merges the state's values.

    If the state is `apart`, in another database (R21), a row at the batch's txid comes from an earlier attempt. In the ledger's
    own database no txid comes twice: a row at the txid is an error.
    """

    kind: StateKind
    combine: Combine
    apart: bool = False

    def update(self, stored: Mapping[Any, Any], changes: Mapping[Any, Change], txid: int) -> StateUpdate:
        """Return a batch's changes. `stored` has the rows of the batch's keys.

        For an opaque state apart, `stored` also has all rows at `txid`, and the tombstones of lower txids.

        Raise StateAhead if a row is at a later txid, and in the ledger's own database also if a row is at `txid`; of a
        non-transactional state, never.
        """
        after = {key: self._row(key, stored.get(key), change, txid) for key, change in changes.items()}
        if self.apart and self.kind is StateKind.OPAQUE:
            after |= _given_back({key: row for key, row in stored.items() if key not in changes}, txid)
        puts = {key: row for key, row in after.items() if row is not None and self._stays(row)}
        return StateUpdate(txid, puts, frozenset(after.keys() - puts.keys()))

    def _row(self, key: Any, before: Any, change: Change, txid: int) -> Value | None:
        """Return the key's row after the batch, from the row before; None if the key goes."""
        if self.kind is not StateKind.NON_TRANSACTIONAL:
            self._check(key, before, txid)
        if self.kind is StateKind.OPAQUE:
            prev, prev_txid = self._prev(before, txid)
            return OpaqueValue(txid, change.after(prev, self.combine), prev, prev_txid)
        if self.kind is StateKind.TRANSACTIONAL and before is not None and before.txid == txid:
            return TransactionalValue(txid, before.value)
        value = change.after(before.value if before else None, self.combine)
        if value is None:
            return None
        if self.kind is StateKind.TRANSACTIONAL:
            return TransactionalValue(txid, value)
        return NonTransactionalValue(txid, value)

    def _check(self, key: Any, before: Any, txid: int) -> None:
        if before is not None and (before.txid > txid or (before.txid == txid and not self.apart)):
            raise StateAhead(
                f"key {key!r} is already at txid {before.txid}, the batch is txid {txid}: state changed outside the ledger"
            )

    def _prev(self, before: Any, txid: int) -> tuple[Partial | None, int | None]:
        """Return an opaque key's value before the batch, with its txid. Writes of an earlier attempt do not count."""
        if before is not None and before.txid == txid:
            return before.prev, before.prev_txid
        return (None, None) if before is None or before.value is None else (before.value, before.txid)

    def _stays(self, row: Value) -> bool:
        """True if a row is kept. Apart, a tombstone stays while the tombstone has a value to give back."""
        return row.value is not None or (self.apart and row.prev is not None)


def _given_back(rows: Mapping[Any, OpaqueValue], txid: int) -> dict[Any, Value | None]:
    """Return the changes to opaque rows with keys outside the batch.

    Keys of an earlier attempt at the txid get the value before. Tombstones of lower txids, final by now, go.
    """
    back: dict[Any, Value | None] = {}
    for key, row in rows.items():
        if row.txid > txid or (row.txid < txid and row.value is not None):
            continue
        if row.txid < txid or row.prev is None or row.prev_txid is None:
            back[key] = None
        else:  # `prev` repeats the value: the value before is not kept, and never given back, as txids below are final
            back[key] = OpaqueValue(row.prev_txid, row.prev, row.prev, row.prev_txid)
    return back
