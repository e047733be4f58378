"""State, and the update table R9 as a pure function. `postgres.statements` says the same in SQL.

>>> from txbatch.core.merge import ADD, merger
>>> add = merger([ADD])
>>> stored = {"dog": OpaqueValue(2, (4,), (1,), 1)}
>>> update_state(StateKind.OPAQUE, stored, [("dog", (2,))], txid=3, combine=add).puts
{'dog': OpaqueValue(txid=3, value=(6,), prev=(4,), prev_txid=2)}
>>> update_state(StateKind.OPAQUE, stored, [("dog", (2,))], txid=2, combine=add, apart=True).puts
{'dog': OpaqueValue(txid=2, value=(3,), prev=(1,), prev_txid=1)}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from txbatch.core.errors import DefinitionError, StateAhead
from txbatch.core.fields import checked_name
from txbatch.core.merge import Partial

# A partition of the contributions is named after its state and its first txid: name@1234567890123456789
STATE_NAME_BYTES_MAX = 43
# The schema has views of these names in `report.`, where each state has its own.
REPORTS = frozenset({"batches", "attempts", "partitions", "completeness", "gaps", "waiting", "state_coverage"})
# A setting and an Airflow connection are named after it.
_DATABASE = re.compile(r"[a-z][a-z0-9_]*")

Combine = Callable[[Partial, Partial], Partial]


class StateKind(StrEnum):
    """Trident's three kinds of state."""

    NON_TRANSACTIONAL = "non_transactional"
    TRANSACTIONAL = "transactional"
    OPAQUE = "opaque"


class State:
    """A keyed aggregate in PostgreSQL: the table `state.<name>`, reported as `report.<name>`.

    `contributions` keeps what each batch contributed, for restate, why, as-of and verify; without it the state is
    smaller and those are refused. `database` names another database than the ledger's, where the state is kept apart
    (R21): without contributions.
    """

    kind: StateKind

    def __init__(self, name: str, *, contributions: bool | None = None, database: str | None = None) -> None:
        self.name = checked_name(name, "state", STATE_NAME_BYTES_MAX)
        if name in REPORTS:
            raise DefinitionError(f"state {name!r}: report.{name} is a report of the ledger; name it otherwise")
        if database is not None and not _DATABASE.fullmatch(database):
            raise DefinitionError(
                f"state {name!r}: database {database!r} is not a name such as 'warehouse': small letters, digits, '_'"
            )
        if database is not None and contributions:
            raise DefinitionError(f"state {name!r} is kept apart, in {database!r}: it cannot have contributions there")
        self.contributions = database is None if contributions is None else contributions
        self.database = database


class NonTransactionalState(State):
    """No guarantee: a replayed batch counts again."""

    kind = StateKind.NON_TRANSACTIONAL


class TransactionalState(State):
    """Exactly-once for spouts that emit the same records for the same txid."""

    kind = StateKind.TRANSACTIONAL


class OpaqueState(State):
    """Exactly-once also for spouts whose retried batch may hold other records."""

    kind = StateKind.OPAQUE


@dataclass(frozen=True, slots=True)
class NonTransactionalValue:
    """A value that does not know its txid's worth; `txid` only says who wrote last."""

    txid: int
    value: Partial


@dataclass(frozen=True, slots=True)
class TransactionalValue:
    """A value and the txid that last changed it."""

    txid: int
    value: Partial


@dataclass(frozen=True, slots=True)
class OpaqueValue:
    """A value, the txid that last changed it, and what both were before; `prev_txid` None: the key did not exist.

    `value` None is a tombstone: a state apart remembers what the key was until the txid that removed it is final (R21).
    """

    txid: int
    value: Partial | None
    prev: Partial | None
    prev_txid: int | None


Value = NonTransactionalValue | TransactionalValue | OpaqueValue


@dataclass(frozen=True, slots=True)
class StateUpdate:
    """What one commit changes in one state: rows to write, and keys to take away."""

    txid: int
    puts: Mapping[Any, Value]
    removes: frozenset[Any] = frozenset()


