"""The tables of the ledger in memory. Every stored value is immutable, and a copy of the dictionaries is a snapshot."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from txbatch.core.batch.apart import LastWriter, LedgerView
from txbatch.core.batch.came_late import CameLate
from txbatch.core.batch.manifest import Manifest, ReadPartition
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Batch, BatchKind, BatchStatus, Interval, Metadata, Run, TransactionAttempt
from txbatch.core.definition.checks import check_definition
from txbatch.core.definition.digest import definition_digest
from txbatch.core.definition.keep_policy import policy, stored_windows
from txbatch.core.definition.renames import by_name
from txbatch.core.definition.stored import (
    StoredTopology,
    state_definition,
    stream_definitions,
    stream_fields,
    stream_watermarks,
)
from txbatch.core.errors import UnknownName
from txbatch.core.protocol import decisions
from txbatch.core.protocol.ledger import Head
from txbatch.core.protocol.restate import PositionVersion, ReadBy
from txbatch.core.stored_json import canonical_json
from txbatch.core.text import one_line
from txbatch.core.topology.kept_windows import Left
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.topology import Topology
from txbatch.memory.stored import Attempt, Counting, StoredState, Times, TopologyRow


def next_txid(txids: Sequence[int]) -> int:
    """Return the txid after these: consecutive from 1, never reused, never skipped (R1)."""
    return txids[-1] + 1 if txids else 1


@dataclass
class Tables:
    """Each field is a table of the ledger, by primary key."""

    topologies: dict[str, TopologyRow] = field(default_factory=dict)
    states: dict[str, StoredState] = field(default_factory=dict)
    batches: dict[tuple[str, int], Batch] = field(default_factory=dict)
    leases: dict[tuple[str, int], Any] = field(default_factory=dict)
    committed_at: dict[tuple[str, int], datetime] = field(default_factory=dict)
    intervals: dict[tuple[str, int], Interval] = field(default_factory=dict)
    batch_keys: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    attempts: dict[tuple[str, TransactionAttempt], Attempt] = field(default_factory=dict)
    waiting: dict[tuple[str, str], int] = field(default_factory=dict)
    partitions: dict[tuple[str, str, str, int], ReadPartition | None] = field(default_factory=dict)
    consumed: dict[tuple[str, str, str], Metadata] = field(default_factory=dict)
    rebuilds: dict[int, Counting] = field(default_factory=dict)
    new_values: dict[str, tuple[tuple[Any, ...], ...]] = field(default_factory=dict)
    times: dict[tuple[str, int], Times] = field(default_factory=dict)
    latest: dict[tuple[str, str, str], int] = field(default_factory=dict)
    came_late: dict[tuple[str, int], CameLate] = field(default_factory=dict)

    def copy(self) -> Tables:
        """Return a snapshot: changes to the snapshot do not show in the original."""
        return Tables(**{name: dict(table) for name, table in vars(self).items()})

    # ---- reading

    def define(self, topology: Topology, job: str) -> None:
        """Keep the definition. Raise SchemaMismatch if the history is another topology's."""
        self.check_definition(topology, job)
        self.store_definition(topology, job, self.known(topology))

    def store_definition(self, topology: Topology, job: str, known: StoredTopology) -> None:
        """Keep the definition, given the known history of the topology."""
        source = json.loads(canonical_json(topology.source))
        self.topologies[topology.name] = TopologyRow(
            job,
            topology.by_interval,
            source,
            stream_fields(topology),
            topology.keep,
            stream_watermarks(topology, known),
            stored_windows(policy(topology)),
            definition_digest(topology),
        )

    def check_known(self, topology: str) -> None:
        """Raise UnknownName if the topology is missing."""
        if topology not in self.topologies:
            raise UnknownName(f"no topology {topology!r} is known; register it first")

    def batch(self, topology: str, txid: int) -> Batch:
        """Return a batch; raise UnknownName if missing."""
        if (topology, txid) not in self.batches:
            raise UnknownName(f"topology {topology!r} has no txid {txid}")
        return self.batches[topology, txid]

    def batches_of(self, topology: str) -> list[Batch]:
        """Return the batches of a topology, by txid."""
        return [batch for (name, _), batch in sorted(self.batches.items()) if name == topology]

    def attempts_of(self, batch: Batch) -> list[Attempt]:
        """Return the attempts of a batch, oldest first, without attempts forgotten by retention."""
        ids = ((batch.topology, TransactionAttempt(batch.txid, number)) for number in range(1, batch.fence + 1))
        return [self.attempts[each] for each in ids if each in self.attempts]

    def newest_attempt(self, batch: Batch) -> Attempt:
        """Return the newest attempt of a batch; raise UnknownName before the first."""
        if (batch.topology, batch.attempt) not in self.attempts:
            raise UnknownName(f"{batch.topology}: txid {batch.txid} has no attempt yet; run emit_batch first")
        return self.attempts[batch.topology, batch.attempt]

    def heads(self, topology: str, runs: Sequence[Run]) -> list[Head]:
        """Return the head for each run."""
        batches = self.batches_of(topology)
        pending = tuple(batch for batch in batches if not batch.status.final)
        alive = [batch for batch in batches if batch.status is not BatchStatus.ABORTED]
        ordinary = [batch for batch in alive if batch.kind is not BatchKind.RESTATE]
        head = Head(
            topology=topology,
            next_txid=next_txid([batch.txid for batch in batches]),
            own=None,
            pending=pending,
            prev=ordinary[-1] if ordinary else None,
            offsets=decisions.consumed(self.offsets(topology), pending),
        )
        return [replace(head, own=self._own(topology, run)) for run in runs]

    def _own(self, topology: str, run: Run) -> Batch | None:
        """Return the batch a run finds again, unless aborted."""
        own = [self.batch(topology, txid) for txid in self.batch_keys.get((topology, run.key), ())]
        return next((batch for batch in reversed(own) if batch.status is not BatchStatus.ABORTED), None)

    def offsets(self, topology: str) -> dict[str, dict[str, Metadata]]:
        """Return the last committed range of each stream and partition."""
        found: dict[str, dict[str, Metadata]] = {}
        for (name, stream, partition), metadata in self.consumed.items():
            if name == topology:
                found.setdefault(stream, {})[partition] = metadata
        return found

    def overlapping(self, topology: str, interval: Interval) -> dict[int, Interval]:
        """Return, by txid, the intervals of batches, not aborted, overlapping an interval; in the order of time."""
        alive = {batch.txid for batch in self.batches_of(topology) if batch.status is not BatchStatus.ABORTED}
        taken = {txid: each for (name, txid), each in self.intervals.items() if name == topology and txid in alive}
        found = {txid: at for txid, at in taken.items() if at.start < interval.end and interval.start < at.end}
        return dict(sorted(found.items(), key=lambda each: each[1].start))

    def also_covering(self, batch: Batch) -> list[int]:
        """Return other txids, not aborted, overlapping the batch's interval."""
        interval = self.intervals.get((batch.topology, batch.txid))
        return sorted(self.overlapping(batch.topology, interval).keys() - {batch.txid}) if interval else []

    def open_before(self, topology: str, txid: int) -> int | None:
        """Return the lowest txid below `txid` that is not final."""
        lower = [batch.txid for batch in self.batches_of(topology) if batch.txid < txid and not batch.status.final]
        return min(lower, default=None)

    def newest_cut(self, topology: str) -> int:
        """Return the highest committed txid without open txids below; 0 if none. A skip may be above open batches (R16)."""
        batches = self.batches_of(topology)
        first_open = min((each.txid for each in batches if not each.status.final), default=len(batches) + 1)
        committed = (each.txid for each in batches if each.status is BatchStatus.COMMITTED)
        return max((txid for txid in committed if txid < first_open), default=0)

    def last_committed(self, topology: str) -> int | None:
        """Return the highest committed txid that is no restate; None before the first."""
        committed = (each for each in self.batches_of(topology) if each.status is BatchStatus.COMMITTED)
        return max((batch.txid for batch in committed if batch.kind is not BatchKind.RESTATE), default=None)

    def version(self, topology: str, txid: int) -> PositionVersion:
        """Return the counting version of a txid's position; raise UnknownName if the txid is missing."""
        asked = self.batch(topology, txid)
        versions = [batch for batch in self.batches_of(topology) if batch.position == asked.position]
        counts = [each for each in versions if each.status is BatchStatus.COMMITTED and each.replaced_by is None]
        current = counts[0] if counts else asked
        horizon = max((each.horizon for each in self.states.values() if each.topology == topology), default=0)
        first = self.batch(topology, asked.position)
        plan, read = self.rebuilt(current) or (None, self.read_by(current))
        return PositionVersion(
            asked, first, current, read, self.read_by(first), horizon, plan, self.windows_left(topology)
        )

    def windows_left(self, topology: str) -> dict[str, Left]:
        """Return, for each state that windows have left, the windows (R30)."""
        return {name: each.left for name, each in self.states.items() if each.topology == topology and each.left}

    def next_numbers(self, topology: str, streams: Collection[str]) -> dict[str, int]:
        """Return the numbers of the next records, for each stream with committed records (R29)."""
        found: dict[str, int] = {}
        for batch in self.batches_of(topology):
            if batch.status is BatchStatus.COMMITTED and batch.kind is BatchKind.ORDINARY:
                for stream in batch.plan.base.keys() & set(streams):
                    read = self.read_by(batch).get(stream, {}).values()
                    found[stream] = batch.plan.base[stream] + sum(each.records for each in read if each)
        return found

    def rebuilt(self, batch: Batch) -> tuple[BatchPlan, ReadBy] | None:
        """Return the plan and the read records of a version in the newest swapped rebuild; None if no swapped rebuild read
        it.
        """
        swapped = [
            each
            for each in self.rebuilds.values()
            if each.rebuild.topology == batch.topology and each.swapped is not None
        ]
        return swapped[-1].read.get(batch.txid) if swapped else None

    def read_by(self, batch: Batch) -> dict[str, dict[str, ReadPartition | None]]:
        """Return the read records of a final batch by partition; None for an unread partition."""
        found: dict[str, dict[str, ReadPartition | None]] = {stream: {} for stream in batch.plan.streams}
        for (topology, stream, partition, txid), read in self.partitions.items():
            if (topology, txid) == (batch.topology, batch.txid):
                found[stream][partition] = read
        return found

    def states_apart(self, topology: str) -> list[tuple[str, str]]:
        """Return the database and the name of a topology's states kept apart."""
        own = ((name, state) for name, state in sorted(self.states.items()) if state.topology == topology)
        return [(state.database, name) for name, state in own if state.database is not None]

    def view(self, state: str, last: LastWriter) -> LedgerView:
        """Return the ledger's view of a state apart and the state's last writer."""
        stored = self.states[state]
        wrote = self.attempts.get((stored.topology, last.attempt))
        return LedgerView(stored.applied_txid, last.token in (None, wrote and wrote.assignment.token))

    def check_definition(self, topology: Topology, job: str | None = None) -> None:
        """Raise SchemaMismatch if a known topology, or a state's name, is stored with another definition (R23)."""
        known = self.known(topology)
        check_definition(topology, job or known.job, known)

    def known(self, topology: Topology) -> StoredTopology:
        """Return the known history of a topology, and the owners of the states' names."""
        name = self.name_of(topology)
        stored = self.topologies.get(name) or TopologyRow("", topology.by_interval, {}, {})
        alive = [batch for batch in self.batches_of(name) if batch.status is not BatchStatus.ABORTED]
        ordinary = [batch for batch in alive if batch.kind is not BatchKind.RESTATE]
        read = [batch for batch in ordinary if batch.status is BatchStatus.COMMITTED and batch.fence]
        found = StoredTopology(
            stored.job,
            stored.by_interval,
            stream_definitions(stored.source, stored.fields),
            {state: each.definition for state, each in self.states.items() if each.topology == name},
            {state: each.topology for state, each in self.states.items()},
            alive[-1].txid if alive else None,
            (read[-1].txid, self._counted(read[-1])) if read else None,
            bool(self.batches_of(name)),
            watermarks=stored.watermarks,
            counted=any(batch.status is BatchStatus.COMMITTED for batch in alive),
            read=any(batch.status is BatchStatus.COMMITTED and batch.kind is not BatchKind.SKIP for batch in alive),
        )
        return found if name == topology.name else by_name(found, name, topology)

    def name_of(self, topology: Topology) -> str:
        """Return the name for a topology's history: the present name, or the former name."""
        own = any(state.topology == topology.name for state in self.states.values())
        had = topology.was is not None and not own and bool(self.batches_of(topology.was))
        return topology.was if had and topology.was else topology.name

    def _counted(self, batch: Batch) -> Collection[str]:
        """Return the states counted by a committed batch, or by the newest swapped rebuild of the batch."""
        for each in reversed(self.rebuilds.values()):
            if each.rebuild.topology == batch.topology and each.swapped is not None and batch.position in each.versions:
                return each.states
        manifest = self.newest_attempt(batch).manifest
        return manifest.states if manifest else ()

    # ---- writing

    def set_applied_apart(self, states: Sequence[str], txid: int) -> None:
        """Note for the ledger that states apart have a txid."""
        for name in states:
            self.states[name] = replace(self.states[name], applied_txid=txid)

    def ensure_state(self, topology: str, aggregate: PersistentAggregate) -> bool:
        """Make room for a state; return whether the state is new. `check_definition` has compared a known state."""
        name, definition = aggregate.state.name, state_definition(aggregate)
        stored = self.states.get(name)
        if stored is None:
            self.states[name] = StoredState(topology, definition, aggregate=aggregate)
        else:
            kept = replace(definition, since=stored.definition.since, joined=stored.definition.joined)
            self.states[name] = replace(stored, definition=kept, aggregate=aggregate)
        return stored is None

    def let_find(self, batch: Batch, run: Run) -> None:
        """Register the batch under the run's key (R2)."""
        at = batch.topology, run.key
        self.batch_keys[at] = (*self.batch_keys.get(at, ()), batch.txid)

    def supersede_attempts(self, batch: Batch) -> None:
        """Mark older attempts at the txid as over."""
        for attempt in self.attempts_of(batch):
            if attempt.status in ("emitting", "emitted"):
                self.attempts[batch.topology, attempt.assignment.attempt] = replace(attempt, status="superseded")

    def give_up(self, batch: Batch, why: str, *, found_by_run: bool) -> Batch:
        """Give up records by a new txid: the records count as read (R16). `found_by_run`: the batch's runs find the txid."""
        txid = next_txid([each.txid for each in self.batches_of(batch.topology)])
        skip = replace(batch, txid=txid, position=txid, kind=BatchKind.SKIP, reason=one_line(why), replanned=False)
        given_up = replace(skip, status=BatchStatus.COMMITTED, fence=0, token=None, succeeded=True)
        self.batches[batch.topology, txid] = given_up
        self.leases[batch.topology, txid] = self.leases[batch.topology, batch.txid]
        if (batch.topology, batch.txid) in self.intervals:
            self.intervals[batch.topology, txid] = self.intervals[batch.topology, batch.txid]
        for at, txids in self.batch_keys.items():
            if found_by_run and at[0] == batch.topology and batch.txid in txids:
                self.batch_keys[at] = (*txids, txid)
        for stream, plan in batch.plan.partitioned.items():
            for partition, range_ in plan.ranges.items():
                self.consumed[batch.topology, stream, partition] = range_
        return given_up

    def take_place(self, replaced: int, batch: Batch) -> None:
        """Let a restate count in place of the version `replaced` (R17)."""
        at = batch.topology, replaced
        self.batches[at] = replace(self.batches[at], replaced_by=batch.txid)

    def record(self, batch: Batch, manifest: Manifest) -> Batch:
        """Record the read records and the start of the next batch, and make the batch final."""
        carried = batch.plan.partitioned
        for stream, plan in batch.plan.streams.items():
            for partition, range_ in {**dict.fromkeys(plan.unreadable), **plan.ranges}.items():
                read = manifest.streams.get(stream, {}).get(partition)
                self.partitions[batch.topology, stream, partition, batch.txid] = read
                if read is not None and stream in carried and batch.kind is not BatchKind.RESTATE:
                    self.consumed[batch.topology, stream, partition] = range_
        if manifest.came_late is not None:
            self.came_late[batch.topology, batch.txid] = manifest.came_late
        at = batch.topology, batch.attempt
        self.attempts[at] = replace(self.attempts[at], status="committed")
        self.batches[batch.topology, batch.txid] = replace(
            batch, status=BatchStatus.COMMITTED, records=manifest.records
        )
        return self.batches[batch.topology, batch.txid]
