"""The rows of the ledger in memory inside one transaction, on a snapshot of the tables. Compare `postgres.rows`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import Assignment, Batch, BatchKind, BatchStatus, Interval, Metadata, Run
from txbatch.core.naming import naming
from txbatch.core.protocol import decisions
from txbatch.core.protocol.commit import CommitFacts, CommitPlan, asks_definition
from txbatch.core.protocol.ledger import Head, Order, RunPlan
from txbatch.core.protocol.lookback import CountedPlan, FoundLate, LookFacts
from txbatch.core.protocol.record_numbers import Bases
from txbatch.core.protocol.restate import PositionVersion
from txbatch.core.text import one_line
from txbatch.core.topology.kept_windows import Left
from txbatch.core.topology.topology import Topology
from txbatch.ledger.rows import Registered
from txbatch.memory import came_late, event_time
from txbatch.memory.apart import MemoryWarehouses
from txbatch.memory.stored import Attempt
from txbatch.memory.tables import Tables
from txbatch.memory.update import apply as apply_partials


@dataclass(slots=True)
class MemoryRows:
    """`ledger.rows.Rows` on a snapshot of tables. `now` is the ledger's clock, `ledger` its identity."""

    tables: Tables
    warehouses: MemoryWarehouses
    ledger: str
    now: datetime
    lease_seconds: int
    partials: Mapping[str, list[Any]] = field(default_factory=dict)
    timed: bool = False

    def lock_topology(self, topology: str) -> Registered:
        """Return a topology's row. Raise UnknownName if missing."""
        self.tables.check_known(topology)
        stored = self.tables.topologies[topology]
        return Registered(stored.job, stored.digest)

    def lock_batch(self, topology: str, txid: int, run: Run | None = None) -> Batch:
        """Return a batch: the lock of the ledger is the only lock. Raise UnknownName if missing."""
        return self.tables.batch(topology, txid)

    def lock_open_batches(self, topology: str, txid: int) -> list[Batch]:
        """Return the batches in flight, by ascending txids."""
        return [each for each in self.tables.batches_of(topology) if not each.status.final]

    def batch(self, topology: str, txid: int) -> Batch:
        """Return a batch."""
        return self.tables.batch(topology, txid)

    def heads(self, topology: str, runs: Sequence[Run]) -> list[Head]:
        """Return the head for each run."""
        return self.tables.heads(topology, runs)

    def order(self, batch: Batch) -> Order:
        """Return the place of a batch among the others."""
        tables, name = self.tables, batch.topology
        return Order(tables.open_before(name, batch.txid), tables.last_committed(name), tables.offsets(name))

    def store_definition(self, topology: Topology, job: str) -> None:
        """Store the definition. Raise SchemaMismatch if the history has another definition."""
        self.tables.define(topology, job)

    def pin_watermarks(self, topology: Topology, plans: Sequence[RunPlan]) -> list[RunPlan]:
        """Return plans with watermarks, and note the time of planning for the stored batches."""
        self.timed = True
        return event_time.pin(self.tables, topology, plans, self.now)

    def next_numbers(self, topology: Topology) -> Bases:
        """Return the number of the next record of each numbered stream."""
        return self.tables.next_numbers(topology.name, topology.numbered)

    def taken_intervals(self, topology: str, asked: Sequence[Interval]) -> decisions.TakenIntervals:
        """Return the intervals of batches that overlap the span of the given intervals."""
        span = Interval(min(each.start for each in asked), max(each.end for each in asked))
        return decisions.TakenIntervals(topology, self.now, [*self.tables.overlapping(topology, span).values()])

    def windows_left(self, topology: str) -> dict[str, Left]:
        """Return, by state, which windows have left."""
        return self.tables.windows_left(topology)

    def version(self, topology: str, txid: int) -> PositionVersion:
        """Return the current version of a txid's position. Raise UnknownName if missing."""
        return self.tables.version(topology, txid)

    def look_facts(self, batch: Batch, since: datetime | None) -> LookFacts:
        """Return the plan of the last look before a batch, and the intervals of earlier batches."""
        return came_late.look_facts(self.tables, batch, since)

    def found_late(self, topology: str) -> list[FoundLate]:
        """Return the late records met by committed batches, unless a later version counts the records."""
        return came_late.found_late(self.tables, topology)

    def counted_plans(self, topology: str, since: datetime | None, until: datetime, most: int) -> list[CountedPlan]:
        """Return the newest committed positions with intervals in a time, with the counting plans, newest first."""
        return came_late.counted_plans(self.tables, topology, since, until, most)

    def insert_batches(self, head: Head, plans: Sequence[RunPlan]) -> list[Batch]:
        """Store plans as the next txids."""
        found = list[Batch]()
        for run, metadata in plans:
            at, batch = (head.topology, head.next_txid), decisions.planned_batch(head, run, metadata)
            found.append(self._leased(batch, run))
            if run.interval:
                self.tables.intervals[at] = run.interval
            if self.timed:
                event_time.note_planned(self.tables, *at, self.now)
            self.tables.let_find(batch, run)
            self.forget_wait(head.topology, run)
            head = replace(head, next_txid=batch.txid + 1, prev=head.prev if run.restate else batch)
        return found

    def take_lease(self, batch: Batch, run: Run) -> None:
        """Let a run look after a batch."""
        self._leased(batch, run)

    def renew_lease(self, batch: Batch) -> None:
        """Let the run of a batch look after the batch for longer."""
        self._leased(batch)

    def forget_wait(self, topology: str, run: Run) -> None:
        """Note that a run waits no longer."""
        self.tables.waiting.pop((topology, run.name), None)

    def supersede_attempts(self, batch: Batch) -> None:
        """Mark the attempts of a batch as over."""
        self.tables.supersede_attempts(batch)

    def raise_fence(self, batch: Batch, run: Run, code: str) -> Assignment:
        """Issue the next attempt, looked after by the run."""
        token = uuid4().hex
        raised = self._leased(replace(batch, status=BatchStatus.PLANNED, fence=batch.fence + 1, token=token), run)
        of = raised.metadata, code, raised.position, event_time.planned_at(self.tables, raised)
        assignment = Assignment(raised.topology, raised.attempt, token, *of)
        self.tables.attempts[raised.topology, raised.attempt] = Attempt(assignment, run.name)
        return assignment

    def earlier_manifests(self, assignment: Assignment) -> list[Manifest]:
        """Return the manifests of the earlier attempts of a batch."""
        earlier = self.tables.attempts_of(self.tables.batch(assignment.topology, assignment.attempt.txid))[:-1]
        return [each.manifest for each in earlier if each.manifest]

    def source(self, topology: str) -> Mapping[str, Metadata]:
        """Return the stored identity of each stream's source."""
        return self.tables.topologies[topology].source

    def take_manifest(self, assignment: Assignment, manifest: Manifest) -> Batch:
        """Store an attempt's manifest, and return the emitted batch."""
        at, attempts = (assignment.topology, assignment.attempt), self.tables.attempts
        attempts[at] = replace(attempts[at], status="emitted", manifest=manifest, error=None)
        batch = self.tables.batch(assignment.topology, assignment.attempt.txid)
        return self._leased(replace(batch, status=BatchStatus.EMITTED))

    def share_topology(self, committing: Batch) -> None:
        """Do nothing: the lock of the ledger is the only lock."""

    def commit_facts(self, topology: Topology, batch: Batch) -> CommitFacts:
        """Return the facts for `decide_commit`."""
        newest, name, tables = self.tables.newest_attempt(batch), batch.topology, self.tables
        read = newest.assignment, newest.manifest, self.order(batch)
        if batch.status is not BatchStatus.EMITTED:
            return CommitFacts(batch, *read)
        asked = asks_definition(topology, batch, tables.topologies[name].digest)
        definition = tables.known(topology) if asked else None
        version = self.version(name, batch.position) if batch.kind is BatchKind.RESTATE else None
        return CommitFacts(batch, *read, definition, version, tables.next_numbers(name, topology.numbered))

    def rebuild_told(self, topology: str) -> AbstractContextManager[None]:
        """Context manager. Leave errors as they are."""
        return nullcontext()

    def load(self, plan: CommitPlan, partials: Mapping[str, Any]) -> None:
        """Keep the partials of the states in the ledger."""
        self.partials = {state.name: list(partials[state.name]) for state in plan.here}

    def replace(self, batch: Batch, replaced: int) -> None:
        """Let a restate count in place of the version `replaced`."""
        self.tables.take_place(replaced, batch)

    def apply(self, plan: CommitPlan) -> dict[str, int]:
        """Apply the loaded partials; return the number of partials by state."""
        for state in plan.here:
            with naming(f"{plan.batch.topology} {plan.batch.attempt}, state {state.name!r}"):
                apply_partials(self.tables, state, self.partials[state.name], plan.batch)
        return {state.name: state.staged.rows for state in plan.here}

    def mark_committed(self, plan: CommitPlan, keys: Mapping[str, int]) -> None:
        """Record the read ranges, the next offsets, and that the batch is committed."""
        at = plan.batch.topology, plan.batch.txid
        self.tables.committed_at[at] = self.now
        self.tables.record(self.tables.batches[at], plan.manifest)

    def move_event_time(self, plan: CommitPlan) -> None:
        """Write the watermarks after the commit, and the windows closed by the batch."""
        event_time.note_committed(self.tables, plan, self.tables.batch(plan.batch.topology, plan.batch.txid))

    def commit_apart(self, plan: CommitPlan, partials: Mapping[str, Any]) -> None:
        """Apply the partials to the states in other databases."""
        self.warehouses.commit(self.ledger, plan.assignment, plan.apart, partials, self.tables.view)
        self.tables.set_applied_apart([state.name for state in plan.apart], plan.batch.txid)

    def succeed(self, topology: str, txid: int) -> bool:
        """Note the success of a committed batch; return False if the batch is not committed, or had success before."""
        now = self.tables.batch(topology, txid)
        if now.status is not BatchStatus.COMMITTED or now.succeeded:
            return False
        self.tables.batches[topology, txid] = replace(now, succeeded=True)
        return True

    def take_back(self, batch: Batch) -> None:
        """Undo the writes of a batch in other databases; while a lower txid is open, there are none."""
        if batch.fence and self.tables.open_before(batch.topology, batch.txid) is None:
            apart = self.tables.states_apart(batch.topology)
            self.warehouses.take_back(self.ledger, batch, apart, self.tables.view)

    def prepare_skip(self, pending: Sequence[Batch]) -> None:
        """Keep the oldest batch in flight from being half committed in other databases."""
        for turn in pending[:1]:
            apart = self.tables.states_apart(turn.topology)
            self.warehouses.prepare_skip(self.ledger, [turn], apart, self.tables.view)

    def free(self, batch: Batch, reason: str, *, replanned: bool) -> None:
        """Abort a batch. `replanned`: the batch's run plans again."""
        restated = f"{batch.reason}; aborted: " if batch.kind is BatchKind.RESTATE else ""
        why = restated + one_line(reason)
        self.tables.batches[batch.topology, batch.txid] = replace(
            batch, status=BatchStatus.ABORTED, reason=why, replanned=replanned
        )

    def also_covering(self, batch: Batch) -> list[int]:
        """Return the other txids, not aborted, with intervals that overlap the batch's interval."""
        return self.tables.also_covering(batch)

    def give_up(self, left: Batch, why: str, *, found_by_run: bool) -> Batch:
        """Store the next txid, which counts the records of `left` as read."""
        skipped = self.tables.give_up(left, why, found_by_run=found_by_run)
        self.tables.committed_at[left.topology, skipped.txid] = self.now
        return skipped

    def _leased(self, batch: Batch, run: Run | None = None) -> Batch:
        """Return the batch, looked after by the run from now on; without a run, by the same run as before."""
        at = batch.topology, batch.txid
        self.tables.leases[at] = self.now + timedelta(seconds=self.lease_seconds)
        self.tables.batches[at] = replace(batch, lease_run=run.name if run else batch.lease_run, lease_live=True)
        return self.tables.batches[at]
