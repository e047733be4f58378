"""The transactions of the protocol: read rows under locks, ask `core.protocol`, write the decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from txbatch import failpoints
from txbatch.core.batch.manifest import Manifest, check_manifest, check_same_records
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Assignment, Batch, BatchStatus, Metadata, Run
from txbatch.core.definition.digest import definition_digest
from txbatch.core.errors import HalfCommitted, LeaseHeld
from txbatch.core.protocol import decisions, fence, skip
from txbatch.core.protocol.commit import CommitPlan, decide_commit
from txbatch.core.protocol.ledger import Committed, Head, RunPlan
from txbatch.core.protocol.record_numbers import pin_record_numbers
from txbatch.core.protocol.restate import check_version
from txbatch.core.topology.kept_windows import check_interval_not_left
from txbatch.core.topology.topology import Topology
from txbatch.ledger.questions import Questions
from txbatch.ledger.rows import Rows


class Transactions(Questions):
    """The transactions of `core.protocol.ledger.Ledger`. If the block of a transaction, `store`, raises, the ledger is unchanged.

    Databases with states apart commit within the block (R21): the next attempt or an abort takes back any remaining rows.
    """

    def plan(self, head: Head, run: Run, metadata: Metadata, topology: Topology | None = None) -> Batch | None:
        """Store the next txid with its metadata (R1)."""
        found = self.plan_many(head, [(run, metadata)], topology)
        return None if found is None else found[0]

    def plan_many(self, head: Head, plans: Sequence[RunPlan], topology: Topology | None = None) -> list[Batch] | None:
        """Store the next txids, each planned after the txid before (R1), up to the first refused plan."""
        failpoints.hit("initialize.before_lock")
        runs = [run for run, _ in plans]
        with self.store() as rows:
            stored = rows.lock_topology(head.topology)
            if decisions.moved(head, *rows.heads(head.topology, runs)):
                return None
            if topology is not None and definition_digest(topology) != stored.digest:
                rows.store_definition(topology, stored.job)  # a process may have registered since the head was read
            if topology is not None:
                plans = _pinned(rows, topology, plans)
            may = list(decisions.before_refused(plans, _plan_check(rows, head.topology, runs)))
            return list(rows.insert_batches(head, may))

    def adopt(self, batch: Batch, run: Run) -> Batch | None:
        """Take over an abandoned batch, or abort the batch if the run may not adopt (R6, `decisions.may_adopt`)."""
        with suppress(LeaseHeld), self._alone(batch.topology, batch.txid) as (rows, now):
            adopts = decisions.may_adopt(now, run)
            if decisions.unattended(now, run) and (adopts or not _abort_abandoned(rows, now, run)):
                rows.take_lease(now, run)
                rows.forget_wait(now.topology, run)
                return rows.batch(now.topology, now.txid)
        return None

    def start_attempt(self, batch: Batch, run: Run, code: str) -> Assignment:
        """Issue the next attempt (R5). Raise LeaseHeld if another live run works on the batch, TerminalError if final."""
        failpoints.hit("attempt.before_lock")
        with self.store() as rows:
            now = rows.lock_batch(batch.topology, batch.txid, run)
            fence.check_attempt(now, run)
            rows.supersede_attempts(now)
            return rows.raise_fence(now, run, code)

    def record_manifests(self, recorded: Sequence[tuple[Assignment, Manifest]]) -> list[Batch]:
        """Store the manifests of attempts, all or none. Raise StaleAttempt (R5) or Incomplete (R7) for the first refusal."""
        with self.store() as rows:
            return [_record_manifest(rows, assignment, manifest) for assignment, manifest in recorded]

    def commit(
        self, topology: Topology, committing: Batch, partials: Mapping[str, Any], run: Run | None = None
    ) -> Committed:
        """Apply the partials of the attempt that `committing` names, in one transaction (R10)."""
        failpoints.hit("commit.before_lock")
        with self.store() as rows:
            rows.share_topology(committing)
            now = rows.lock_batch(committing.topology, committing.txid, run)  # waits for a COMMIT under way, up to 80 s
            if run is not None and now.lease_run != run.name and not now.status.final:
                rows.take_lease(now, run)  # undone with the transaction: a killed commit leaves the lease as it was
            facts = rows.commit_facts(topology, now)
            with rows.rebuild_told(now.topology):
                plan = decide_commit(topology, committing, facts)
            if isinstance(plan, Committed):
                return plan
            _write(rows, plan, partials)
            failpoints.hit("commit.before_commit")
            # asked last: a connection cut by now fails here, and the ledger is unchanged; cut later: OutcomeUnknown
            return Committed(rows.batch(now.topology, now.txid), applied=True)

    def success(self, topology: str, txid: int) -> bool:
        """Note that success ran; return True the first time. Raise TerminalError if the txid is not committed (R8)."""
        with self.store() as rows:
            if rows.succeed(topology, txid):
                return True
            decisions.check_success(rows.lock_batch(topology, txid))
            return False

    def abort(
        self, topology: str, txid: int, why: str, attempt: Assignment | None = None, *, replanned: bool = False
    ) -> Batch:
        """Free the records of an uncommitted batch (R16). Raise TerminalError if the batch is committed."""
        failpoints.hit("abort.before_lock")
        with self._alone(topology, txid) as (rows, batch):
            if attempt is not None:
                fence.check_fence(batch, attempt.attempt, attempt.token)
            decisions.check_abort(batch)
            if batch.status is not BatchStatus.ABORTED:
                _free(rows, batch, why, replanned=replanned)
            return rows.batch(topology, txid)

    def skip(self, topology: str, txid: int, why: str, partition: str | None = None) -> Batch:
        """Abort a batch and count the batch's records as read, by a new txid (R16)."""
        with self.store() as rows:
            skip.check_may_skip(rows.batch(topology, txid))  # a refused skip waits for nobody
            rows.lock_open_batches(topology, txid)  # as in `_alone`
        with self.store() as rows:
            rows.lock_topology(topology)
            pending = rows.lock_open_batches(topology, txid)  # none of them commits meanwhile
            batch = rows.batch(topology, txid)
            skip.check_may_skip(batch)
            also, left, order = rows.also_covering(batch), skip.given_up(batch, partition), rows.order(batch)
            skip.check_skip(left, order, also)
            last = None if order.last_committed is None else rows.batch(topology, order.last_committed)
            if batch.status.final:
                rows.prepare_skip(pending)  # `_free` takes back of an open batch alone
            else:
                _free(rows, batch, why)
            return rows.give_up(skip.carrying_on(left, last), why, found_by_run=partition is None)

    @contextmanager
    def _alone(self, topology: str, txid: int) -> Iterator[tuple[Rows, Batch]]:
        """Context manager. Lock a topology, then a batch; yield the rows of the transaction, and the batch.

        A live commit is waited for before, without the topology's lock: plans go on meanwhile.
        """
        with self.store() as rows:
            rows.lock_batch(topology, txid)
        with self.store() as rows:
            rows.lock_topology(topology)
            yield rows, rows.lock_batch(topology, txid)


