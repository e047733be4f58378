"""The steps of a batch, without Airflow: initialize_transaction, emit_batch, commit, success. Trains call parts of steps."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace

from txbatch import failpoints
from txbatch.core.batch.came_late import Look
from txbatch.core.batch.loaded import Loaded
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.staging import AttemptFolder, Staging
from txbatch.core.batch.transaction import Assignment, Batch, BatchKind, BatchStatus, Run
from txbatch.core.errors import (
    BrokenChain,
    LeaseHeld,
    NotEmitted,
    TerminalError,
    TransientError,
    TxbatchError,
    concerning,
)
from txbatch.core.naming import naming_stream
from txbatch.core.protocol import advice, coordinator, decisions, interval_warnings, lookback, planning_ahead, restate
from txbatch.core.protocol.commit import check_turn
from txbatch.core.protocol.coordinator import NothingNew
from txbatch.core.protocol.decisions import Wait, WaitReason
from txbatch.core.protocol.event_time import late_of
from txbatch.core.protocol.ledger import Committed, Ledger
from txbatch.core.protocol.planning_again import plan_restate
from txbatch.core.protocol.ports import Job, Repeat, RunLocks, Submit, repeat
from txbatch.core.protocol.skip import check_gone
from txbatch.core.text import one_line
from txbatch.core.topology.stream import Stream
from txbatch.core.upstream.look_ups import export
from txbatch.run.failures import failure_of
from txbatch.run.lease import attempt_kept_alive

log = logging.getLogger(__name__)
# An attempt, with the manifest recorded in the ledger.
Recorded = tuple[Assignment, Manifest]


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one job, on any ledger, staging area, locks and clock (see `txbatch.wiring`).

    `zone` is the time zone in which a schedule cuts the job's intervals; None: there is no schedule.
    """

    job: Job
    ledger: Ledger
    staging: Staging
    locks: RunLocks
    repeat: Repeat = repeat
    zone: str | None = None

    def register(self) -> None:
        """Register the topology. Raise SchemaMismatch if the ledger has another history of the topology (R2, R23)."""
        with self.concerning():
            self.ledger.register(self.job.topology, self.job.name, self.zone)

    def concerning(self, txid: int | None = None) -> AbstractContextManager[None]:
        """Context manager. Add the names of topology and job, and the txid of a batch, to the errors of the block."""
        names = {"topology": self.job.topology.name, "job": self.job.name}
        return concerning(**names, **({} if txid is None else {"txid": txid}))

    def initialize_transaction(self, run: Run) -> Batch | Wait | NothingNew:
        """Find or plan the run's batch (R1..R4)."""
        self.register()
        return self.find_or_plan(run)

    def find_or_plan(self, run: Run) -> Batch | Wait | NothingNew:
        """Find or plan the run's batch, of a topology registered by this process."""
        with self.concerning():
            found = coordinator.initialize_transaction(self.ledger, self.job.topology, run)
        if isinstance(found, Batch):
            self._tell([(found, run)], logging.INFO)
        return found

    def find_or_plan_many(self, runs: Sequence[Run], behind: Collection[int], length: int) -> list[Batch]:
        """Find or plan at once the batches of the first of several runs (`planning_ahead.initialize_many`)."""
        with self.concerning():
            found = planning_ahead.initialize_many(self.ledger, self.job.topology, runs, behind, length)
        self._tell(list(zip(found, runs, strict=False)), logging.DEBUG)
        return found

    def _tell(self, planned: Sequence[tuple[Batch, Run]], level: int) -> None:
        for batch, run in planned:
            log.log(level, "%s: txid %s is %s, for %s", batch.topology, batch.txid, batch.status, one_line(run.name))
            failpoints.hit("initialize.planned")
        for told_of in interval_warnings.of_planned(self.ledger, self.job.topology, planned):
            log.warning("%s", told_of)

    def check_restate(self, run: Run) -> Batch | None:
        """Plan the run's restate, and store nothing. If the run has a batch, return the batch.

        Raise TerminalError if the batch cannot be counted again, and PartitionUnreadable if the source is unavailable.
        """
        topology = self.job.topology
        head = self.ledger.head(topology.name, run)
        if run.restate is not None and head.own is None:
            with self.concerning(run.restate.position):
                version = self.ledger.version(topology.name, run.restate.position)
                plan_restate(topology, head, version, run.restate, self.ledger.upstream)
        return head.own

    def would_plan(self, run: Run) -> bool:
        """True if the run has no batch yet."""
        return self.ledger.head(self.job.topology.name, run).own is None

    def batch_of(self, run: Run) -> Batch:
        """Return the run's own batch, or the last batch adopted by the run. Raise TerminalError if the run has neither."""
        name = self.job.topology.name
        batch = self.ledger.head(name, run).own or self.ledger.committed_by(name, run)
        if batch is None:
            raise NotEmitted(f"{name}: {run.name} has no batch; clear the task initialize_transaction")
        return batch

    def emit_batch(self, batch: Batch, run: Run, submit: Submit) -> Batch:
        """Make a new attempt: Spark reads the batch and stages its partials, and the ledger records the manifest (R5, R7).

        `submit` runs the job on an attempt's folder, and raises if the job fails. Return a committed batch unchanged. Raise
        SchemaMismatch if the job changed after its registration, and has another definition now (R23).
        """
        batch = self.ledger.batch(batch.topology, batch.txid)
        if batch.status is BatchStatus.COMMITTED:
            return batch
        folder, assignment = self.start_attempt(batch, run, *self.code_now())
        log.info("%s %s: emitting into %s", batch.topology, assignment.attempt, folder.uri)
        with self.failure_told(folder, assignment):
            self.assign(folder, assignment)
            with attempt_kept_alive(self.ledger, assignment, folder, self.repeat):
                export(self.job.topology, self.ledger.upstream, assignment, folder)
                submit(folder, assignment)
            emitted, _ = self.record_manifest(folder, assignment)
        failpoints.hit("emit.recorded")
        return emitted

    def code_now(self) -> tuple[str, Loaded]:
        """Return the digest of the job's code now, with the loaded job. Raise SchemaMismatch just like `emit_batch`."""
        job = self.job.now()
        if job.code != self.job.code:
            self.ledger.check_definition(job.topology, job.name)
        return job.code, job.loaded()

    def start_attempt(
        self, batch: Batch, run: Run, code: str, loaded: Loaded, *, looks: bool = True
    ) -> tuple[AttemptFolder, Assignment]:
        """Begin the next attempt of a batch. Return the attempt's folder and assignment.

        Unless `looks`, the attempt looks for no late records: of batches emitted together, only the first looks.
        """
        look = self._look(batch) if looks else None
        assignment = replace(self.ledger.start_attempt(batch, run, code), loaded=loaded, look=look)
        folder = self.staging.attempt(assignment)
        failpoints.doing(f"{batch.topology} {assignment.attempt}")
        failpoints.hit("emit.attempt_started")
        return folder, assignment

    def _look(self, batch: Batch) -> Look | None:
        """Return the look of an attempt for late records; None without a stream, a kind or a commit for a look."""
        topology = self.job.topology
        if batch.kind is not BatchKind.ORDINARY or not lookback.in_files(topology):
            return None
        facts = self.ledger.look_facts(batch, lookback.looks_since(topology, batch.plan))
        return lookback.look_of(topology, batch.plan, facts)

    def assign(self, folder: AttemptFolder, assignment: Assignment) -> None:
        """Write the assignment for the attempt's driver, and supersede older attempts.

        If planned records cannot be read any more, raise TransientError before Spark starts.
        """
        check_gone(assignment)
        self._check_source(assignment)
        self.staging.supersede(assignment)
        folder.write_assignment(assignment)

    def _check_source(self, assignment: Assignment) -> None:
        topology, txid = assignment.topology, assignment.attempt.txid
        for name, planned in assignment.plan.streams.items():
            try:
                self.job.topology.streams[name].spout.check_plan(planned.plan)
            except TransientError as error:
                raise error.retold(f"{topology}: txid {txid}: {advice.of_open(error.text, topology, txid)}") from error

    def record_manifest(self, folder: AttemptFolder, assignment: Assignment) -> tuple[Batch, Manifest]:
        """Record an attempt's manifest in the ledger. Return the batch after recording, with the manifest."""
        return self.record_manifests([(folder, assignment)])[0]

    def record_manifests(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> list[tuple[Batch, Manifest]]:
        """Record the manifests of several attempts, all or none. Raise the error of the first rejected manifest."""
        recorded = []
        for folder, assignment in attempts:
            failpoints.hit("emit.manifest_written")
            recorded.append((assignment, folder.read_manifest()))
        batches = self.ledger.record_manifests(recorded)
        return [(batch, manifest) for batch, (_, manifest) in zip(batches, recorded, strict=True)]

    @contextmanager
    def failure_told(self, folder: AttemptFolder, assignment: Assignment) -> Iterator[None]:
        """Context manager. If the block fails, record the reason in the ledger, if possible, and raise the failure."""
        with concerning(attempt=assignment.attempt), self.concerning(assignment.attempt.txid):
            try:
                yield
            except Exception as error:
                failure = failure_of(folder, assignment, error)
                self._note_failure(assignment, failure)
                raise failure from error

    def _note_failure(self, assignment: Assignment, failure: Exception) -> None:
        try:
            self.ledger.fail_attempt(assignment, str(failure))
        except TxbatchError as error:
            of = f"{assignment.topology} {assignment.attempt}"
            log.warning("%s: the ledger cannot record why the attempt failed: %s", of, error)

    def emit_or_wait(self, batch: Batch, run: Run, submit: Submit) -> Batch | Wait:
        """Emit the batch. Return Wait while another live run works on the batch."""
        try:
            return self.emit_batch(batch, run, submit)
        except LeaseHeld as error:
            log.info("%s", error)
            return Wait(self.ledger.batch(batch.topology, batch.txid), WaitReason.HELD)

    def commit(self, batch: Batch, run: Run | None = None, recorded: Recorded | None = None) -> Committed:
        """Apply the newest attempt's partials to the states (R6..R10). Abort a batch that no longer continues.

        `run` may end its own older commit if that commit is stalled. If `recorded` is given, `batch` and `recorded` are
        fresh from the ledger: the ledger is not read again, and the commit checks whether both still hold.
        """
        with self.concerning(batch.txid):
            return self._commit(batch, run, recorded)

    def _commit(self, batch: Batch, run: Run | None, recorded: Recorded | None) -> Committed:
        if recorded is None:
            batch = self.ledger.batch(batch.topology, batch.txid)
            # a look without a lock: if COMMIT is still under way, the commit below waits for the end
            if batch.status is BatchStatus.COMMITTED:
                log.info("%s: already committed as txid %s", batch.topology, batch.txid)
                return Committed(batch, applied=False)
            recorded = self._newest_recorded(batch)
        assignment, manifest = recorded
        failpoints.doing(f"{batch.topology} {assignment.attempt}")
        staged = self.staging.attempt(assignment).read_partials(manifest)
        self._check_whole(batch, assignment, manifest)
        try:
            committed = self.ledger.commit(self.job.topology, batch, staged, run)
        except BrokenChain as error:
            self.ledger.abort(batch.topology, batch.txid, str(error), assignment, replanned=True)
            raise
        failpoints.hit("commit.committed")
        done = "committed" if committed.applied else "already committed"
        log.info("%s: %s txid %s with attempt %s", batch.topology, done, batch.txid, assignment.attempt)
        for told_of in interval_warnings.of_first(self.job.topology, batch, late_of(manifest)):
            log.warning("%s", told_of)
        return committed

    def _newest_recorded(self, batch: Batch) -> Recorded:
        """Return the newest attempt with its manifest. Raise TerminalError if the attempt has no manifest."""
        assignment, manifest = self.ledger.newest_attempt(batch)
        if manifest is None:
            raise NotEmitted(
                f"{batch.topology}: attempt {assignment.attempt} has no manifest yet; clear the task emit_batch"
            )
        return assignment, manifest

    def _check_whole(self, batch: Batch, assignment: Assignment, manifest: Manifest) -> None:
        """Abort a restate that would lose records of a missing file, and raise TerminalError (R17). Raise NotItsTurn (R6).

        Abort a restate by a look back for a shorter or replaced file too, by the restate's plan.
        """
        if batch.kind is not BatchKind.RESTATE or not batch.plan.whole:
            return
        # Once all lower txids are final, no other version comes before the commit.
        check_turn(batch, self.ledger.turn_of(batch.topology, batch.txid))
        try:
            version = self.ledger.version(batch.topology, batch.position)
            if lookback.is_by_look_back(batch):
                lookback.check_files(self.job.topology, batch.position, version.plan, batch.plan)
            restate.check_whole(self.job.topology, version, batch.plan, manifest)
        except TerminalError as error:
            self.ledger.abort(batch.topology, batch.txid, str(error), assignment)
            raise

    def success(self, batch: Batch) -> bool:
        """Notify spouts, write the files of states, remove staged files, note the success. Return True the first time (R8)."""
        self.run_success_without_note(batch)
        return self.ledger.success(batch.topology, batch.txid)

    def run_success_without_note(self, batch: Batch) -> Batch:
        """Run success without its note, and return the batch. The caller announces the batch, and notes the success."""
        if batch.status is not BatchStatus.COMMITTED:  # read before; a committed batch stays committed
            batch = self.ledger.batch(batch.topology, batch.txid)
        with self.concerning(batch.txid):
            decisions.check_success(batch)
            for stream in self.job.topology.streams.values():
                _tell_spout(stream, batch)
            for aggregate in self.job.topology.aggregates:
                if aggregate.state.files is not None:
                    aggregate.state.files.write(aggregate, self.ledger.upstream)
            self.staging.remove(batch.topology, batch.txid)
        failpoints.hit("success.cleaned")
        return batch

    def succeeded(self, batch: Batch) -> Batch:
        """Run success, and return the batch with its new status."""
        self.success(batch)
        return replace(batch, succeeded=True)


def _tell_spout(stream: Stream, batch: Batch) -> None:
    """Notify a spout of a committed batch. Raise TransientError for errors of its coordinator, except errors of txbatch."""
    with (
        naming_stream(f"{batch.topology}: txid {batch.txid} is committed; success() of stream {stream.name!r}"),
        closing(stream.spout.coordinator()) as spout_coordinator,
    ):
        spout_coordinator.success(batch.txid)
