"""The way of a run to its committed batch, the same for Airflow's tasks and for `txbatch run` (R6).

A batch that no longer continues what is committed is aborted, and the run plans, emits and commits another one. A batch
that nobody looks after is emitted, committed and succeeded first, or aborted when it has an interval; then comes the run's
own. What another live run looks after is waited for, by the caller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from txbatch.core import coordinator, protocol
from txbatch.core.coordinator import NothingNew
from txbatch.core.errors import BrokenChain, Incomplete, LeaseHeld, StaleAttempt
from txbatch.core.ledger import Committed
from txbatch.core.protocol import Wait
from txbatch.core.transaction import Assignment, Batch, BatchStatus, Run
from txbatch.run.lease import kept
from txbatch.run.steps import Steps
from txbatch.storage.staging import AttemptFolder

log = logging.getLogger(__name__)
Submit = Callable[[AttemptFolder, Assignment], None]


@dataclass(frozen=True, slots=True)
class Finished:
    """The run's batch, committed; `applied` False: it had been before. `adopted` are the txids finished on the way.

    Where nothing was left for a batch of its own it is the last one that the run adopted.
    """

    batch: Batch
    applied: bool
    adopted: tuple[int, ...] = ()


def bring_to_commit(steps: Steps, run: Run, submit: Submit) -> Finished | Wait | NothingNew:
    """Bring the run's batch to its commit; Wait while another live run is in the way, NothingNew when there is no batch.

    What it adopts is finished first. `submit` runs the job on an attempt's folder. Errors are those of the steps, but for
    BrokenChain and LeaseHeld.
    """
    adopted: list[int] = []
    last: Committed | None = (
        None  # it adopted, and has not told the spouts: that is the caller's, should nothing come after it
    )
    while True:
        found = steps.initialize_transaction(run)
        if last is not None:
            if isinstance(found, NothingNew):
                return Finished(last.batch, last.applied, tuple(adopted))
            steps.success(last.batch)
            adopted, last = [*adopted, last.batch.txid], None
        if not isinstance(found, Batch):
            return found
        before = None if found.status.final else _emit_and_take_turn(steps, found, run, submit)
        if isinstance(before, Wait):
            return before
        if before is not None:
            with kept(steps.ledger, found, run):
                if _finish_adopted(steps, before, run, submit):
                    adopted.append(before.txid)
        elif committed := _commit(steps, found, run, submit):
            if not protocol.is_adopted(found, run):
                return Finished(committed.batch, committed.applied, tuple(adopted))
            last = committed


def _emit_and_take_turn(steps: Steps, own: Batch, run: Run, submit: Submit) -> Batch | Wait | None:
    if own.status is BatchStatus.PLANNED:
        try:
            steps.emit_batch(own, run, submit)
        except LeaseHeld:
            return Wait(steps.ledger.batch(own.topology, own.txid))
    return coordinator.take_turn(steps.ledger, own, run)


def _finish_adopted(steps: Steps, batch: Batch, run: Run, submit: Submit) -> bool:
    """Whether it is committed; False: it was aborted, or another run took it over."""
    log.info("%s: nobody looks after txid %s of %s; it is finished first", batch.topology, batch.txid, batch.key)
    try:
        if batch.status is BatchStatus.PLANNED:
            steps.emit_batch(batch, run, submit)
    except LeaseHeld as error:
        log.info("%s", error)
        return False
    if not _commit(steps, batch, run, submit):
        return False
    steps.success(batch)
    return True


def _commit(steps: Steps, batch: Batch, run: Run, submit: Submit) -> Committed | None:
    """None when the batch was aborted as it does not continue what is committed, or is another run's by now."""
    try:
        return _commit_what_is_staged(steps, batch, run, submit)
    except (BrokenChain, LeaseHeld) as error:
        log.info("%s", error)
    except StaleAttempt as error:
        if steps.ledger.batch(batch.topology, batch.txid).lease_run == run.name:
            raise  # a newer try of this very run is at work
        log.info("%s", error)
    return None


def _commit_what_is_staged(steps: Steps, batch: Batch, run: Run, submit: Submit) -> Committed:
    """Of a batch whose staged files are lost or changed meanwhile a new attempt is emitted first, once (R7)."""
    try:
        return steps.commit(batch, run)
    except Incomplete as error:
        log.warning("%s: it is emitted again", error)
        steps.emit_batch(batch, run, submit)
        return steps.commit(batch, run)
