"""Rebuilds in memory (R23).

Compare `postgres.corrections.rebuild`: the same decisions of `core.corrections.rebuild`, with dictionaries for tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from twin.asked import looked_up, rebuilding, replaced_generations
from txbatch.core.batch.manifest import Manifest, check_manifest, check_states
from txbatch.core.batch.transaction import Assignment, Batch, BatchKind, BatchStatus
from txbatch.core.corrections import rebuild as decided
from txbatch.core.corrections.rebuild import Behind, Progress, Rebuild, Rebuilt, Swapped, Watched
from txbatch.core.definition.changes import check_owner
from txbatch.core.definition.stored import state_definition, stream_fields, stream_watermarks
from txbatch.core.naming import naming
from txbatch.core.protocol.commit import StatePlan
from txbatch.core.protocol.event_time import late_of
from txbatch.core.protocol.record_numbers import check_same_number
from txbatch.core.protocol.restate import PositionVersion
from txbatch.core.topology.topology import Topology
from txbatch.core.upstream.readers import check_past_read
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.stored import Counting, StoredState, Times
from txbatch.memory.tables import Tables
from txbatch.memory.update import apply
from txbatch.memory.upstream import readers


class MemoryRebuilds:
    """`core.corrections.rebuild.Rebuilds` on a ledger in memory. Each method is one of its transactions."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self.ledger = ledger

    def begin(self, topology: Topology, job: str, code: str, why: str | None, by: str | None = None) -> Rebuild:
        """Begin a rebuild, or go on with the one that runs. Raises as that of PostgreSQL does; `by` is kept nowhere."""
        with self.ledger.transaction() as tables:
            tables.check_known(topology.name)
            if (running := rebuilding(tables, topology.name)) is not None:
                decided.check_same(running.rebuild, topology, code)
                return running.rebuild
            known = tables.known(topology)
            decided.check_rebuild(topology, known)
            for aggregate in topology.aggregates:
                check_owner(aggregate.state.name, known.owners.get(aggregate.state.name, topology.name), topology.name)
            decided.check_value_names(topology, known, readers(tables))
            decided.check_states_stay(topology, known.states, readers(tables), looked_up(tables))
            why = decided.reason(topology, why)
            definition, number = decided.definition_of(topology), len(tables.rebuilds) + 1
            states = {
                each.state.name: StoredState(topology.name, state_definition(each), aggregate=each)
                for each in topology.aggregates
            }
            rebuild = Rebuild(number, topology.name, job, code, why, definition)
            tables.rebuilds[number] = Counting(rebuild, states)
            return rebuild

    def done(self, topology: str, code: str, why: str | None) -> Rebuilt | None:
        """Return the newest rebuild if it was swapped, and asked for in these words with this job; None when not."""
        with self.ledger.transaction() as tables:
            of = [each for each in tables.rebuilds.values() if each.rebuild.topology == topology]
            if not of or of[-1].swapped is None or (of[-1].rebuild.code, of[-1].rebuild.why) != (code, why):
                return None
            return Rebuilt(of[-1].rebuild, of[-1].swapped, earlier=True)

    def progress(self, rebuild: Rebuild) -> Progress:
        """How far it is; there is no clock that says how long the rest takes."""
        with self.ledger.transaction() as tables:
            counting = tables.rebuilds[rebuild.number]
            counts = {each.position for each in _to_count(tables, rebuild) if each.txid <= counting.last}
            return Progress(len(counts), len(_left(tables, rebuild)))

    def next(self, rebuild: Rebuild) -> Batch | None:
        """Return the version to be counted next; None when all are."""
        return next((found.current for found in self.to_count(rebuild, 1)), None)

    def to_count(self, rebuild: Rebuild, at_most: int, behind: int = 0) -> list[PositionVersion]:
        """Return that one and those behind it, in their order, so many at most: those above a txid."""
        with self.ledger.transaction() as tables:
            left = [each.txid for each in _left(tables, rebuild) if each.txid > behind]
            return [tables.version(rebuild.topology, txid) for txid in left[:at_most]]

    def count(
        self,
        rebuild: Rebuild,
        topology: Topology,
        assignment: Assignment,
        manifest: Manifest,
        partials: Mapping[str, Any],
    ) -> bool:
        """Count a version, whole or not at all; False when it is not the next any more. Raises as that of PostgreSQL does."""
        with self.ledger.transaction() as tables:
            counting = _running(tables, rebuild)
            version = next(iter(_left(tables, rebuild)), None)
            if version is None or version.txid != assignment.attempt.txid:
                return False
            decided.check_whole(rebuild, assignment, manifest)
            check_manifest(manifest, assignment)
            check_states(manifest, [aggregate.state.name for aggregate in topology.aggregates])
            if streams := topology.numbered:
                check_same_number(tables.version(topology.name, version.position), streams, manifest)
            states = _counted(tables, counting, topology, version, manifest, partials)
            tables.rebuilds[rebuild.number] = replace(
                counting,
                states=states,
                versions={**counting.versions, version.position: version.txid},
                read={**counting.read, version.txid: (assignment.plan, manifest.streams)},
                late={**counting.late, version.position: late_of(manifest), version.txid: late_of(manifest)},
            )
            return True

    def drop_past(self, topology: str) -> list[int]:
        """Drop the generations that rebuilds replaced; return the numbers of the rebuilds. Raises as that of PostgreSQL does."""
        with self.ledger.transaction() as tables:
            tables.check_known(topology)
            there = replaced_generations(tables, topology)
            swapped = max((tables.rebuilds[number].swapped or 0 for number in there), default=0)
            check_past_read(readers(tables), looked_up(tables), topology, swapped)
            for number in there:
                tables.rebuilds[number] = replace(tables.rebuilds[number], dropped=True)
            return there

    def swap(self, rebuild: Rebuild, topology: Topology) -> Swapped | Behind | Watched:
        """Let the new generation count. No report reads on here, so that none is waited for."""
        with self.ledger.transaction() as tables:
            counting = _running(tables, rebuild)
            if _left(tables, rebuild):
                return Behind()
            name, batches = topology.name, tables.batches_of(topology.name)
            newest = tables.newest_cut(name)
            past = {state: each for state, each in tables.states.items() if each.topology == name}
            decided.check_states_stay(topology, past, readers(tables), looked_up(tables))
            tables.rebuilds[rebuild.number] = replace(counting, swapped=newest, past=past)
            tables.states = {state: each for state, each in tables.states.items() if state not in past}
            tables.states |= counting.states
            for txid, late in counting.late.items():
                if late or (name, txid) in tables.times:
                    times = tables.times.get((name, txid)) or Times(tables.committed_at[name, txid])
                    tables.times[name, txid] = replace(times, late=late)
            for txid, (_, streams) in counting.read.items():
                records = sum(part.records for parts in streams.values() for part in parts.values() if part)
                tables.batches[name, txid] = replace(tables.batches[name, txid], records=records)
            fields, watermarks = stream_fields(topology), stream_watermarks(topology, tables.known(topology))
            tables.topologies[name] = replace(tables.topologies[name], fields=fields, watermarks=watermarks)
            tables.define(topology, rebuild.job)
            for batch in batches:
                if not batch.status.final and batch.fence:  # what was emitted by the definition before counts no more
                    planned = replace(batch, status=BatchStatus.PLANNED, token=uuid4().hex)
                    tables.batches[name, batch.txid] = planned
            return Swapped(newest)