def _pinned(rows: Rows, topology: Topology, plans: Sequence[RunPlan]) -> Sequence[RunPlan]:
    """Return plans with the watermarks of late records (R25), and the first number of their records (R29)."""
    if topology.watermarks:
        plans = rows.pin_watermarks(topology, plans)
    if not topology.numbered:
        return plans
    bases = rows.next_numbers(topology)
    return [(run, plan if run.restate else pin_record_numbers(plan, topology.numbered, bases)) for run, plan in plans]


def _plan_check(rows: Rows, topology: str, runs: Sequence[Run]) -> Callable[[Run, Metadata], None]:
    """Return a function that refuses an interval that may not be planned, and a restate that may not be counted."""
    intervals = [run.interval for run in runs if run.interval]
    taken = rows.taken_intervals(topology, intervals) if intervals else None
    left = rows.windows_left(topology) if intervals else {}

    def check(run: Run, metadata: Metadata) -> None:
        if run.interval and taken:
            taken.take(run.interval)
            if left:
                check_interval_not_left(topology, run.interval, BatchPlan.from_json(metadata), left)
        if run.restate is not None:
            check_version(rows.version(topology, run.restate.position), run.restate)

    return check


def _record_manifest(rows: Rows, assignment: Assignment, manifest: Manifest) -> Batch:
    now = rows.lock_batch(assignment.topology, assignment.attempt.txid)
    fence.check_fence(now, assignment.attempt, assignment.token)
    check_manifest(manifest, assignment)
    earlier = rows.earlier_manifests(assignment)
    if earlier or manifest.unreadable:
        missing = now.restate is not None and now.restate.accept_missing
        check_same_records(manifest, earlier, rows.source(assignment.topology), accept_missing=missing)
    return rows.take_manifest(assignment, manifest)


def _write(rows: Rows, plan: CommitPlan, partials: Mapping[str, Any]) -> None:
    """Write a commit. States in other databases are written last, and are committed there before this returns (R21)."""
    rows.load(plan, partials)
    failpoints.hit("commit.loaded")
    if plan.replaced is not None:
        rows.replace(plan.batch, plan.replaced)
    rows.mark_committed(plan, rows.apply(plan))
    rows.move_event_time(plan)
    rows.commit_apart(plan, partials)


def _abort_abandoned(rows: Rows, batch: Batch, run: Run) -> bool:
    """Abort an abandoned batch; return False if a warehouse has rows of the batch and cannot take them back."""
    try:
        _free(rows, batch, f"abandoned by {batch.lease_run}; {run.name} found it so", replanned=True)
    except HalfCommitted:
        return False
    return True


def _free(rows: Rows, batch: Batch, reason: str, *, replanned: bool = False) -> None:
    """Take back all rows in states apart, then free the batch's records."""
    rows.take_back(batch)
    rows.supersede_attempts(batch)
    rows.free(batch, reason, replanned=replanned)
