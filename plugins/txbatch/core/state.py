"""State, and the update table R9 as a pure function. `postgres.statements` says the same in SQL.

>>> from txbatch.core.aggregator import Merge, merger
>>> add = merger([Merge.ADD])
>>> stored = {"dog": OpaqueValue(2, (4,), (1,), 1)}
>>> update_state(StateKind.OPAQUE, stored, [("dog", (2,))], txid=3, combine=add).puts
{'dog': OpaqueValue(txid=3, value=(6,), prev=(4,), prev_txid=2)}
>>> update_state(StateKind.OPAQUE, stored, [("dog", (2,))], txid=2, combine=add, apart=True).puts
{'dog': OpaqueValue(txid=2, value=(3,), prev=(1,), prev_txid=1)}
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from txbatch.core.aggregator import Partial
from txbatch.core.errors import DefinitionError, StateAhead
from txbatch.core.fields import checked_name

# A partition of the contributions is named after its state and its first txid: name@1234567890123456789
STATE_NAME_BYTES_MAX = 43
# The schema has views of these names in `report.`, where each state has its own.
REPORTS = frozenset({"batches", "attempts", "partitions", "completeness", "gaps"})

Combine = Callable[[Partial, Partial], Partial]


class StateKind(StrEnum):
    """Trident's three kinds of state."""

    NON_TRANSACTIONAL = "non_transactional"
    TRANSACTIONAL = "transactional"
    OPAQUE = "opaque"


class State:
    """A keyed aggregate in PostgreSQL: the table `state.<name>`, reported as `report.<name>`.

    `contributions` keeps what each batch contributed, for restate, why, as-of and verify; without it the state is
    smaller and those are refused.
    """

    kind: StateKind

    def __init__(self, name: str, *, contributions: bool = True) -> None:
        self.name = checked_name(name, "state", STATE_NAME_BYTES_MAX)
        if name in REPORTS:
            raise DefinitionError(f"state {name!r}: report.{name} is a report of the ledger; name it otherwise")
        self.contributions = contributions


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
    """A value, the txid that last changed it, and what both were before; `prev_txid` None: the key did not exist."""

    txid: int
    value: Partial
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
) -> StateUpdate:
    """Decide R9 for a batch. `stored` holds the state's rows (at least those of the batch's keys; apart, also those at txid).

    Several partials of one key are combined. Apart (R21), a row at this very txid is a replay: the transactional value
    stays, the opaque one is computed anew from prev, and a key that the replay no longer has goes back to what it was.

    Raises StateAhead for a row at a later txid, and in the ledger's own database also at this txid.
    """
    batch: dict[Any, Partial] = {}
    for key, partial in partials:
        batch[key] = combine(batch[key], partial) if key in batch else partial
    updates: dict[StateKind, Callable[..., Value]] = {
        StateKind.NON_TRANSACTIONAL: _non_transactional,
        StateKind.TRANSACTIONAL: _transactional,
        StateKind.OPAQUE: _opaque,
    }
    update = updates[kind]
    puts: dict[Any, Value] = {}
    for key, partial in batch.items():
        before = stored.get(key)
        if kind is not StateKind.NON_TRANSACTIONAL and before is not None:
            _check_txid(key, before.txid, txid, apart)
        puts[key] = update(before, partial, txid, combine)
    if apart and kind is StateKind.OPAQUE:
        return _with_vanished_keys(puts, stored, batch, txid)
    return StateUpdate(txid, puts)


def _check_txid(key: Any, stored_txid: int, txid: int, apart: bool) -> None:
    if stored_txid > txid or (stored_txid == txid and not apart):
        raise StateAhead(
            f"key {key!r} is already at txid {stored_txid}, the batch is txid {txid}: state changed outside the ledger"
        )


def _non_transactional(before: NonTransactionalValue | None, partial: Partial, txid: int, combine: Combine) -> Value:
    return NonTransactionalValue(txid, combine(before.value, partial) if before else partial)


def _transactional(before: TransactionalValue | None, partial: Partial, txid: int, combine: Combine) -> Value:
    if before is None:
        return TransactionalValue(txid, partial)
    return before if before.txid == txid else TransactionalValue(txid, combine(before.value, partial))


def _opaque(before: OpaqueValue | None, partial: Partial, txid: int, combine: Combine) -> Value:
    if before is None:
        return OpaqueValue(txid, partial, None, None)
    if before.txid < txid:
        return OpaqueValue(txid, combine(before.value, partial), before.value, before.txid)
    value = partial if before.prev is None else combine(before.prev, partial)
    return OpaqueValue(txid, value, before.prev, before.prev_txid)


def _with_vanished_keys(
    puts: dict[Any, Value], stored: Mapping[Any, OpaqueValue], batch: Mapping[Any, Partial], txid: int
) -> StateUpdate:
    removes = set()
    for key, value in stored.items():
        if value.txid == txid and key not in batch:
            if value.prev is None or value.prev_txid is None:
                removes.add(key)
            else:
                puts[key] = OpaqueValue(value.prev_txid, value.prev, value.prev, value.prev_txid)
    return StateUpdate(txid, puts, frozenset(removes))
