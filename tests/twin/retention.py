"""Retention in memory (R22).

Compare `postgres.corrections.retention`: the same decisions of `core.corrections.retention`, on dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from twin.asked import looked_up, rebuilding
from txbatch import failpoints
from txbatch.core.aggregates.merge import RowMerge, merge_named
from txbatch.core.aggregates.merger import Merger
from txbatch.core.batch.transaction import Batch, BatchKind, BatchStatus
from txbatch.core.corrections import retention
from txbatch.core.corrections.retention import Final, FoldableHistory, FoldableVersion, Folded, Slice
from txbatch.core.definition.job_rules import Jobs
from txbatch.core.state.fold import Contribution, fold, last_changed
from txbatch.core.state.keep import Keep
from txbatch.core.state.pruned import more_pruned
from txbatch.core.state.state import TransactionalValue
from txbatch.core.state.update import Change
from txbatch.core.topology.quarantine import quarantine_name
from txbatch.core.upstream.readers import held
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.stored import StoredState
from txbatch.memory.tables import Tables
from txbatch.memory.upstream import readers


class MemoryRetention:
    """`core.corrections.retention.Retention` on a ledger in memory. Each slice is one of its transactions."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self.ledger, self.jobs = ledger, ledger.jobs

    def policies(self) -> Mapping[str, Keep | None]:
        """Return what each topology keeps, as its job last said; None: everything."""
        return {name: stored.keep for name, stored in sorted(self.ledger.tables.topologies.items())}

    def policy(self, topology: str) -> Keep | None:
        """Return what a topology keeps. UnknownName when there is no such topology."""
        self.ledger.tables.check_known(topology)
        return self.ledger.tables.topologies[topology].keep

    def horizon(self, topology: str) -> int:
        """Return up to which txid all states of the topology are folded. UnknownName when there is no such topology."""
        self.ledger.tables.check_known(topology)
        return _horizon(self.ledger.tables, topology)

    def wanted(self, topology: str, keep: Keep) -> int:
        """Return up to which txid may be folded, so that this is kept."""
        tables, before = self.ledger.tables, self.ledger.clock() - timedelta(days=keep.days or 0)
        batches = tables.batches_of(topology)
        first_open = min((each.txid for each in batches if not each.status.final), default=len(batches) + 1)
        final = [each.txid for each in _committed(tables, topology) if each.txid < first_open]
        return retention.wanted(keep, [Final(txid, tables.committed_at[topology, txid] <= before) for txid in final])

    def past(self, topology: str, keep: Keep) -> FoldableHistory:
        """Return what may be folded, so that this is kept, and what that waits for. Changes nothing."""
        horizon, wanted = self.horizon(topology), self.wanted(topology, keep)
        tables = self.ledger.tables
        running = rebuilding(tables, topology)
        rebuild = running.rebuild.number if running else None
        versions, pending = _versions(tables, topology, wanted), _pending(tables, topology)
        return FoldableHistory(topology, horizon, wanted, versions, pending, rebuild, _readers(tables, topology))

    def outlook(self, past: FoldableHistory) -> Slice:
        """Return what folding would come to now. Changes nothing."""
        tables = self.ledger.tables.copy()
        found = retention.foldable(past.versions, past.reached)
        attempts = _forget_attempts(tables, past.topology, past.horizon, past.reached)
        states = _states(tables, past.topology) if found.all else {}
        for name, each in states.items():
            _merges(past.topology, name, each, self.jobs)
        rows, left = (
            sum(len(_gone(each, found)) for each in states.values()),
            _quarantined(past.topology, states, found),
        )
        return Slice(past.reached, len(found.all), rows, attempts, left)

    def fold(self, topology: str, horizon: int) -> Iterator[Slice]:
        """Fold up to this txid, and yield each slice as it is committed. TransientError while a rebuild runs."""
        reached = self.horizon(topology)
        if _states(self.ledger.tables, topology):
            yield from retention.slices(topology, reached, horizon, self._fold)

    def _fold(self, topology: str, wanted: int) -> Slice:
        with self.ledger.transaction() as tables:
            done = _fold(tables, topology, wanted, self.jobs)
            failpoints.hit("gc.before_commit")
            return done


def _fold(tables: Tables, topology: str, wanted: int, jobs: Jobs) -> Slice:
    if rebuilding(tables, topology) is not None:
        raise retention.while_rebuilt(topology)
    wanted = retention.as_read(wanted, _readers(tables, topology))
    after, versions = _horizon(tables, topology), _versions(tables, topology, wanted)
    reached = retention.reach(versions, wanted, frozenset(_pending(tables, topology).values()))
    found, rows = retention.foldable(versions, reached), 0
    left = _quarantined(topology, _states(tables, topology), found)
    for name, stored in _states(tables, topology).items():
        rows += len(_gone(stored, found))
        merges = _merges(topology, name, stored, jobs)
        prunes = "prune" in stored.definition.columns
        folded = _pruned(stored, found, reached) if prunes else _folded(tables, stored, found, merges)
        tables.states[name] = replace(folded, horizon=max(stored.horizon, reached))
    attempts = _forget_attempts(tables, topology, after, reached)
    failpoints.hit("gc.folded")
    return Slice(reached, len(found.all), rows, attempts, left)


