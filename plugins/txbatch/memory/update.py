"""The update table of a state in memory (R9), and the fold of a restate (R17). Compare `postgres.state.writer`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from txbatch.core.aggregates.merge import Partial
from txbatch.core.aggregates.merger import Merger
from txbatch.core.batch.transaction import Batch, BatchKind
from txbatch.core.errors import Incomplete
from txbatch.core.protocol.commit import StatePlan
from txbatch.core.state.fold import Contribution, fold
from txbatch.core.state.new_values import changed
from txbatch.core.state.update import Change, Updater
from txbatch.core.topology.persistent_aggregate import PersistentAggregate, finished
from txbatch.memory.stored import StoredState
from txbatch.memory.tables import Tables


def apply(tables: Tables, plan: StatePlan, partials: Sequence[tuple[Any, Partial]], batch: Batch) -> None:
    """Apply R9 to a state's partials, R17 to a restate's. Raise Incomplete if the manifest has another number of partials."""
    name, aggregate, expected = plan.name, plan.aggregate, plan.staged.rows
    if len(partials) != expected:
        raise Incomplete(f"state {name!r}: {len(partials)} partials, the manifest says {expected}; emit again")
    stored = tables.states[name]
    partials = _counting(plan, partials)
    contributions, combine = dict(stored.contributions), Merger(aggregate.partial_merges)
    for key, partial in partials if aggregate.state.contributions else ():
        at = key, batch.position, batch.txid
        contributions[at] = combine.on_the_way(contributions[at], partial) if at in contributions else partial
    stored = tables.states[name] = replace(stored, contributions=contributions)
    changes = aggregate.changes(partials)
    if batch.kind is BatchKind.RESTATE:
        changes = _folded_again(tables, aggregate, stored, batch)
    updater = Updater(aggregate.state.kind, Merger(aggregate.merges))
    rows = updater.update(stored.rows, changes, batch.txid).applied(stored.rows)
    if aggregate.state.new_values is not None:
        shown = [{key: row.value for key, row in each.items()} for each in (stored.rows, rows)]
        before, after = ({key: finished(aggregate, each.get(key)) for key in changes} for each in shown)
        made = [changed(key, before[key], after[key], batch.txid) for key in changes]
        table = str(aggregate.state.new_values)
        tables.new_values[table] = (*tables.new_values.get(table, ()), *(row for row in made if row is not None))
    tables.states[name] = replace(stored, rows=rows)


def _folded_again(
    tables: Tables, aggregate: PersistentAggregate, stored: StoredState, batch: Batch
) -> dict[Any, Change]:
    """Return the change of each key of a restate and the replaced version: the fold replaces the value."""
    both = {batch.txid, *(each.txid for each in tables.batches_of(batch.topology) if each.replaced_by == batch.txid)}
    changed = {key for key, _, txid in stored.contributions if txid in both}
    found: dict[Any, list[Contribution]] = {key: [] for key in changed}
    for (key, position, txid), partial in stored.contributions.items():
        if key in changed:
            (change,) = aggregate.changes([(key, partial)]).values()
            replaced_by = tables.batches[batch.topology, txid].replaced_by
            found[key].append(Contribution(position, txid, change, replaced_by))
    combine = Merger(aggregate.merges)
    values = {key: fold(stored.based(key), each, combine) for key, each in found.items()}
    return {key: Change(value or (), removed=True, counted=value is not None) for key, value in values.items()}


def _counting(plan: StatePlan, partials: Sequence[tuple[Any, Partial]]) -> Sequence[tuple[Any, Partial]]:
    """Return a batch's partials without later columns: null for a column that joined after the position, nothing for a state
    (R23).
    """
    if not plan.counts:
        return []
    if not plan.uncounted:
        return partials
    counts = [column.name not in plan.uncounted for column in plan.aggregate.partial_columns]
    return [
        (key, tuple(value if each else None for value, each in zip(partial, counts, strict=True)))
        for key, partial in partials
    ]
