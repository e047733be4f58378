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

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from threading import Lock
from typing import Any
from uuid import uuid4

from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import (
    Assignment,
    Batch,
    BatchStatus,
    Run,
)
from txbatch.core.definition.changes import redefinitions
from txbatch.core.definition.job_rules import Jobs
from txbatch.core.definition.redefinition import Redefinition
from txbatch.core.definition.stored import state_definition
from txbatch.core.errors import StaleAttempt
from txbatch.core.protocol import fence
from txbatch.core.protocol.questions import Unfinished, unfinished
from txbatch.core.text import one_line
from txbatch.core.topology.topology import Topology
from txbatch.ledger.transactions import Transactions
from txbatch.memory import event_time
from txbatch.memory.apart import MemoryWarehouses
from txbatch.memory.rows import MemoryRows
from txbatch.memory.stored import Rows
from txbatch.memory.tables import Tables
from txbatch.memory.upstream import MemoryUpstream


class MemoryLedger(Transactions):
    """`core.protocol.ledger.Ledger` in the calling process, for any number of threads. The transactions are `Transactions`.

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

    @contextmanager
    def store(self, *, snapshot: bool = False) -> Iterator[MemoryRows]:
        """Context manager. Yield the rows of one transaction."""
        with self.transaction() as tables:
            yield self._rows(tables)

    def _rows(self, tables: Tables) -> MemoryRows:
        return MemoryRows(tables, self.warehouses, self.uuid, self.clock(), self.lease_seconds)

    @property
    def upstream(self) -> MemoryUpstream:
        """The ledger's states, for topologies that read states."""
        return MemoryUpstream(self)

    def register(self, topology: Topology, job: str, zone: str | None = None) -> None:
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

    def last_txid(self, topology: str) -> int:
        """Return the highest txid ever used, 0 before the first."""
        with self.transaction() as tables:
            return max((batch.txid for batch in tables.batches_of(topology)), default=0)

    def closed_to(self, topology: str) -> Mapping[str, int]:
        """Return, by state, the end of closed windows (R26)."""
        with self.transaction() as tables:
            return event_time.closed_to(tables, topology)

    def note_wait(self, batch: Batch, run: Run) -> None:
        """Show to others that a run without a batch waits for the end of `batch`."""
        with self.transaction() as tables:
            tables.waiting[batch.topology, run.name] = batch.txid

    def renew_lease(self, assignment: Assignment) -> bool:
        """Renew the lease of the attempt's run. Return False if the attempt is not the newest attempt of an open batch."""
        with self.transaction() as tables:
            now = tables.batch(assignment.topology, assignment.attempt.txid)
            try:
                fence.check_fence(now, assignment.attempt, assignment.token)
            except StaleAttempt:
                return False
            self._rows(tables).renew_lease(now)
            return True

    def renew_waiting_lease(self, batch: Batch, run: Run) -> bool:
        """Renew the lease of a waiting run. Return False if the run no longer looks after the open batch (R6)."""
        with self.transaction() as tables:
            now = tables.batch(batch.topology, batch.txid)
            if now.status.final or now.lease_run != run.name:
                return False
            self._rows(tables).renew_lease(now)
            return True

    def fail_attempt(self, assignment: Assignment, error: str) -> None:
        """Record why an attempt failed."""
        with self.transaction() as tables:
            at = assignment.topology, assignment.attempt
            if tables.attempts[at].status == "emitting":
                tables.attempts[at] = replace(tables.attempts[at], status="failed", error=one_line(error))

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
        """Return the lowest unfinished txid above `above`, of a run with `prefix` in front of the name; None without one."""
        with self.transaction() as tables:
            for batch in tables.batches_of(topology):
                name = batch.lease_run or ""
                over = batch.succeeded or batch.status is BatchStatus.ABORTED
                if batch.txid > above and name.startswith(prefix) and not over:
                    return unfinished(batch)
        return None

    def turn_of(self, topology: str, txid: int) -> int | None:
        """Return the lowest txid below `txid` that is not final: `txid` waits for the lower one (R6)."""
        with self.transaction() as tables:
            return tables.open_before(topology, txid)

    def new_values(self, table: str) -> list[tuple[Any, ...]]:
        """Return the rows written by commits into a table of new values, in order."""
        with self.transaction() as tables:
            return list(tables.new_values.get(table, ()))

    def rows(self, state: str) -> Rows:
        """Return a state's present rows, by key."""
        apart = self.tables.states[state].database is not None
        return self.warehouses.rows(state) if apart else self.tables.states[state].rows