def update_state(
    kind: StateKind,
    stored: Mapping[Any, Any],
    partials: Iterable[tuple[Hashable, Partial]],
    *,
    txid: int,
    combine: Combine,
    apart: bool = False,
    removable: bool = False,
) -> StateUpdate:
    """Decide R9 for a batch. `stored` holds the state's rows (at least those of the batch's keys; apart, also those at txid).

    `removable` partials end in two marks, `removed` and `counted`: whether the key's value before the batch is dropped,
    and whether records of the key count. `combine` is that of the values.

    Several partials of one key are combined. Apart (R21), a row at this very txid is a replay: the transactional value
    stays, the opaque one is computed anew from prev, and a key that the replay no longer has goes back to what it was.

    Raises StateAhead for a row at a later txid, and in the ledger's own database also at this txid.
    """
    batch: dict[Any, Change] = {}
    for key, partial in partials:
        change = Change(partial[:-2], *partial[-2:]) if removable else Change(partial)
        batch[key] = batch[key].also(change, combine) if key in batch else change
    updates: dict[StateKind, Callable[..., Value | None]] = {
        StateKind.NON_TRANSACTIONAL: _non_transactional,
        StateKind.TRANSACTIONAL: _transactional,
        StateKind.OPAQUE: _opaque,
    }
    update = updates[kind]
    after: dict[Any, Value | None] = {}
    for key, change in batch.items():
        before = stored.get(key)
        if kind is not StateKind.NON_TRANSACTIONAL and before is not None:
            _check_txid(key, before.txid, txid, apart)
        after[key] = update(before, change, txid, combine)
    if apart and kind is StateKind.OPAQUE:
        after.update(_taken_back(stored, batch, txid))
    puts = {key: value for key, value in after.items() if value is not None and _kept(value, apart)}
    return StateUpdate(txid, puts, frozenset(after.keys() - puts.keys()))


@dataclass(frozen=True, slots=True)
class Change:
    """What a batch does to one key: `removed` drops the value before it, `counted` says that records of the key count."""

    partial: Partial
    removed: bool = False
    counted: bool = True

    def also(self, other: Change, combine: Combine) -> Change:
        """Both changes, of one batch: which came first does not matter."""
        both = combine(self.partial, other.partial)
        return Change(both, self.removed or other.removed, self.counted or other.counted)

    def after(self, value: Partial | None, combine: Combine) -> Partial | None:
        """The key's value, given that before the batch; None: there is no such key."""
        if not self.counted:
            return None
        return self.partial if self.removed or value is None else combine(value, self.partial)


def _check_txid(key: Any, stored_txid: int, txid: int, apart: bool) -> None:
    if stored_txid > txid or (stored_txid == txid and not apart):
        raise StateAhead(
            f"key {key!r} is already at txid {stored_txid}, the batch is txid {txid}: state changed outside the ledger"
        )


def _non_transactional(
    before: NonTransactionalValue | None, change: Change, txid: int, combine: Combine
) -> Value | None:
    value = change.after(before.value if before else None, combine)
    return None if value is None else NonTransactionalValue(txid, value)


def _transactional(before: TransactionalValue | None, change: Change, txid: int, combine: Combine) -> Value | None:
    if before is not None and before.txid == txid:
        return before
    value = change.after(before.value if before else None, combine)
    return None if value is None else TransactionalValue(txid, value)


def _opaque(before: OpaqueValue | None, change: Change, txid: int, combine: Combine) -> Value:
    if before is not None and before.txid == txid:
        prev, prev_txid = before.prev, before.prev_txid
    elif before is not None and before.value is not None:
        prev, prev_txid = before.value, before.txid
    else:
        prev, prev_txid = None, None
    return OpaqueValue(txid, change.after(prev, combine), prev, prev_txid)


def _taken_back(
    stored: Mapping[Any, OpaqueValue], batch: Mapping[Any, Change], txid: int
) -> dict[Any, OpaqueValue | None]:
    """Keys that an earlier attempt of this txid wrote and this one lacks become what they were; tombstones of lower
    txids, which are final, go.
    """
    back: dict[Any, OpaqueValue | None] = {}
    for key, value in stored.items():
        if key in batch or value.txid > txid or (value.txid < txid and value.value is not None):
            continue
        if value.txid < txid or value.prev is None or value.prev_txid is None:
            back[key] = None
        else:
            back[key] = OpaqueValue(value.prev_txid, value.prev, value.prev, value.prev_txid)
    return back


def _kept(value: Value, apart: bool) -> bool:
    """Whether the row stays: a tombstone does in a state apart, while it has something to give back."""
    return value.value is not None or (apart and value.prev is not None)
