"""The ledger in memory. Compare `postgres.ledger`: the same decisions of `core.protocol.decisions`, with dictionaries for tables.

>>> from txbatch import Count, FixedBatchSpout, TransactionalState, Topology
>>> topology = Topology("words")
>>> grouped = topology.new_stream("words", FixedBatchSpout("word string", 1, "man", "dog")).group_by("word")
>>> aggregate = grouped.persistent_aggregate(TransactionalState("words"), count=Count())
>>> ledger, run = MemoryLedger(), Run("first run")
>>> ledger.register(topology, "jobs/words.py")
>>> batch = ledger.plan(ledger.head("words", run), run, {"streams": {"words": {"start": 0, "end": 1}}})
>>> str(ledger.start_attempt(batch, run, "sha256 of the job").attempt)
'1:1'
>>> ledger.head("words", run).own.metadata
{'streams': {'words': {'end': 1, 'start': 0}}}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Lock
from typing import Any
from uuid import uuid4

from txbatch.core.batch.manifest import Manifest, check_manifest, check_same_records
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import (
    STORED_BYTES_MAX,
    Assignment,
    Batch,
    BatchKind,
    BatchStatus,
    Interval,
    Metadata,
    Run,
    canonical_json,
)
from txbatch.core.definition.changes import redefinitions
from txbatch.core.definition.digest import definition_digest
from txbatch.core.definition.job_rules import Jobs
from txbatch.core.definition.redefinition import Redefinition
from txbatch.core.definition.stored import state_definition
from txbatch.core.errors import HalfCommitted, StaleAttempt
from txbatch.core.protocol import decisions, fence
from txbatch.core.protocol.ledger import Committed, Head, PositionVersion, RunPlan, Unfinished
from txbatch.core.protocol.record_numbers import pin_record_numbers
from txbatch.core.protocol.restate import check_version
from txbatch.core.text import one_line
from txbatch.core.topology.kept_windows import check_interval_not_left
from txbatch.core.topology.topology import Topology
from txbatch.memory import aborts, event_time
from txbatch.memory.apart import MemoryWarehouses
from txbatch.memory.commit import commit_batch
from txbatch.memory.stored import Attempt, Partials, Rows
from txbatch.memory.tables import Tables
from txbatch.memory.upstream import MemoryUpstream


class MemoryLedger:
    """`core.protocol.ledger.Ledger` in the calling process, for any number of threads.

    Each method is one transaction: the method changes a snapshot. The snapshot replaces the tables, unless an error occurs.
    `clock` decides when leases end and whether an interval is over. States apart live in `warehouses`, without snapshots
    (R21).
    """

    def __init__(
        self,
        *,
        lease_seconds: int = 120,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        warehouses: MemoryWarehouses | None = None,
        jobs: Jobs | None = None,
    ) -> None:
        self.lease_seconds, self.clock = lease_seconds, clock
        self.tables, self.warehouses = Tables(), warehouses or MemoryWarehouses()
        self._registered: dict[str, Topology] = {}
        self.jobs = jobs or self._registered.__getitem__
        self.uuid = uuid4().hex
        self._lock = Lock()

    @contextmanager
    def transaction(self) -> Iterator[Tables]:
        """Context manager. Yield the tables under the lock. The tables are kept if the block ends without an error."""
        with self._lock:
            snapshot, now = self.tables.copy(), self.clock()
            for at, batch in snapshot.batches.items():
                if batch.lease_live != (snapshot.leases[at] > now):
                    snapshot.batches[at] = replace(batch, lease_live=not batch.lease_live)
            yield snapshot
            self.tables = snapshot

    @property
    def upstream(self) -> MemoryUpstream:
        """The ledger's states, for topologies that read states."""
        return MemoryUpstream(self)

    def register(self, topology: Topology, job: str) -> None:
        """Register the topology and make the states ready. Raise SchemaMismatch if the history is another topology's (R2,
        R23).
        """
        with self.transaction() as tables:
            tables.define(topology, job)
            self._registered[topology.name] = topology
            for aggregate in topology.aggregates:
                new = tables.ensure_state(topology.name, aggregate)
                if aggregate.state.database is not None:
                    self.warehouses.ensure(self.uuid, topology.name, aggregate, state_definition(aggregate), new=new)

    def check_definition(self, topology: Topology, job: str) -> None:
        """Raise SchemaMismatch if `register` would; change nothing."""
        with self.transaction() as tables:
            tables.check_definition(topology, job)

    def redefinitions(self, topology: Topology) -> list[Redefinition]:
        """Return the differences between the present and the stored definition, and the effect of each; empty without
        differences.
        """
        with self.transaction() as tables:
            return redefinitions(topology, tables.known(topology))

    def check_interval(self, topology: str, interval: Interval) -> None:
        """Raise IntervalNotOver if the interval is not over, IntervalTaken if other batches have parts of the interval."""
        with self.transaction() as tables:
            self._check_interval(tables, topology, interval)

    def head(self, topology: str, run: Run) -> Head:
        """Return the head for a run."""
        return self.heads(topology, [run])[0]

    def heads(self, topology: str, runs: Sequence[Run]) -> list[Head]:
        """Return the head for each of several runs, at a single moment."""
        with self.transaction() as tables:
            return tables.heads(topology, runs)

    def last_txid(self, topology: str) -> int:
        """Return the highest txid ever used, 0 before the first."""
        with self.transaction() as tables:
            return max((batch.txid for batch in tables.batches_of(topology)), default=0)

    def closed_to(self, topology: str) -> Mapping[str, int]:
        """Return, by state, the end of closed windows (R26)."""
        with self.transaction() as tables:
            return event_time.closed_to(tables, topology)

    def plan(self, head: Head, run: Run, metadata: Metadata, topology: Topology | None = None) -> Batch | None:
        """Store the next txid with the metadata (R1). Return None if the head moved since it was read."""
        found = self.plan_many(head, [(run, metadata)], topology)
        return None if found is None else found[0]

    def plan_many(self, head: Head, plans: Sequence[RunPlan], topology: Topology | None = None) -> list[Batch] | None:
        """Store the next txids, each planned after the txid before (R1). Return None if the head moved since it was read.

        A refused plan behind the first ends the list.
        """
        with self.transaction() as tables:
            tables.check_known(head.topology)
            if decisions.moved(head, *tables.heads(head.topology, [run for run, _ in plans])):
                return None
            stored = tables.topologies[head.topology]
            if topology is not None and definition_digest(topology) != stored.digest:
                tables.define(topology, stored.job)
            watermarks, found = {} if topology is None else topology.watermarks, list[Batch]()
            now, numbers = self.clock(), frozenset[str]() if topology is None else topology.numbered
            if topology is not None and watermarks:
                plans = event_time.pin(tables, topology, plans, now)
            for run, metadata in decisions.before_refused(plans, partial(self._check_plan, tables, head.topology)):
                if numbers and run.restate is None:
                    metadata = pin_record_numbers(metadata, numbers, tables.next_numbers(head.topology, numbers))
                batch = self._lease(tables, self._batch(head, run, metadata), run)
                if run.interval:
                    tables.intervals[head.topology, batch.txid] = run.interval
                if watermarks:
                    event_time.note_planned(tables, head.topology, batch.txid, now)
                tables.let_find(batch, run)
                tables.waiting.pop((head.topology, run.name), None)
                found.append(batch)
                head = replace(head, next_txid=batch.txid + 1, prev=head.prev if run.restate else batch)
            return found

    def adopt(self, batch: Batch, run: Run) -> Batch | None:
        """Take over an abandoned batch. If the batch has an interval or other parameters, abort the batch instead (R6).

        Return None if the batch was aborted, is final, or is looked after again: the caller reads the head again. A batch
        that cannot be aborted, because a warehouse has rows of the batch, is taken over as well.
        """
        with self.transaction() as tables:
            now = tables.batch(batch.topology, batch.txid)
            if not decisions.unattended(now, run):
                return None
            if not decisions.may_adopt(now, run):
                with suppress(HalfCommitted):
                    aborts.abort(tables, self.warehouses, self.uuid, now)
                    return None
            tables.waiting.pop((now.topology, run.name), None)
            return self._lease(tables, now, run)

    def note_wait(self, batch: Batch, run: Run) -> None:
        """Show to others that a run without a batch waits for the end of `batch`."""
        with self.transaction() as tables:
            tables.waiting[batch.topology, run.name] = batch.txid

    def start_attempt(self, batch: Batch, run: Run, code: str) -> Assignment:
        """Issue the next attempt (R5). Raise LeaseHeld if another live run works on the batch, TerminalError if the batch is
        final.
        """
        with self.transaction() as tables:
            now = tables.batch(batch.topology, batch.txid)
            fence.check_attempt(now, run)
            tables.supersede_attempts(now)
            raised = replace(now, status=BatchStatus.PLANNED, fence=now.fence + 1, token=uuid4().hex)
            token = str(raised.token)
            of = raised.metadata, code, raised.position, event_time.planned_at(tables, raised)
            assignment = Assignment(raised.topology, raised.attempt, token, *of)
            tables.attempts[raised.topology, raised.attempt] = Attempt(assignment, run.name)
            self._lease(tables, raised, run)
            return assignment

    def renew_lease(self, assignment: Assignment) -> bool:
        """Renew the lease of the attempt's run. Return False if the attempt is not the newest attempt of an open batch."""
        with self.transaction() as tables:
            now = tables.batch(assignment.topology, assignment.attempt.txid)
            try:
                fence.check_fence(now, assignment.attempt, assignment.token)
            except StaleAttempt:
                return False
            self._lease(tables, now)
            return True

    def renew_waiting_lease(self, batch: Batch, run: Run) -> bool:
        """Renew the lease of a waiting run. Return False if the run no longer looks after the open batch (R6)."""
        with self.transaction() as tables:
            now = tables.batch(batch.topology, batch.txid)
            if now.status.final or now.lease_run != run.name:
                return False
            self._lease(tables, now)
            return True

    def fail_attempt(self, assignment: Assignment, error: str) -> None:
        """Record why an attempt failed."""
        with self.transaction() as tables:
            at = assignment.topology, assignment.attempt
            if tables.attempts[at].status == "emitting":
                tables.attempts[at] = replace(tables.attempts[at], status="failed", error=one_line(error))

    def record_manifests(self, recorded: Sequence[tuple[Assignment, Manifest]]) -> list[Batch]:
        """Take the manifests of several attempts: all, or nothing; raise the error of the first refused attempt."""
        with self.transaction() as tables:
            return [self._recorded(tables, assignment, manifest) for assignment, manifest in recorded]

    def _recorded(self, tables: Tables, assignment: Assignment, manifest: Manifest) -> Batch:
        now = tables.batch(assignment.topology, assignment.attempt.txid)
        fence.check_fence(now, assignment.attempt, assignment.token)
        check_manifest(manifest, assignment)
        earlier = [each.manifest for each in tables.attempts_of(now)[:-1] if each.manifest]
        missing = now.restate is not None and now.restate.accept_missing
        check_same_records(manifest, earlier, tables.topologies[now.topology].source, accept_missing=missing)
        at = now.topology, now.attempt
        tables.attempts[at] = replace(tables.attempts[at], status="emitted", manifest=manifest, error=None)
        return self._lease(tables, replace(now, status=BatchStatus.EMITTED))

    def batch(self, topology: str, txid: int) -> Batch:
        """Return a batch; raise UnknownName if missing."""
        with self.transaction() as tables:
            return tables.batch(topology, txid)

    def version(self, topology: str, txid: int) -> PositionVersion:
        """Return the counting version of a txid's position; raise UnknownName if the txid is missing."""
        with self.transaction() as tables:
            return tables.version(topology, txid)

    def newest_attempt(self, batch: Batch) -> tuple[Assignment, Manifest | None]:
        """Return the newest attempt of a batch, and the attempt's manifest, if any. Raise UnknownName before the first
        attempt.
        """
        with self.transaction() as tables:
            newest = tables.newest_attempt(batch)
            return newest.assignment, newest.manifest

    def committed_by(self, topology: str, run: Run) -> Batch | None:
        """Return the last batch brought to commit by a run, own or adopted; None if there is none."""
        with self.transaction() as tables:
            committed = [batch for batch in tables.batches_of(topology) if batch.status is BatchStatus.COMMITTED]
            return next((batch for batch in reversed(committed) if batch.lease_run == run.name), None)

    def committed_by_each(self, topology: str, prefix: str) -> list[int]:
        """Return the txids brought to commit by runs named `prefix` and a number, own and adopted batches, in order."""
        with self.transaction() as tables:
            names = {
                batch.txid: batch.lease_run or ""
                for batch in tables.batches_of(topology)
                if batch.status is BatchStatus.COMMITTED
            }
        return [
            txid for txid, name in names.items() if name.startswith(prefix) and name.removeprefix(prefix).isdecimal()
        ]

    def oldest_unfinished(self, topology: str, prefix: str, above: int) -> Unfinished | None:
        """Return the lowest txid above `above` without success, not aborted, of a run with a name from `prefix` on; None if
        none.
        """
        with self.transaction() as tables:
            for batch in tables.batches_of(topology):
                name = batch.lease_run or ""
                over = batch.succeeded or batch.status is BatchStatus.ABORTED
                if batch.txid > above and name.startswith(prefix) and not over:
                    return Unfinished(batch.txid, tables.run_of(batch, name))
        return None

    def turn_of(self, topology: str, txid: int) -> int | None:
        """Return the lowest txid below `txid` that is not final: `txid` waits for the lower one (R6)."""
        with self.transaction() as tables:
            return tables.open_before(topology, txid)

    def commit(self, topology: Topology, batch: Batch, partials: Partials, run: Run | None = None) -> Committed:
        """Apply the partials of the attempt in `batch`, whole or not at all (R6..R10)."""
        with self.transaction() as tables:
            return commit_batch(tables, self.warehouses, self.uuid, self.clock, topology, batch, partials, run)

    def success(self, topology: str, txid: int) -> bool:
        """Note that success ran; return True the first time. Raise TerminalError if the txid is not committed (R8)."""
        with self.transaction() as tables:
            now = tables.batch(topology, txid)
            decisions.check_success(now)
            tables.batches[topology, txid] = replace(now, succeeded=True)
            return not now.succeeded

    def abort(self, topology: str, txid: int, why: str) -> Batch:
        """Free an uncommitted batch's records (R16). Raise TerminalError for a committed batch."""
        with self.transaction() as tables:
            now = tables.batch(topology, txid)
            decisions.check_abort(now)
            return aborts.abort(tables, self.warehouses, self.uuid, now)

    def skip(self, topology: str, txid: int, why: str, partition: str | None = None) -> Batch:
        """Abort a batch and give up the records, of all partitions or a single one, by a txid that counts them as read (R16)."""
        with self.transaction() as tables:
            skipped = aborts.skip(tables, self.warehouses, self.uuid, topology, txid, why, partition)
            tables.committed_at[topology, skipped.txid] = self.clock()
            return skipped

    def new_values(self, table: str) -> list[tuple[Any, ...]]:
        """Return the rows written by commits into a table of new values, in order."""
        with self.transaction() as tables:
            return list(tables.new_values.get(table, ()))

    def rows(self, state: str) -> Rows:
        """Return a state's present rows, by key."""
        apart = self.tables.states[state].database is not None
        return self.warehouses.rows(state) if apart else self.tables.states[state].rows

    def _batch(self, head: Head, run: Run, metadata: Metadata) -> Batch:
        """Return the batch of the next txid."""
        stored = json.loads(canonical_json(metadata, STORED_BYTES_MAX))
        batch = Batch(head.topology, head.next_txid, BatchStatus.PLANNED, stored, run.key)
        if run.restate is None:
            return replace(batch, prev_txid=head.prev_txid)
        again = run.restate
        of = replace(batch, kind=BatchKind.RESTATE, position=again.position)
        return replace(of, reason=one_line(again.why), requested_by=again.by)

    def _check_plan(self, tables: Tables, topology: str, run: Run, metadata: Metadata) -> None:
        """Refuse an interval not open to planning, and a restate of a batch that cannot be counted again."""
        if run.interval:
            self._check_interval(tables, topology, run.interval)
            if left := tables.windows_left(topology):
                check_interval_not_left(topology, run.interval, BatchPlan.from_json(metadata), left)
        if run.restate is not None:
            check_version(tables.version(topology, run.restate.position), run.restate)

    def _check_interval(self, tables: Tables, topology: str, interval: Interval) -> None:
        taken = list(tables.overlapping(topology, interval).values())
        decisions.check_interval(topology, interval, self.clock(), taken)

    def _lease(self, tables: Tables, batch: Batch, run: Run | None = None) -> Batch:
        """Return the batch, looked after by the run from now on; without a run, by the same run as before."""
        at = batch.topology, batch.txid
        tables.leases[at] = self.clock() + timedelta(seconds=self.lease_seconds)
        tables.batches[at] = replace(batch, lease_run=run.name if run else batch.lease_run, lease_live=True)
        return tables.batches[at]
