"""Databases beside the ledger, in memory (R21). Compare `postgres.apart.warehouses`: changes stay, whatever becomes of the
ledger's transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from txbatch import failpoints
from txbatch.core.aggregates.merge import Partial
from txbatch.core.aggregates.merger import Merger
from txbatch.core.batch.apart import (
    ApartStatus,
    Apply,
    LastWriter,
    LedgerView,
    check_not_set_back,
    check_same_partials,
    decide_apply,
    decide_skip,
    decide_take_back,
)
from txbatch.core.batch.transaction import Assignment, Batch
from txbatch.core.definition.checks import way_out
from txbatch.core.errors import DatabasesDisagree, Incomplete, SchemaMismatch
from txbatch.core.naming import naming
from txbatch.core.protocol.commit import StatePlan
from txbatch.core.state.state import StateKind, Value
from txbatch.core.state.update import Updater
from txbatch.core.topology.persistent_aggregate import PersistentAggregate

At = tuple[str, str]
View = Callable[[str, LastWriter], LedgerView]  # of a state, by name


@dataclass(frozen=True, slots=True)
class StoredApart:
    """A state apart: the place, the owner, the shape, the rows by key, and the last writer."""

    at: At
    ledger: str
    topology: str
    kind: StateKind
    shape: object
    rows: Mapping[Any, Value] = field(default_factory=dict)
    last: LastWriter = field(default_factory=LastWriter)

    @property
    def name(self) -> str:
        """The state's name in errors."""
        return where(self.at)

    def applied(
        self,
        aggregate: PersistentAggregate,
        assignment: Assignment,
        ledger: LedgerView,
        partials: Sequence[tuple[Any, Partial]],
        expected: int,
    ) -> StoredApart:
        """Return the state after R9 for an attempt, as far as the last writer and the `ledger` permit."""
        attempt = assignment.attempt
        step = decide_apply(self.name, self.kind, self.last, assignment, ledger)
        if step is Apply.DONE:
            return self
        if len(partials) != expected:
            raise Incomplete(f"{self.name}: {len(partials)} partials, the manifest says {expected}; emit again")
        digest = _digest(aggregate, partials) if self.kind is StateKind.TRANSACTIONAL else None
        if step is Apply.REPLAY and self.kind is StateKind.TRANSACTIONAL:
            check_same_partials(self.name, self.last, attempt, digest)
        updater = Updater(self.kind, Merger(aggregate.merges), apart=True)
        rows = updater.update(self.rows, aggregate.changes(partials), attempt.txid).applied(self.rows)
        last = LastWriter(attempt.txid, attempt.attempt_id, assignment.token, digest, ApartStatus.APPLIED)
        return replace(self, rows=rows, last=last)