def _running(tables: Tables, rebuild: Rebuild) -> Counting:
    running = rebuilding(tables, rebuild.topology)
    if running is None or running.rebuild != rebuild:
        raise decided.runs_no_more(rebuild)
    return running


def _to_count(tables: Tables, rebuild: Rebuild) -> list[Batch]:
    """Return the versions that count now, by txid."""
    return [
        each
        for each in tables.batches_of(rebuild.topology)
        if each.status is BatchStatus.COMMITTED and each.kind is not BatchKind.SKIP and each.replaced_by is None
    ]


def _left(tables: Tables, rebuild: Rebuild) -> list[Batch]:
    """Return those that are not counted, by txid."""
    return [each for each in _to_count(tables, rebuild) if each.txid > tables.rebuilds[rebuild.number].last]


def _counted(
    tables: Tables,
    counting: Counting,
    topology: Topology,
    version: Batch,
    manifest: Manifest,
    partials: Mapping[str, Any],
) -> Mapping[str, StoredState]:
    """Return the states of a generation with one more version, as if they were those that count."""
    refolded, before = decided.refolded(version, topology), counting.versions.get(version.position)
    beside = replace(tables, states=dict(counting.states), batches=dict(tables.batches), new_values={})
    # Here a version takes that one's place which counts, whatever lay between them.
    for txid in counting.versions.values():
        at, replaced_by = (version.topology, txid), version.txid if txid == before else None
        beside.batches[at] = replace(beside.batches[at], replaced_by=replaced_by)
    for aggregate in topology.aggregates:
        name, folds = aggregate.state.name, refolded and aggregate.state.contributions
        if before is not None and not folds:
            decided.refuse_again(version, name)
        batch = replace(version, kind=BatchKind.RESTATE if folds else BatchKind.ORDINARY)
        stored, staged = beside.states[name].definition, manifest.states[name]
        plan = StatePlan(
            aggregate, staged, stored.uncounted(aggregate, batch.position), batch.position >= stored.joined
        )
        with naming(f"{version.topology} {manifest.attempt}, state {name!r}"):
            apply(beside, plan, list(partials[name]), batch)
    if before is None:
        return beside.states
    return {name: _redated(tables, each, version) for name, each in beside.states.items()}


def _redated(tables: Tables, stored: StoredState, version: Batch) -> StoredState:
    """Return a state whose rows of a version have the txid that changed them last: it may lie between two that are counted."""
    changed: dict[Any, int] = {}
    for key, _, txid in stored.contributions:
        replaced_by = tables.batches[version.topology, txid].replaced_by or 0
        changed[key] = max(changed.get(key, 0), txid, replaced_by if replaced_by <= version.txid else 0)
    rows = {
        key: replace(row, txid=changed[key]) if row.txid == version.txid else row for key, row in stored.rows.items()
    }
    return replace(stored, rows=rows)
