"""A changed definition, applied to what the ledger in memory knows (R23). Compare `postgres.corrections.definition_changes`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from twin.asked import looked_up, rebuilding, replaced_generations
from txbatch.core.aggregates.merge import Partial
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Metadata
from txbatch.core.definition.changes import after_steps, check_none_runs
from txbatch.core.definition.checks import check_change, check_names_kept
from txbatch.core.definition.redefinition import (
    AddState,
    DropState,
    DropValue,
    KeepContributions,
    OfState,
    Prune,
    Redefinition,
    RenameState,
    RenameStream,
    RenameTopology,
    RenameValue,
    Step,
    steps_of,
)
from txbatch.core.definition.stored import StateDefinition, state_definition
from txbatch.core.state.pruned import begun
from txbatch.core.state.state import OpaqueValue, TransactionalValue, Value
from txbatch.core.topology.topology import Topology
from txbatch.core.upstream.readers import check_changed
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.stored import StoredState
from txbatch.memory.tables import Tables, next_txid
from txbatch.memory.upstream import readers

Of = TypeVar("Of")


class ChangingLedger(MemoryLedger):
    """The twin of the ledger, whose definitions can be changed. Compare `postgres.ledger`."""

    def check_change(self, topology: Topology, job: str) -> None:
        """Raise what `change` would be refused for as things stand; changes nothing."""
        with self.transaction() as tables:
            check(tables, topology, job)

    def change(self, topology: Topology, job: str, why: str, by: str | None = None) -> list[Redefinition]:
        """Apply a changed definition to what is counted, all of it or nothing; return what. Who asks, and why, is not kept."""
        with self.transaction() as tables:
            tables.check_known(tables.name_of(topology))
            return _apply(tables, topology, job)


def _apply(tables: Tables, topology: Topology, job: str) -> list[Redefinition]:
    """Apply what has changed to the states; return what was applied (R23)."""
    found = check(tables, topology, job)
    if found:
        batches = tables.batches_of(tables.name_of(topology))
        txid = next_txid([batch.txid for batch in batches])
        known = tables.known(topology)
        _change(tables, topology, steps_of(found), txid)
        tables.store_definition(topology, job, known)
        tables.check_definition(topology, job)
    return found


def check(tables: Tables, topology: Topology, job: str) -> list[Redefinition]:
    """Return what has changed; raise what `change` is refused for before it has changed anything."""
    name = tables.name_of(topology)
    pending = [batch for batch in tables.batches_of(name) if not batch.status.final]
    found = check_change(topology, job, tables.known(topology), pending)
    running = rebuilding(tables, name)
    check_none_runs(topology.name, found, None if running is None else f"{running.rebuild} runs")
    check_names_kept(name, min(replaced_generations(tables, name), default=None), steps_of(found))
    check_changed(readers(tables), looked_up(tables), steps_of(found))
    return found


def _change(tables: Tables, topology: Topology, steps: Sequence[Step], txid: int) -> None:
    for step in steps:
        if isinstance(step, DropState):
            del tables.states[step.state]
            _forget_closings(tables, topology.name, step.state)
        if isinstance(step, RenameTopology):
            _rename_topology(tables, step.was, topology.name)
        if isinstance(step, RenameStream):
            _rename_stream(tables, topology.name, step)
        if isinstance(step, RenameState):
            _rename(tables, topology.name, step)
    for aggregate in topology.aggregates:
        name = aggregate.state.name
        own = [step for step in steps if isinstance(step, OfState) and step.state == name]
        if AddState(name) in own:
            joined = replace(state_definition(aggregate), joined=txid)
            tables.states[name] = StoredState(topology.name, joined)
        elif own:
            changed = _changed(tables.states[name], state_definition(aggregate), own, txid)
            tables.states[name] = replace(changed, aggregate=aggregate)


def _forget_closings(tables: Tables, topology: str, state: str) -> None:
    """Nothing says any more which windows of a state that is gone were closed: another one may have its name later."""
    for at, times in tables.times.items():
        if at[0] == topology and times.closed_to is not None:
            shut, closed = _without(times.closed_to, state), _without(times.closed, state)
            tables.times[at] = replace(times, closed_to=shut, closed=closed)


def _without(by_state: Mapping[str, Of], state: str) -> dict[str, Of]:
    return {name: each for name, each in by_state.items() if name != state}


def _rename_topology(tables: Tables, was: str, name: str) -> None:
    """A topology has another name: every table has it first in its keys, or in a row."""
    tables.topologies[name] = tables.topologies.pop(was)
    for at, state in tables.states.items():
        tables.states[at] = replace(state, topology=name if state.topology == was else state.topology)
    for batch in tables.batches_of(was):
        tables.batches[was, batch.txid] = replace(batch, topology=name)
    for number, counting in tables.rebuilds.items():
        if counting.rebuild.topology == was:
            tables.rebuilds[number] = replace(counting, rebuild=replace(counting.rebuild, topology=name))
    keyed: list[dict[Any, Any]] = [
        tables.batches,
        tables.leases,
        tables.committed_at,
        tables.intervals,
        tables.batch_keys,
    ]
    keyed += [tables.attempts, tables.waiting, tables.partitions, tables.consumed]
    for table in [*keyed, tables.times, tables.latest, tables.came_late]:
        _rekey(table, was, name)


def _rename_stream(tables: Tables, topology: str, step: RenameStream) -> None:
    """A stream has another name, in plans, manifests and what was read."""
    for batch in tables.batches_of(topology):
        tables.batches[topology, batch.txid] = replace(batch, metadata=step.within(batch.metadata))
    for of, times in tables.times.items():
        if of[0] == topology and times.watermark is not None:
            watermark = {step.of(name): mark for name, mark in times.watermark.items()}
            tables.times[of] = replace(times, watermark=watermark)
    for at, attempt in tables.attempts.items():
        if at[0] == topology and attempt.manifest:
            manifest = Manifest.from_json(step.within(attempt.manifest.to_json()))
            tables.attempts[at] = replace(attempt, manifest=manifest)
    for of, came in tables.came_late.items():
        if of[0] == topology:
            tables.came_late[of] = {step.of(name): each for name, each in came.items()}
    for number, counting in tables.rebuilds.items():
        if counting.rebuild.topology == topology:
            again = {
                txid: (
                    _within(plan, step),
                    {step.of(name): of for name, of in read.items()},
                )
                for txid, (plan, read) in counting.read.items()
            }
            tables.rebuilds[number] = replace(counting, read=again)
    for name, state in tables.states.items():
        if state.topology == topology:
            streams = state.definition.streams and sorted(map(step.of, state.definition.streams))
            left = state.left and state.left.renamed(step.of)
            tables.states[name] = replace(state, definition=replace(state.definition, streams=streams), left=left)
    by_stream: list[dict[Any, Any]] = [tables.partitions, tables.consumed, tables.latest]
    for table in by_stream:
        for at in [at for at in table if at[:2] == (topology, step.was)]:
            table[topology, step.stream, *at[2:]] = table.pop(at)


def _rename(tables: Tables, topology: str, step: RenameState) -> None:
    """A state has another name, also in what batches say of it, and as of when those of any topology look it up."""
    state, was = step.state, step.was
    tables.states[state] = tables.states.pop(was)
    for key, batch in tables.batches.items():
        tables.batches[key] = replace(batch, metadata=step.within(batch.metadata))
    for number, counting in tables.rebuilds.items():
        again = {txid: (_within(plan, step), read) for txid, (plan, read) in counting.read.items()}
        tables.rebuilds[number] = replace(counting, read=again)
    for at, attempt in tables.attempts.items():
        if at[0] == topology and attempt.manifest:
            states = {state if name == was else name: each for name, each in attempt.manifest.states.items()}
            tables.attempts[at] = replace(attempt, manifest=replace(attempt.manifest, states=states))
    for of, times in tables.times.items():
        if of[0] == topology:
            shut = None if times.closed_to is None else _named(times.closed_to, step)
            tables.times[of] = replace(
                times, late=_named(times.late, step), closed_to=shut, closed=_named(times.closed, step)
            )


def _named(by_state: Mapping[str, Of], step: RenameState) -> dict[str, Of]:
    """Return what is by state under the new name."""
    return {step.state if name == step.was else name: each for name, each in by_state.items()}


def _within(plan: BatchPlan, step: RenameStream | RenameState) -> BatchPlan:
    return BatchPlan.from_json(step.within(plan.to_json()))


def _rekey(table: dict[Any, Any], was: str, name: str) -> None:
    for at in [at for at in table if at[0] == was]:
        table[name, *at[1:]] = table.pop(at)


def _changed(stored: StoredState, now: StateDefinition, steps: Sequence[Step], txid: int) -> StoredState:
    """A state after some steps: each value has its place among the columns, or null."""
    columns = [name for name, *_ in stored.definition.columns["values"]]
    came_from = _sources(stored.definition.columns, steps)
    places = [columns.index(came_from[name]) if name in came_from else None for name, *_ in now.columns["values"]]

    def moved(partial: Partial) -> Partial:
        return (*(None if place is None else partial[place] for place in places), *partial[len(columns) :])

    since = after_steps(stored.definition, steps, now, txid).since
    changed = replace(
        stored,
        definition=replace(now, since=since, joined=stored.definition.joined),
        rows={key: _moved(row, moved) for key, row in stored.rows.items()},
        contributions={at: moved(partial) for at, partial in stored.contributions.items()},
        base={key: replace(row, value=moved(row.value)) for key, row in stored.base.items()},
    )
    if "prune" in now.columns and any(isinstance(step, Prune) for step in steps):
        changed = replace(changed, pruned=begun(stored.pruned, stored.horizon))
    if not any(isinstance(step, KeepContributions) for step in steps):
        return changed
    base = {key: TransactionalValue(row.txid, row.value) for key, row in changed.rows.items() if row.value}
    return replace(changed, base=base, horizon=txid - 1)


def _moved(row: Value, moved: Callable[[Partial], Partial]) -> Value:
    if isinstance(row, OpaqueValue):
        return replace(row, value=row.value and moved(row.value), prev=row.prev and moved(row.prev))
    return replace(row, value=moved(row.value))


def _sources(stored: Metadata, steps: Sequence[Step]) -> dict[str, str]:
    """Return of each column that was there before some steps, by its name after them, what it was called."""
    gone = {column for step in steps if isinstance(step, DropValue) for column in step.columns}
    renamed = dict(pair for step in steps if isinstance(step, RenameValue) for pair in step.columns)
    return {renamed.get(name, name): name for name, *_ in stored["values"] if name not in gone}
