"""The rows of the ledger in PostgreSQL inside one transaction: nearly each operation is one statement of `sql/queries/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import Assignment, Batch, BatchKind, BatchStatus, Metadata, Run, TransactionAttempt
from txbatch.core.protocol.commit import CommitFacts, CommitPlan, asks_definition
from txbatch.core.protocol.ledger import Head, Order, RunPlan
from txbatch.core.protocol.record_numbers import Bases
from txbatch.core.stored_json import STORED_BYTES_MAX, canonical_json
from txbatch.core.text import one_line
from txbatch.core.topology.topology import Topology
from txbatch.ledger.rows import Registered
from txbatch.postgres import plans as stored_plans
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.database.on_connection import on_connection
from txbatch.postgres.database.queries import query
from txbatch.postgres.state.writer import StagedRows, StateWriter, writer_of
from txbatch.postgres.tables import batch_lock, batches, came_late, definitions, event_time, offsets, record_numbers
from txbatch.postgres.tables.offsets import Ended


@dataclass(slots=True)
class PostgresRows:
    """`ledger.rows.Rows` on a connection inside a transaction."""

    connection: Connection
    warehouses: Warehouses
    lease_seconds: int
    copied: list[tuple[StateWriter, StagedRows]] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)

    batch = on_connection(batches.batch)
    lock_batch = on_connection(batches.lock_batch)
    heads = on_connection(batches.heads)
    version = on_connection(batches.version)
    windows_left = on_connection(batches.windows_left)
    taken_intervals = on_connection(stored_plans.taken_intervals)
    pin_watermarks = on_connection(event_time.pin)
    store_definition = on_connection(definitions.store)
    rebuild_told = on_connection(definitions.rebuild_told)
    share_topology = on_connection(batch_lock.share_topology)
    look_facts = on_connection(came_late.look_facts)
    found_late = on_connection(came_late.found_late)
    counted_plans = on_connection(came_late.counted_plans)

    def lock_topology(self, topology: str) -> Registered:
        """Lock a topology against other plans. Raise UnknownName if missing."""
        row = batches.lock_topology(self.connection, topology)
        return Registered(row["job"], row["digest"])

    def lock_open_batches(self, topology: str, txid: int) -> Sequence[Batch]:
        """Lock a batch and the batches in flight, each as `lock_batch` does, and return the batches in flight."""
        in_flight = batches.batches(self.connection, "open_batches", topology=topology)
        txids = sorted({txid, *(each.txid for each in in_flight)})
        locked = [self.lock_batch(topology, each) for each in txids]
        return [each for each in locked if not each.status.final]

    def order(self, batch: Batch) -> Order:
        """Return the place of a batch among the others."""
        return batches.order(self.connection, batch)[0]

    def next_numbers(self, topology: Topology) -> Bases:
        """Return the number of the next record of each numbered stream."""
        return record_numbers.bases(self.connection, topology.name, topology.numbered)

    def insert_batches(self, head: Head, plans: Sequence[RunPlan]) -> Sequence[Batch]:
        """Store plans as the next txids."""
        return stored_plans.insert(self.connection, head, plans, self.lease_seconds)

    def take_lease(self, batch: Batch, run: Run) -> None:
        """Let a run look after a batch."""
        lease = {"run": run.name, "lease_seconds": self.lease_seconds}
        self._run("take_lease", {**batches.batch_ids(batch), **lease})

    def forget_wait(self, topology: str, run: Run) -> None:
        """Note that a run waits no longer."""
        self._run("forget_waits", {"topology": topology, "runs": [run.name]})

    def supersede_attempts(self, batch: Batch) -> None:
        """Mark the attempts of a batch as over."""
        self._run("supersede_attempts", batches.batch_ids(batch))

    def raise_fence(self, batch: Batch, run: Run, code: str) -> Assignment:
        """Issue the next attempt, looked after by the run."""
        lease = {"run": run.name, "code": code, "lease_seconds": self.lease_seconds}
        raised = batches.one(self.connection, "raise_fence", **batches.batch_ids(batch), **lease)
        attempt, of = TransactionAttempt(batch.txid, raised["attempt_id"]), (batch.position, batch.planned_at)
        return Assignment(batch.topology, attempt, raised["token"], batch.metadata, code, *of)

    def earlier_manifests(self, assignment: Assignment) -> list[Manifest]:
        """Return the manifests of the earlier attempts of a batch."""
        if assignment.attempt.attempt_id == 1:
            return []
        found = self.connection.execute(query("earlier_manifests"), batches.attempt_ids(assignment)).scalars()
        return [Manifest.from_json(each) for each in found]

    def source(self, topology: str) -> Mapping[str, Metadata]:
        """Return the stored identity of each stream's source."""
        found: Mapping[str, Metadata] = batches.one(self.connection, "topology", topology=topology)["source"]
        return found

    def take_manifest(self, assignment: Assignment, manifest: Manifest) -> Batch:
        """Store an attempt's manifest, and return the emitted batch."""
        row = {"manifest": canonical_json(manifest.to_json(), STORED_BYTES_MAX), "lease_seconds": self.lease_seconds}
        emitted = batches.one(self.connection, "batch_emitted", **batches.attempt_ids(assignment), **row)
        return batches.batch_from(emitted)

    def commit_facts(self, topology: Topology, batch: Batch) -> CommitFacts:
        """Return the facts of a locked batch; if the batch is not emitted, only the newest attempt and the batch's place."""
        newest = batches.newest_attempt(self.connection, batch)
        order, digest = batches.order(self.connection, batch)
        if batch.status is not BatchStatus.EMITTED:
            return CommitFacts(batch, *newest, order)
        asked = asks_definition(topology, batch, digest)
        definition = definitions.known(self.connection, topology) if asked else None
        version = self.version(batch.topology, batch.position) if batch.kind is BatchKind.RESTATE else None
        numbered = batch.plan.base.keys() & topology.numbered if version is None else ()
        bases = record_numbers.bases(self.connection, batch.topology, numbered) if numbered else {}
        return CommitFacts(batch, *newest, order, definition, version, bases)

    def load(self, plan: CommitPlan, partials: Mapping[str, Any]) -> None:
        """COPY the partials of the states in the ledger's database into temporary tables (R7)."""
        writers = [writer_of(self.connection, plan, each, number) for number, each in enumerate(plan.here)]
        self.copied = [(each, each.load(partials[each.name], plan.manifest.states[each.name])) for each in writers]

    def replace(self, batch: Batch, replaced: int) -> None:
        """Let a restate count in place of the version `replaced`."""
        self._run("replace", {**batches.batch_ids(batch), "replaced": replaced})

    def apply(self, plan: CommitPlan) -> dict[str, int]:
        """Apply the rows that `load` has copied for the plan; return the number of keys by state."""
        return {writer.name: writer.apply(staged) for writer, staged in self.copied}

    def mark_committed(self, plan: CommitPlan, keys: Mapping[str, int]) -> None:
        """Record the read ranges, the next offsets, and that the batch is committed."""
        planned_at = plan.batch.created_at or datetime.now(UTC)  # a batch of the ledger has one
        self.ended = offsets.record(self.connection, plan.batch, offsets.read(plan.manifest, planned_at))
        every = canonical_json({each.name: each.staged.rows for each in plan.states} | dict(keys))
        kept = canonical_json(plan.kept) if plan.kept else None
        told = {"records": plan.manifest.records, "keys": every, "kept": kept, **came_late.column(plan.manifest)}
        self._run("batch_committed", {**batches.batch_ids(plan.batch), "attempt_id": plan.batch.fence, **told})
        self._count_interval(plan.batch)

    def move_event_time(self, plan: CommitPlan) -> None:
        """Write the watermarks after the commit, and the windows closed by the batch."""
        event_time.commit(self.connection, plan, self.ended)

    def commit_apart(self, plan: CommitPlan, partials: Mapping[str, Any]) -> None:
        """Apply the partials to the states in other databases, and commit there."""
        self.warehouses.commit(self.connection, plan.assignment, plan.apart, partials)

    def succeed(self, topology: str, txid: int) -> bool:
        """Note the success of a committed batch; return False if the batch is not committed, or had success before."""
        ids = {"topology": topology, "txid": txid}
        return self.connection.execute(query("succeed"), ids).first() is not None

    def take_back(self, batch: Batch) -> None:
        """Undo the writes of a batch in other databases."""
        self.warehouses.take_back(self.connection, batch)

    def prepare_skip(self, pending: Sequence[Batch]) -> None:
        """Keep the oldest batch in flight from being half committed in other databases."""
        self.warehouses.prepare_skip(self.connection, pending)

    def free(self, batch: Batch, reason: str, *, replanned: bool) -> None:
        """Abort a batch: the records are free, and the partitions behind. `replanned`: the batch's run plans again."""
        self._run("abort", {**batches.batch_ids(batch), "reason": one_line(reason), "abandoned": replanned})
        offsets.note_missed(self.connection, batch)

    def also_covering(self, batch: Batch) -> Sequence[int]:
        """Return the other txids, not aborted, with intervals that overlap the batch's interval."""
        return self.connection.execute(query("also_covering"), batches.batch_ids(batch)).scalars().all()

    def give_up(self, left: Batch, why: str, *, found_by_run: bool) -> Batch:
        """Store the next txid, which counts the records of `left` as read."""
        txid, reason = batches.last_txid(self.connection, left.topology) + 1, one_line(why)
        skipped = {**batches.batch_ids(left), "skip_txid": txid, "reason": reason}
        metadata = canonical_json(left.metadata, STORED_BYTES_MAX)
        self._run("insert_skip", {**skipped, "prev_txid": left.prev_txid, "metadata": metadata})
        if found_by_run:
            self._run("repoint_keys", skipped)
        done = batches.batch(self.connection, left.topology, txid)
        offsets.record(self.connection, done, offsets.skipped(done, reason))
        self._count_interval(done)
        return done

    def _count_interval(self, batch: Batch) -> None:
        """Add the interval of a committed batch to the counted time. The last rows that a commit or a skip locks."""
        if batch.by_interval:
            self._run("count_interval", batches.batch_ids(batch))

    def _run(self, name: str, parameters: Mapping[str, Any]) -> None:
        self.connection.execute(query(name), dict(parameters))