class MemoryWarehouses:
    """States apart, by database and name. `states` is replaced whole, never changed in place."""

    def __init__(self) -> None:
        self.states: Mapping[At, StoredApart] = {}

    def ensure(self, ledger: str, topology: str, aggregate: PersistentAggregate, shape: object, *, new: bool) -> None:
        """Make room for a state `new` to the ledger, or check an old state against the definition (SchemaMismatch)."""
        at = at_of(aggregate)
        if new and at not in self.states:
            self.states = {**self.states, at: StoredApart(at, ledger, topology, aggregate.state.kind, shape)}
        stored = self.owned(at, ledger, topology)
        if stored.shape != shape or (new and stored.last.txid):
            raise SchemaMismatch(
                f"{stored.name} is stored as {stored.shape}, with {stored.last}. {way_out(topology, apart=True)}"
            )

    def owned(self, at: At, ledger: str, topology: str) -> StoredApart:
        """Return a state known to the ledger. Raise DatabasesDisagree for a missing state, SchemaMismatch for another owner."""
        stored = self.states.get(at)
        if stored is None:
            raise DatabasesDisagree(f"{where(at)} is gone, though the ledger knows it")
        if stored.topology != topology:
            raise SchemaMismatch(f"{stored.name} belongs to topology {stored.topology!r}; name another state")
        if stored.ledger != ledger:
            raise SchemaMismatch(f"{stored.name} belongs to another ledger, {stored.ledger}")
        return stored

    def commit(
        self,
        ledger: str,
        assignment: Assignment,
        states: Iterable[StatePlan],
        partials: Mapping[str, Iterable[tuple[Any, Partial]]],
        view: View,
    ) -> None:
        """Apply an attempt to `states` apart, database by database. `view` returns the ledger's view of a state."""
        after: dict[At, StoredApart] = {}
        for each in states:
            at, name = at_of(each.aggregate), each.name
            stored, given = self.owned(at, ledger, assignment.topology), list(partials[name])
            with naming(f"{assignment.topology} {assignment.attempt}, state {name!r}"):
                shown = view(name, stored.last)
                after[at] = stored.applied(each.aggregate, assignment, shown, given, each.staged.rows)
        self._end(after, "commit.apart_committed")

    def take_back(self, ledger: str, batch: Batch, states: Iterable[At], view: View) -> None:
        """Undo the writes of a batch's attempts, and keep the attempts out from now on (R16)."""
        after: dict[At, StoredApart] = {}
        for at in states:
            stored = self._well(at, ledger, batch.topology, view)
            last = decide_take_back(stored.name, stored.kind, stored.last, batch.attempt)
            if last is not None:
                undo = stored.kind is StateKind.OPAQUE and stored.last.applied(batch.txid)
                after[at] = replace(stored, last=last, rows=_before(stored.rows, batch.txid) if undo else stored.rows)
        self._end(after, "abort.apart_committed")

    def prepare_skip(self, ledger: str, pending: Sequence[Batch], states: Iterable[At], view: View) -> None:
        """Prepare to give up an aborted batch's records: see `core.batch.apart.decide_skip`. `pending` are the batches in
        flight.
        """
        after: dict[At, StoredApart] = {}
        for turn in pending[:1]:
            for at in states:
                stored = self._well(at, ledger, turn.topology, view)
                last = decide_skip(stored.name, stored.kind, stored.last, turn.attempt)
                if last is not None:
                    after[at] = replace(stored, last=last)
        self._end(after, "abort.apart_committed")

    def _well(self, at: At, ledger: str, topology: str, view: View) -> StoredApart:
        stored = self.owned(at, ledger, topology)
        check_not_set_back(stored.name, stored.last, view(at[1], stored.last))
        return stored

    def rows(self, state: str) -> Mapping[Any, Value]:
        """Return the rows of a state, in whatever database."""
        return next(stored.rows for (_, name), stored in self.states.items() if name == state)

    def _end(self, after: Mapping[At, StoredApart], failpoint: str) -> None:
        for database in sorted({database for database, _ in after}):
            self.states = {**self.states, **{at: stored for at, stored in after.items() if at[0] == database}}
            failpoints.hit(failpoint)


def at_of(aggregate: PersistentAggregate) -> At:
    """Return the place of a state apart."""
    return str(aggregate.state.database), aggregate.state.name


def where(at: At) -> str:
    """Return the name of a state apart in errors."""
    return f"state {at[1]!r} in database {at[0]!r}"


def _before(rows: Mapping[Any, Value], txid: int) -> Mapping[Any, Value]:
    """Return the rows of an opaque state before a txid."""
    return Updater(StateKind.OPAQUE, Merger([]), apart=True).update(rows, {}, txid).applied(rows)


def _digest(aggregate: PersistentAggregate, partials: Iterable[tuple[Any, Partial]]) -> str | None:
    """Return a digest of an attempt's partials, the same in any order; None without partials."""
    merged, combine = dict[Any, Partial](), Merger(aggregate.partial_merges)
    for key, partial in partials:
        merged[key] = combine.on_the_way(merged[key], partial) if key in merged else partial
    return hashlib.sha256(repr(sorted(merged.items(), key=repr)).encode()).hexdigest() if merged else None
