"""The fence (R5): only the newest attempt may change something; and when the next attempt may begin."""

from __future__ import annotations

from txbatch.core.batch.transaction import Batch, BatchStatus, Run, TransactionAttempt
from txbatch.core.errors import AlreadyCommitted, BatchAborted, LeaseHeld, StaleAttempt


def held_by_another(batch: Batch, run: Run) -> bool:
    """True if another live run looks after an open batch: this run waits for the batch (R6)."""
    return not batch.status.final and batch.lease_live and batch.lease_run != run.name


def check_attempt(batch: Batch, run: Run) -> None:
    """Refuse an attempt if the run may not start one now (R5)."""
    if batch.status is BatchStatus.COMMITTED:
        raise AlreadyCommitted(f"{batch.topology}: already committed as txid {batch.txid}")
    if batch.status is BatchStatus.ABORTED:
        raise BatchAborted(f"{batch.topology}: txid {batch.txid} was aborted; run initialize_transaction again")
    if held_by_another(batch, run):
        raise LeaseHeld(
            f"{batch.topology}: txid {batch.txid} is being worked on by {batch.lease_run}; wait until it ends"
        )


def check_fence(batch: Batch, attempt: TransactionAttempt, token: str | None) -> None:
    """Refuse an attempt that is not the newest, and each attempt of a final batch (R5)."""
    if batch.fence != attempt.attempt_id or batch.token != token:
        raise StaleAttempt(
            f"{batch.topology}: attempt {attempt} is not the newest of txid {batch.txid}, which is {batch.status} "
            f"with attempt {batch.attempt}; nothing was changed"
        )
    if batch.status.final:
        raise StaleAttempt(
            f"{batch.topology}: attempt {attempt} comes too late for txid {batch.txid}, which is {batch.status}; nothing was "
            "changed"
        )
