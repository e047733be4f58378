"""Plans several batches of a job ahead and emits them by one job (`core.fused`); each is committed by its own run, as ever."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from txbatch import failpoints
from txbatch.core import fused
from txbatch.core.application import Application
from txbatch.core.errors import TransientError, TxbatchError
from txbatch.core.staging import AttemptFolder
from txbatch.core.transaction import Assignment, Batch, BatchStatus, Run
from txbatch.run.lease import attempts_kept_alive
from txbatch.run.steps import Steps

log = logging.getLogger(__name__)
Planned = tuple[Batch, Run]


def plan_ahead(steps: Steps, runs: Sequence[Run]) -> list[Planned]:
    """Find or plan the batches of these runs at once, and return those of the first, up to the bounds of one job.

    The run behind them has none. Why that is so, it finds out by itself: nothing is new, another run is in the way, or it raises.
    """
    return list(zip(steps.plan_many(runs), runs, strict=False))


def emit_ahead(steps: Steps, application: Application, planned: Sequence[Planned]) -> None:
    """Emit by one job those batches that nobody has emitted yet. What fails, or has a newer attempt, is left to its own run."""
    if fused.why_not(steps.job.topology) is not None:
        return
    new = [each for each in planned if each[0].status is BatchStatus.PLANNED]
    topology, first = steps.job.topology, new[:1]
    together = first + [each for each in new[1:] if fused.go_together(topology, first[0][0].plan, each[0].plan)]
    if len(together) < 2:
        return
    attempts = list(_started(steps, together))
    if not attempts:
        return
    log.info("%s: emitting %d batches by one job", topology.name, len(attempts))
    failure: TxbatchError | None = None
    with attempts_kept_alive(steps.ledger, attempts, steps.repeat):
        try:
            application.emit_fused(attempts)
        except TxbatchError as error:
            failure = error
    for folder, assignment in attempts:
        with _left_to_its_own_run():
            with steps.failure_told(folder, assignment):
                _take(steps, folder, assignment, failure)
            failpoints.hit("emit.recorded")


def _started(steps: Steps, planned: Sequence[Planned]) -> Iterator[tuple[AttemptFolder, Assignment]]:
    """Begin an attempt of each batch, and yield those that may be emitted."""
    code = steps.code_now()
    for batch, run in planned:
        with _left_to_its_own_run():
            folder, assignment = steps.start_attempt(batch, run, code)
            with steps.failure_told(folder, assignment):
                steps.assign(folder, assignment)
            yield folder, assignment


def _take(steps: Steps, folder: AttemptFolder, assignment: Assignment, failure: TxbatchError | None) -> None:
    """Give the ledger what an attempt staged; raise what the job failed with where it did not get that far."""
    if not folder.said_something() or folder.read_error() is not None:
        raise failure or TransientError(f"{assignment.topology} {assignment.attempt}: it was not emitted with others")
    steps.record_manifest(folder, assignment)


@contextmanager
def _left_to_its_own_run() -> Iterator[None]:
    """Context manager. Log an error of ours, and go on."""
    try:
        yield
    except TxbatchError as error:
        log.warning("%s; it is left to its own run", error)
