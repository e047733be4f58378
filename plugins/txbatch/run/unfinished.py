"""Unfinished batches of earlier calls. The next call finishes them first, and emits batches of the same call by one job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from txbatch.core.batch.transaction import Assignment, Batch, BatchStatus, Run, TransactionAttempt
from txbatch.core.errors import (
    BadRecord,
    DatabaseRefused,
    EmissionFailed,
    FunctionFailed,
    LeaseHeld,
    NotItsTurn,
    OutcomeUnknown,
    PartitionUnreadable,
    QuarantineFull,
    SparkFailed,
    SpoutFailed,
    StaleAttempt,
    TaskEnded,
    TerminalError,
    TxbatchError,
    Unavailable,
)
from txbatch.core.protocol import bulk
from txbatch.core.protocol.bulk_size import JobSize
from txbatch.core.protocol.ledger import Ledger
from txbatch.core.protocol.lookback import is_by_look_back
from txbatch.core.protocol.ports import Application
from txbatch.core.protocol.questions import Unfinished
from txbatch.core.text import one_line
from txbatch.run.bulk import Planned, emit_ahead
from txbatch.run.run_names import RUN_PREFIX, call_of, hold
from txbatch.run.steps import Steps

log = logging.getLogger(__name__)
# Errors that say nothing of the batch: another run is at work, the ledger is away, or the task was ended.
NOT_OF_EMISSION = LeaseHeld, NotItsTurn, StaleAttempt, Unavailable, DatabaseRefused, OutcomeUnknown, TaskEnded


@dataclass(frozen=True, slots=True)
class UnfinishedBatches:
    """Finishes the batches of earlier calls. `finish` brings the batch of a run through all steps, and returns the
    finished batches.
    """

    steps: Steps
    application: Application
    finish: Callable[[Run], list[Batch]]

    def finished(self) -> Iterator[Batch]:
        """Yield each batch after its commit, the oldest first. Raise LeaseHeld while another process works on a batch."""
        name, txid, tried = self.steps.job.topology.name, 0, set[str]()
        self.steps.register()
        while found := self.steps.ledger.oldest_unfinished(name, RUN_PREFIX, above=txid):
            txid = found.txid
            with hold(self.steps.locks, name, found.run) as run:
                log.info("%s: finishing what %s began", name, one_line(run.name))
                if (call := call_of(run.name)) not in tried:
                    tried.add(call)
                    emit_ahead(self.steps, self.application, self._planned_by(found))
                batch = self.steps.ledger.batch(name, txid)
                committed = batch.status is BatchStatus.COMMITTED
                done = self._succeeded_late(batch) if committed else self._finish_begun(batch, run)
            yield from done

    def _planned_by(self, found: Unfinished | None) -> list[Planned]:
        """Return the planned batches of the call of an unfinished batch, from the unfinished batch on, up to the bounds
        of one job.
        """
        name, ledger, planned = self.steps.job.topology.name, self.steps.ledger, list[Planned]()
        call, weight = found and call_of(found.run.name), JobSize(self.steps.job.topology)
        while found and call_of(found.run.name) == call and len(planned) < bulk.BATCHES_MAX and not weight.full:
            batch = ledger.batch(name, found.txid)
            if batch.status is BatchStatus.PLANNED:
                planned.append((batch, found.run))
                weight.add(batch.plan)
            found = ledger.oldest_unfinished(name, RUN_PREFIX, above=found.txid)
        return planned

    def _finish_begun(self, batch: Batch, run: Run) -> list[Batch]:
        """Finish a batch of an earlier call. Abort a restate that fails: a restate holds no records, and blocks no
        other batch.
        """
        try:
            return self.finish(run)
        except TxbatchError as error:
            if run.restate is None or not self._is_given_up(batch, error):
                raise
            log.warning("%s: txid %s is aborted: %s", batch.topology, batch.txid, error)
            give_up(self.steps.ledger, batch, error)
            return []

    def _is_given_up(self, batch: Batch, error: TxbatchError) -> bool:
        """True if a restate is to be aborted after an error; by a look back, after any error of the emission."""
        if not is_by_look_back(batch):
            return isinstance(error, TerminalError | PartitionUnreadable) and not isinstance(error, StaleAttempt)
        committed = self.steps.ledger.batch(batch.topology, batch.txid).status is BatchStatus.COMMITTED
        return not isinstance(error, NOT_OF_EMISSION) and not committed

    def _succeeded_late(self, batch: Batch) -> list[Batch]:
        """Succeed a batch committed by an earlier run. If success fails again, return an empty list: no other batch is
        blocked.
        """
        try:
            return [self.steps.succeeded(batch)]
        except TxbatchError as error:
            log.warning("%s", error)
            return []


def give_up(ledger: Ledger, batch: Batch, error: TxbatchError) -> None:
    """Abort a failed batch. Raise StaleAttempt if a newer try is at work: the try that failed has no say (R5)."""
    now, failed = ledger.batch(batch.topology, batch.txid), error.about.get("attempt")
    attempt: Assignment | None = None
    if now.status is BatchStatus.ABORTED:
        return
    if now.fence:
        attempt, _ = ledger.newest_attempt(now)
        if isinstance(failed, TransactionAttempt) and failed.txid == now.txid:
            attempt = replace(attempt, attempt=failed)
    ledger.abort(now.topology, now.txid, reason_of(error), attempt)


def reason_of(error: TxbatchError) -> str:
    """Return why a batch is aborted. All readers see the reason, so the reason has no text that may show a record."""
    if isinstance(error, BadRecord | QuarantineFull):
        return "a record of the batch cannot be counted; report.attempts has the error"
    if isinstance(error, EmissionFailed | FunctionFailed | SparkFailed | SpoutFailed):
        return "the batch could not be emitted; the log and report.attempts have the error"
    return str(error)
