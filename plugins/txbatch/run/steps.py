"""The four steps of a batch, without Airflow: initialize_transaction, emit_batch, commit, success."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from txbatch import failpoints
from txbatch.core import coordinator, protocol
from txbatch.core.coordinator import NothingNew
from txbatch.core.errors import BrokenChain, StaleAttempt, TerminalError, TransientError, TxbatchError
from txbatch.core.ledger import Committed
from txbatch.core.protocol import Wait
from txbatch.core.transaction import Assignment, Batch, BatchStatus, Run
from txbatch.launch.job_file import Job
from txbatch.postgres.engine import connect
from txbatch.postgres.ledger import LEASE_SECONDS, PostgresLedger
from txbatch.postgres.migrate import check_migrated
from txbatch.postgres.warehouses import Warehouses
from txbatch.run.lease import kept_alive
from txbatch.settings import Settings
from txbatch.storage.staging import AttemptFolder, Staging, check_uri

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one job on one ledger and one staging area."""

    job: Job
    ledger: PostgresLedger
    staging: Staging

    @classmethod
    def open(cls, job: Job, settings: Settings, *, lease_seconds: int = LEASE_SECONDS) -> Steps:
        """With the ledger and staging area of these settings. NotMigrated when the database is not ready."""
        check_uri(settings.staging)
        name = f"txbatch {job.topology.name}"
        engine = connect(settings.database_url, application_name=name)
        check_migrated(engine)
        warehouses = Warehouses(settings.warehouse_url, application_name=name)
        ledger = PostgresLedger(engine, lease_seconds=lease_seconds, warehouses=warehouses)
        return cls(job, ledger, Staging(settings.staging))

    def initialize_transaction(self, run: Run) -> Batch | Wait | NothingNew:
        """Find or plan the run's batch (R1..R4)."""
        self.ledger.register(self.job.topology, self.job.name)
        found = coordinator.initialize_transaction(self.ledger, self.job.topology, run)
        if isinstance(found, Batch):
            log.info("%s: txid %s is %s, for %s", found.topology, found.txid, found.status, run.name)
            failpoints.hit("initialize.planned")
        return found

    def batch_of(self, run: Run) -> Batch:
        """The run's own batch, or, where there was nothing new for one, the last it adopted; TerminalError for none."""
        name = self.job.topology.name
        batch = self.ledger.head(name, run).own or self.ledger.committed_by(name, run)
        if batch is None:
            raise TerminalError(
                f"{self.job.topology.name}: {run.name} has no batch; clear the task initialize_transaction"
            )
        return batch

    def emit_batch(self, batch: Batch, run: Run, submit: Callable[[AttemptFolder, Assignment], None]) -> Batch:
        """A new attempt: Spark reads the batch and stages its partials; the ledger takes the manifest (R5, R7).

        `submit` runs the job on an attempt's folder and raises when it fails. A committed batch is returned as it is.
        """
        batch = self.ledger.batch(batch.topology, batch.txid)
        if batch.status is BatchStatus.COMMITTED:
            return batch
        assignment = self.ledger.start_attempt(batch, run, self.job.code)
        folder = self.staging.attempt(assignment)
        log.info("%s %s: emitting into %s", batch.topology, assignment.attempt, folder.uri)
        failpoints.doing(f"{batch.topology} {assignment.attempt}")
        failpoints.hit("emit.attempt_started")
        try:
            protocol.check_gone(assignment)
            self.staging.supersede(assignment)
            folder.write_assignment(assignment)
            with kept_alive(self.ledger, assignment, folder):
                submit(folder, assignment)
            failpoints.hit("emit.manifest_written")
            emitted = self.ledger.record_manifest(assignment, folder.read_manifest())
        except Exception as error:
            failure = _superseded(folder, assignment) or _said_by_job(folder, error)
            self.ledger.fail_attempt(assignment, str(failure))
            raise failure from error
        failpoints.hit("emit.recorded")
        return emitted

    def commit(self, batch: Batch, run: Run | None = None) -> Committed:
        """Load the newest attempt's partials and apply them (R6..R10). A batch that no longer continues is aborted.

        `run` may end an older commit of its own that does not go on.
        """
        batch = self.ledger.batch(batch.topology, batch.txid)
        if batch.status is BatchStatus.COMMITTED:
            log.info("%s: already committed as txid %s", batch.topology, batch.txid)
            return Committed(batch, applied=False)
        assignment, manifest = self.ledger.newest_attempt(batch)
        failpoints.doing(f"{batch.topology} {assignment.attempt}")
        folder = self.staging.attempt(assignment)
        if manifest is None:
            raise TerminalError(
                f"{batch.topology}: attempt {assignment.attempt} has no manifest yet; clear the task emit_batch"
            )
        from txbatch.storage import parquet  # brings Arrow, which only a commit needs

        staged = {name: parquet.read(folder, state) for name, state in manifest.states.items()}
        try:
            committed = self.ledger.commit(self.job.topology, batch, staged, run)
        except BrokenChain as error:
            self.ledger.abort(batch.topology, batch.txid, str(error))
            raise
        failpoints.hit("commit.committed")
        log.info("%s: committed txid %s with attempt %s", batch.topology, batch.txid, assignment.attempt)
        return committed

    def success(self, batch: Batch) -> bool:
        """Tell the spouts, remove the staged files, note it; True the first time (R8)."""
        batch = self.ledger.batch(batch.topology, batch.txid)
        protocol.check_success(batch)
        for stream in self.job.topology.streams.values():
            spout_coordinator = stream.spout.coordinator()
            spout_coordinator.success(batch.txid)
            spout_coordinator.close()
        self.staging.transaction(batch.topology, batch.txid).remove()
        failpoints.hit("success.cleaned")
        return self.ledger.success(batch.topology, batch.txid)


def _superseded(folder: AttemptFolder, assignment: Assignment) -> StaleAttempt | None:
    """What took the attempt's place, and ended its driver."""
    try:
        fence = folder.read_fence()
    except TransientError:
        return None
    what = f"{assignment.topology} {assignment.attempt}: {fence.superseded} took its place; nothing was changed"
    return StaleAttempt(what) if fence.superseded else None


def _said_by_job(folder: AttemptFolder, error: Exception) -> Exception:
    """The error that the job itself wrote down, which says more than the exit code of spark-submit."""
    said = folder.read_error()
    if said is None or (isinstance(error, TxbatchError) and not isinstance(error, TransientError)):
        return error
    return (TerminalError if said["kind"] == "terminal" else TransientError)(said["message"])
