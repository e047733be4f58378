"""Plan several batches of a job ahead and emit all by one job (`core.protocol.bulk`). Each run still commits its own batch."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from txbatch import failpoints
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.staging import AttemptFolder
from txbatch.core.batch.transaction import Assignment, Batch, BatchStatus, Run
from txbatch.core.errors import EmissionFailed, TxbatchError
from txbatch.core.protocol import bulk
from txbatch.core.protocol.ports import Application
from txbatch.core.text import how_many, list_txids
from txbatch.run.lease import attempts_kept_alive
from txbatch.run.steps import Recorded, Steps

log = logging.getLogger(__name__)
Planned = tuple[Batch, Run]


def plan_ahead(steps: Steps, runs: Sequence[Run], behind: Collection[int], length: int) -> list[Planned]:
    """Find or plan the batches of these runs at once. Return a train: the batches of the first runs, with the runs.

    The run after the train has no batch, and finds the reason later by itself: nothing is new, another run is in the way,
    or an error is raised. Batches with the txids `behind` block no run: the same call commits them.
    """
    return list(zip(steps.find_or_plan_many(runs, behind, length), runs, strict=False)) if runs else []


class Emission:
    """Emits new batches by one job. `planned` has all batches with their current status, also batches emitted before.

    `recorded` has assignment and manifest of each batch recorded in the ledger, by txid. If a batch fails or has a newer
    attempt, its own run finishes the batch.
    """

    def __init__(self, steps: Steps, application: Application, planned: Sequence[Planned]) -> None:
        self.steps, self.application, self.planned = steps, application, list(planned)
        self.attempts = list(_started(steps, application, _together(steps, planned)))
        self.recorded = dict[int, Recorded]()
        self._failure: TxbatchError | None = None
        self._at_work = False

    def begin(self) -> None:
        """Start the job, and return while the job works."""
        if not self.attempts:
            return
        txids = [assignment.attempt.txid for _, assignment in self.attempts]
        name, many = self.steps.job.topology.name, how_many(len(txids), "batch", "batches")
        log.info("%s: emitting %s by one job, %s", name, many, list_txids(txids))
        self._at_work = True
        try:
            self.application.begin(self.attempts)
        except TxbatchError as error:
            self._failure = error

    def end(self) -> None:
        """Wait for the job if the job is at work, and record its manifests in the ledger."""
        if not self._at_work:
            return
        self._at_work = False
        try:
            if self._failure is None:
                self.application.wait()
        except TxbatchError as error:
            self._failure = error
        emitted = dict[int, Batch]()
        for assignment, batch, manifest in self._record_all():
            emitted[batch.txid], self.recorded[batch.txid] = batch, (assignment, manifest)
            failpoints.hit("emit.recorded")
        self.planned = [(emitted.get(batch.txid, batch), run) for batch, run in self.planned]

    def _record_all(self) -> Iterator[tuple[Assignment, Batch, Manifest]]:
        """Record all manifests in the ledger at once. If any manifest is rejected, record each by itself."""
        staged = []
        for folder, assignment in self.attempts:
            with _leave_to_its_own_run(), self.steps.failure_told(folder, assignment):
                _check_staged(folder, assignment, self._failure)
                staged.append((folder, assignment))
        try:
            taken = self.steps.record_manifests(staged)
        except TxbatchError:
            yield from self._recorded_one_by_one(staged)
        else:
            for (_, assignment), (batch, manifest) in zip(staged, taken, strict=True):
                yield assignment, batch, manifest

    def _recorded_one_by_one(
        self, staged: Sequence[tuple[AttemptFolder, Assignment]]
    ) -> Iterator[tuple[Assignment, Batch, Manifest]]:
        for folder, assignment in staged:
            with _leave_to_its_own_run():
                with self.steps.failure_told(folder, assignment):
                    batch, manifest = self.steps.record_manifest(folder, assignment)
                yield assignment, batch, manifest


@contextmanager
def emitting(steps: Steps, application: Application, planned: Sequence[Planned]) -> Iterator[Emission]:
    """Context manager. Emit batches by one job beside the block. At the end of the block, wait for the job.

    If the block raises a TxbatchError, wait for the job too. After any other error, do not wait: the application ends, just
    like when somebody stops the call.
    """
    emission = Emission(steps, application, planned)
    with attempts_kept_alive(steps.ledger, emission.attempts, steps.repeat):
        emission.begin()
        try:
            yield emission
        except TxbatchError:
            emission.end()
            raise
        emission.end()


def emit_ahead(steps: Steps, application: Application, planned: Sequence[Planned]) -> None:
    """Emit all new batches by one job. If a batch fails or has a newer attempt, its own run finishes the batch."""
    with emitting(steps, application, planned):
        pass


def _together(steps: Steps, planned: Sequence[Planned]) -> list[Planned]:
    """Return the batches to emit by one job: none, or at least two."""
    topology = steps.job.topology
    new = [each for each in planned if each[0].status is BatchStatus.PLANNED]
    if len(new) < 2 or bulk.reason_against(topology) is not None:
        return []
    first, *others = new
    found = [first, *(each for each in others if bulk.go_together(topology, first[0].plan, each[0].plan))]
    return found if len(found) > 1 else []


def _started(
    steps: Steps, application: Application, planned: Sequence[Planned]
) -> Iterator[tuple[AttemptFolder, Assignment]]:
    """Start the application, begin an attempt of each batch meanwhile, and yield the attempts to emit."""
    if not planned:
        return
    with _leave_to_its_own_run():
        code, loaded = steps.code_now()
        application.start([batch.plan for batch, _ in planned], code)
        looked = False
        for batch, run in planned:
            with _leave_to_its_own_run():
                folder, assignment = steps.start_attempt(batch, run, code, loaded, looks=not looked)
                looked = True
                log.debug("%s %s: emitting into %s", batch.topology, assignment.attempt, folder.uri)
                with steps.failure_told(folder, assignment):
                    steps.assign(folder, assignment)
                yield folder, assignment


def _check_staged(folder: AttemptFolder, assignment: Assignment, failure: TxbatchError | None) -> None:
    """If an attempt wrote no manifest, raise the failure of the job, or EmissionFailed."""
    if not folder.said_something() or folder.read_error() is not None:
        raise failure or EmissionFailed(f"{assignment.topology} {assignment.attempt}: it was not emitted with others")


@contextmanager
def _leave_to_its_own_run() -> Iterator[None]:
    """Context manager. Log a TxbatchError, and go on."""
    try:
        yield
    except TxbatchError as error:
        log.warning("%s; it is left to its own run", error)
