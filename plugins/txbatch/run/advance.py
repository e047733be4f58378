"""The way of a run to its committed batch, the same for Airflow's tasks and for `txbatch run` (R6).

If a batch no longer continues the committed batches, the run aborts the batch, then plans, emits and commits a new batch.
An abandoned batch goes before the run's own batch: the run emits, commits and succeeds the abandoned batch, or aborts a batch
that the run may not adopt (`decisions.may_adopt`). If another live run looks after a batch in the way, the caller waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import assert_never

from txbatch.core.batch.transaction import Batch, BatchStatus, Run
from txbatch.core.errors import BrokenChain, Incomplete, LeaseHeld, NotEmitted, StaleAttempt, TxbatchError
from txbatch.core.protocol import coordinator, decisions
from txbatch.core.protocol.coordinator import FinishFirst, NothingNew, Turn, Yours
from txbatch.core.protocol.decisions import Wait
from txbatch.core.protocol.ledger import Committed
from txbatch.core.protocol.ports import Submit
from txbatch.run.lease import batch_kept
from txbatch.run.steps import Steps

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Finished:
    """The run's committed batch. `adopted` has the txids finished on the way.

    `applied` is False if the batch was committed before, also by a try of the same run that lost the answer to COMMIT. If
    nothing was left for a batch of the run's own, `batch` is the last batch adopted by the run.
    """

    batch: Batch
    applied: bool
    adopted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Nothing was committed: the batch was aborted, belongs to another run now, or is being committed by an older try."""

    why: str


@dataclass(frozen=True, slots=True)
class Advance:
    """A run on its way to its commit. `submit` runs the job on an attempt's folder.

    `succeed` runs success of an adopted batch. Without `succeed`, success is run and noted at once.
    """

    steps: Steps
    run: Run
    submit: Submit
    succeed: Callable[[Batch], object] | None = None

    def to_commit(self) -> Finished | Wait | NothingNew:
        """Bring the run's batch to its commit, after all batches adopted on the way.

        Return Wait while another live run is in the way, and NothingNew if there is no batch. Raise the errors of the
        steps, except BrokenChain and LeaseHeld; StaleAttempt and NotEmitted only if nothing is left for this run to do.
        """
        self.steps.register()
        adopted: tuple[int, ...] = ()
        last: Committed | None = None  # an adopted batch; if no batch follows, the caller runs its success
        while True:
            found = self.steps.find_or_plan(self.run)
            if last is not None:
                if isinstance(found, NothingNew):
                    return Finished(last.batch, last.applied, adopted)
                self._succeed(last.batch)
                adopted, last = (*adopted, last.batch.txid), None
            if not isinstance(found, Batch):
                return found
            match self._emit_and_take_turn(found):
                case LookAgain():
                    continue
                case Wait() as wait:
                    return wait
                case FinishFirst(lowest):
                    adopted += self._finish_first(lowest, found)
                case Yours():
                    committed = self._commit(found)
                    if isinstance(committed, Committed):
                        if not decisions.belongs_to_another(found, self.run):
                            return Finished(committed.batch, committed.applied, adopted)
                        last = committed
                case turn:
                    assert_never(turn)

    def _emit_and_take_turn(self, own: Batch) -> Turn | LookAgain:
        if own.status.final:
            return Yours()
        if own.status is BatchStatus.PLANNED:
            emitted = self._emit(own)
            if not isinstance(emitted, Batch):
                return emitted
        return coordinator.take_turn(self.steps.ledger, own, self.run)

    def _emit(self, batch: Batch) -> Batch | Wait | LookAgain:
        """Emit a batch. Return LookAgain if another run has a newer attempt: any error of the older attempt is then ignored."""
        try:
            return self.steps.emit_or_wait(batch, self.run, self.submit)
        except TxbatchError as error:
            if not self._was_taken(batch):
                raise
            log.info("%s", error)
            self.steps.register()  # a rebuild may have swapped states: refuse the old definition before the next emission
            return LookAgain(str(error))

    def _was_taken(self, batch: Batch) -> bool:
        """True if another run has a newer attempt, the batch is aborted and the run goes on, or a rebuild has swapped states."""
        with suppress(TxbatchError):
            now = self.steps.ledger.batch(batch.topology, batch.txid)
            newer = now.fence > batch.fence + 1  # perhaps this run's own, as emit_batch reads again: the lease tells
            return self._is_free(now) or self._is_swapped(now) or (now.lease_run != self.run.name and newer)
        return False

    def _is_free(self, now: Batch) -> bool:
        """True if a batch is aborted and the run goes on: to plan anew, or without the batch of another run."""
        return now.status is BatchStatus.ABORTED and (now.replanned or now.key != self.run.key)

    def _is_swapped(self, now: Batch) -> bool:
        """True if a rebuild has swapped states since the newest attempt began: the batch is open, and is emitted again (R23)."""
        return not now.status.final and now.fence > 0 and self.steps.ledger.newest_attempt(now)[0].token != now.token

    def _finish_first(self, batch: Batch, own: Batch) -> tuple[int, ...]:
        """Emit, commit and succeed an adopted batch, and keep the lease of the run's own batch meanwhile.

        Return the adopted txid, or an empty tuple to look again.
        """
        log.info("%s: nobody looks after txid %s of %s; it is finished first", batch.topology, batch.txid, batch.key)
        with batch_kept(self.steps.ledger, own, self.run, self.steps.repeat):
            if batch.status is BatchStatus.PLANNED and not isinstance(self._emit(batch), Batch):
                return ()
            if isinstance(self._commit(batch), LookAgain):
                return ()
            self._succeed(batch)
        return (batch.txid,)

    def _succeed(self, adopted: Batch) -> None:
        (self.succeed or self.steps.success)(adopted)

    def _commit(self, batch: Batch) -> Committed | LookAgain:
        try:
            return self._commit_what_is_staged(batch)
        except (BrokenChain, LeaseHeld) as error:
            why = str(error)
        except (NotEmitted, StaleAttempt) as error:
            if self._ends_here(batch):
                raise
            why = str(error)
        log.info("%s", why)
        self.steps.register()
        return LookAgain(why)

    def _ends_here(self, batch: Batch) -> bool:
        """True if a stale attempt leaves this run nothing to do: a newer try of the run is at work, or the run's batch given up.

        Neither a run that aborts a batch to plan anew nor a swap of states gives up anything.
        """
        now = self.steps.ledger.batch(batch.topology, batch.txid)
        goes_on = now.status is BatchStatus.COMMITTED or self._is_free(now) or self._is_swapped(now)
        return now.lease_run == self.run.name and not goes_on

    def _commit_what_is_staged(self, batch: Batch) -> Committed:
        """Commit a batch. If staged files are lost or changed, emit a new attempt first, once (R7)."""
        try:
            return self.steps.commit(batch, self.run)
        except Incomplete as error:
            log.warning("%s: it is emitted again", error)
            self.steps.emit_batch(batch, self.run, self.submit)
            return self.steps.commit(batch, self.run)