def _quarantined(topology: str, states: Mapping[str, StoredState], found: Folded) -> int:
    """Return how many records leave the topology's quarantine."""
    kept = states.get(quarantine_name(topology))
    return 0 if kept is None else sum(txid in found.counting for *_, txid in _gone(kept, found))


def _readers(tables: Tables, topology: str) -> Mapping[str, int]:
    swapped = [each.swapped or 0 for each in tables.rebuilds.values() if each.rebuild.topology == topology]
    pruning = {name: each.horizon for name, each in tables.states.items() if "prune" in each.definition.columns}
    return held([*readers(tables), *looked_up(tables)], topology, max(swapped, default=0), pruning)


def _folded(tables: Tables, stored: StoredState, found: Folded, merges: Sequence[RowMerge]) -> StoredState:
    """Return a state with what counts of these versions in its base, and without any of them."""
    gone, base = _gone(stored, found), dict(stored.base)
    changed: dict[Any, list[Contribution]] = {}
    for (key, position, txid), partial in gone.items():
        replaced_by = tables.batches[stored.topology, txid].replaced_by
        changed.setdefault(key, []).append(Contribution(position, txid, _change(stored, partial), replaced_by))
    for key, contributions in changed.items():
        row = _based(stored, key, contributions, merges)
        base.pop(key, None)
        base |= {} if row is None else {key: row}
    left = {at: partial for at, partial in stored.contributions.items() if at not in gone}
    return replace(stored, base=base, contributions=left)


def _merges(topology: str, state: str, stored: StoredState, jobs: Jobs) -> Sequence[RowMerge]:
    """Return how the values of a state merge; NotFoldable when that takes its job, which is not at hand."""
    columns = stored.definition.columns
    own = retention.own_of(topology, state, columns, jobs)
    return own.merges if own else [merge for *_, rule in columns["values"] if (merge := merge_named(rule))]


def _pruned(stored: StoredState, found: Folded, horizon: int) -> StoredState:
    """Return a state without these versions, and without the rows that count in them."""
    gone = _gone(stored, found)
    if not gone:
        return stored
    keys = {key for key, _, txid in gone if txid in found.counting}
    rows = {key: row for key, row in stored.rows.items() if key not in keys}
    left = {at: partial for at, partial in stored.contributions.items() if at not in gone}
    return replace(stored, rows=rows, contributions=left, pruned=more_pruned(stored.pruned, horizon))


def _based(
    stored: StoredState, key: Any, contributions: Sequence[Contribution], merges: Sequence[RowMerge]
) -> TransactionalValue | None:
    """Return a key's row of the base, given the contributions that are folded into it; None: there is no such key any more."""
    value = fold(stored.based(key), contributions, Merger(merges))
    before = stored.base[key].txid if key in stored.base else 0
    return None if value is None else TransactionalValue(max(before, last_changed(contributions) or 0), value)


def _change(stored: StoredState, partial: Sequence[Any]) -> Change:
    if "remove" not in stored.definition.columns:
        return Change(tuple(partial))
    *values, removed, counted = partial
    return Change(tuple(values), removed, counted)


def _gone(stored: StoredState, found: Folded) -> Mapping[tuple[Any, int, int], Any]:
    """Return the contributions of these versions."""
    return {at: partial for at, partial in stored.contributions.items() if at[2] in found.all}


def _horizon(tables: Tables, topology: str) -> int:
    return min((each.horizon for each in _states(tables, topology).values()), default=0)


def _states(tables: Tables, topology: str) -> Mapping[str, StoredState]:
    """Return the states of a topology that may be folded."""
    return {
        name: each
        for name, each in tables.states.items()
        if each.topology == topology and each.definition.contributions
    }


def _committed(tables: Tables, topology: str) -> list[Batch]:
    return [each for each in tables.batches_of(topology) if each.status is BatchStatus.COMMITTED]


def _versions(tables: Tables, topology: str, wanted: int) -> list[FoldableVersion]:
    """Return the versions above the horizon and up to a txid, and all restates that came later."""
    after, found = _horizon(tables, topology), _committed(tables, topology)
    read = [each for each in found if after < each.txid and (each.txid <= wanted or each.kind is BatchKind.RESTATE)]
    return [FoldableVersion(each.position, each.txid, each.replaced_by) for each in read]


def _pending(tables: Tables, topology: str) -> dict[int, int]:
    """Return the positions that restates in flight are going to replace, by their txids."""
    restates = (each for each in tables.batches_of(topology) if each.kind is BatchKind.RESTATE)
    return {each.txid: each.position for each in restates if not each.status.final}


def _forget_attempts(tables: Tables, topology: str, after: int, horizon: int) -> int:
    """Forget attempts of folded batches that never counted, and return how many; none where a state apart may name one."""
    if tables.states_apart(topology):
        return 0
    folded = {each.txid for each in tables.batches_of(topology) if after < each.txid <= horizon and each.status.final}
    never = ("failed", "superseded", "emitting")
    found = [
        at
        for at, each in tables.attempts.items()
        if at[0] == topology and at[1].txid in folded and each.status in never
    ]
    for at in found:
        del tables.attempts[at]
    return len(found)
