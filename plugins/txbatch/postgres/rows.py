"""The rows of the ledger in PostgreSQL inside one transaction: nearly each operation is one statement of `sql/queries/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import (
    Assignment,
    Batch,
    BatchKind,
    BatchStatus,
    Interval,
    Metadata,
    Run,
    TransactionAttempt,
)
from txbatch.core.protocol.commit import CommitFacts, CommitPlan, asks_definition
from txbatch.core.protocol.decisions import TakenIntervals
from txbatch.core.protocol.ledger import Head, Order, RunPlan
from txbatch.core.protocol.lookback import CountedPlan, FoundLate, LookFacts
from txbatch.core.protocol.record_numbers import Bases
from txbatch.core.protocol.restate import PositionVersion
from txbatch.core.stored_json import STORED_BYTES_MAX, canonical_json
from txbatch.core.text import one_line
from txbatch.core.topology.kept_windows import Left
from txbatch.core.topology.topology import Topology
from txbatch.ledger.rows import Registered
from txbatch.postgres import plans as stored_plans
from txbatch.postgres.apart.warehouses import Warehouses
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

    def lock_topology(self, topology: str) -> Registered:
        """Lock a topology against other plans. Raise UnknownName if missing."""
        row = batches.lock_topology(self.connection, topology)
        return Registered(row["job"], row["digest"])

    def lock_batch(self, topology: str, txid: int, run: Run | None = None) -> Batch:
        """Lock a batch, as `batch_lock.locked_row` does."""
        return batches.lock_batch(self.connection, topology, txid, run)

    def lock_open_batches(self, topology: str, txid: int) -> Sequence[Batch]:
        """Lock a batch and the batches in flight, each as `lock_batch` does, and return the batches in flight."""
        in_flight = batches.batches(self.connection, "open_batches", topology=topology)
        txids = sorted({txid, *(each.txid for each in in_flight)})
        locked = [self.lock_batch(topology, each) for each in txids]
        return [each for each in locked if not each.status.final]

    def batch(self, topology: str, txid: int) -> Batch:
        """Return a batch, without a lock."""
        return batches.batch(self.connection, topology, txid)

    def heads(self, topology: str, runs: Sequence[Run]) -> Sequence[Head]:
        """Return the head for each run."""
        return batches.heads(self.connection, topology, runs)

    def order(self, batch: Batch) -> Order:
        """Return the place of a batch among the others."""
        return batches.order(self.connection, batch)[0]

    def store_definition(self, topology: Topology, job: str) -> None:
        """Store the definition. Raise SchemaMismatch if the history has another definition."""
        definitions.store(self.connection, topology, job)

    def pin_watermarks(self, topology: Topology, plans: Sequence[RunPlan]) -> Sequence[RunPlan]:
        """Return plans with the watermarks that decide which records are late."""
        return event_time.pin(self.connection, topology, plans)

    def next_numbers(self, topology: Topology) -> Bases:
        """Return the number of the next record of each numbered stream."""
        return record_numbers.bases(self.connection, topology.name, topology.numbered)

    def taken_intervals(self, topology: str, asked: Sequence[Interval]) -> TakenIntervals:
        """Return the intervals of batches that overlap the span of the given intervals."""
        return stored_plans.taken_intervals(self.connection, topology, asked)

    def windows_left(self, topology: str) -> Mapping[str, Left]:
        """Return, by state, which windows have left."""
        return batches.windows_left(self.connection, topology)

    def version(self, topology: str, position: int) -> PositionVersion:
        """Return the current version of a position. Raise UnknownName if missing."""
        return batches.version(self.connection, topology, position)

    def look_facts(self, batch: Batch, since: datetime | None) -> LookFacts:
        """Return the plan of the last look before a batch, and the intervals of earlier batches."""
        return came_late.look_facts(self.connection, batch, since)

    def found_late(self, topology: str) -> Sequence[FoundLate]:
        """Return the late records met by committed batches, unless a later version counts the records."""
        return came_late.found_late(self.connection, topology)

    def counted_plans(self, topology: str, since: datetime | None, until: datetime, most: int) -> list[CountedPlan]:
        """Return the newest committed positions with intervals in a time, with the counting plans, newest first."""
        return came_late.counted_plans(self.connection, topology, since, until, most)

    def insert_batches(self, head: Head, plans: Sequence[RunPlan]) -> Sequence[Batch]:
        """Store plans as the next txids."""
        last = stored_plans.insert(self.connection, head, plans, self.lease_seconds)
        between = {"topology": head.topology, "first": head.next_txid, "last": last}
        return batches.batches(self.connection, "batches_between", **between)

    def take_lease(self, batch: Batch, run: Run) -> None:
        """Let a run look after a batch."""
        self._run("take_lease", {**batches.batch_ids(batch), **self._lease(run)})

    def forget_wait(self, topology: str, run: Run) -> None:
        """Note that a run waits no longer."""
        self._run("forget_waits", {"topology": topology, "runs": [run.name]})

    def supersede_attempts(self, batch: Batch) -> None:
        """Mark the attempts of a batch as over."""
        self._run("supersede_attempts", batches.batch_ids(batch))

    def raise_fence(self, batch: Batch, run: Run, code: str) -> Assignment:
        """Issue the next attempt, looked after by the run."""
        raised = batches.one(self.connection, "raise_fence", **batches.batch_ids(batch), **self._lease(run))
        attempt = TransactionAttempt(batch.txid, raised["fence"])
        of = batch.position, batch.planned_at
        assignment = Assignment(batch.topology, attempt, raised["token"], batch.metadata, code, *of)
        row = {"token": assignment.token, "run": run.name, "code": code}
        self._run("insert_attempt", {**batches.attempt_ids(assignment), **row})
        return assignment

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
        row = {**batches.attempt_ids(assignment), "manifest": canonical_json(manifest.to_json(), STORED_BYTES_MAX)}
        self._run("attempt_emitted", row)
        lease = {"lease_seconds": self.lease_seconds}
        return batches.batch_from(
            batches.one(self.connection, "batch_emitted", **batches.attempt_ids(assignment), **lease)
        )

    def share_topology(self, committing: Batch) -> None:
        """Lock the topology's row against a swap alone, and name the session after the attempt."""
        batch_lock.share_topology(self.connection, committing)

    def commit_facts(self, topology: Topology, batch: Batch) -> CommitFacts:
        """Return the facts of a locked batch; if the batch is not emitted, only the newest attempt and the batch's place."""
        newest = batches.newest_attempt(self.connection, batch)
        order, digest = batches.order(self.connection, batch)
        if batch.status is not BatchStatus.EMITTED:
            return CommitFacts(batch, *newest, order)
        asked = asks_definition(topology, batch, digest)
        definition = definitions.known(self.connection, topology) if asked else None
        if batch.kind is BatchKind.RESTATE:
            version = self.version(batch.topology, batch.position)
            return CommitFacts(batch, *newest, order, definition, version)
        numbered = batch.plan.base.keys() & topology.numbered
        bases = record_numbers.bases(self.connection, batch.topology, numbered) if numbered else {}
        return CommitFacts(batch, *newest, order, definition, bases=bases)

    def rebuild_told(self, topology: str) -> AbstractContextManager[None]:
        """Context manager. Put a running rebuild in front of the refusal of a definition."""
        return definitions.rebuild_told(self.connection, topology)

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

    def _lease(self, run: Run) -> dict[str, Any]:
        return {"run": run.name, "lease_seconds": self.lease_seconds}
