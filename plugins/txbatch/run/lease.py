"""Keep leases alive (R5, R6).

An attempt at work has a lease in the ledger, and a heartbeat for its driver. A waiting batch has a lease only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

from txbatch.core.batch.heartbeat import Heartbeat
from txbatch.core.batch.staging import AttemptFolder
from txbatch.core.batch.transaction import Assignment, Batch, BatchStatus, Run
from txbatch.core.errors import TxbatchError, UnknownName
from txbatch.core.protocol.ledger import Ledger
from txbatch.core.protocol.ports import Repeat, repeat

log = logging.getLogger(__name__)
_RENEW_SECONDS_MAX = 30.0
# The name of a lease, and the function that renews it.
Renewal = tuple[str, Callable[[], object]]


def attempt_kept_alive(
    ledger: Ledger, assignment: Assignment, folder: AttemptFolder, repeat: Repeat = repeat
) -> AbstractContextManager[None]:
    """Context manager. Renew the attempt's lease, then its heartbeat, until the block ends or a newer attempt exists."""
    return attempts_kept_alive(ledger, [(folder, assignment)], repeat)


def attempts_kept_alive(
    ledger: Ledger, attempts: Sequence[tuple[AttemptFolder, Assignment]], repeat: Repeat = repeat
) -> AbstractContextManager[None]:
    """Context manager. Renew the leases and heartbeats of several attempts, each by itself."""
    return _renewing([_of_attempt(ledger, assignment, folder) for folder, assignment in attempts], ledger, repeat)


def _of_attempt(ledger: Ledger, assignment: Assignment, folder: AttemptFolder) -> Renewal:
    heartbeat = Heartbeat(ledger.lease_seconds)
    folder.write_heartbeat(heartbeat)

    def renew() -> None:
        nonlocal heartbeat
        if not heartbeat.superseded:
            heartbeat = _renewed(ledger, assignment, heartbeat)
            folder.write_heartbeat(heartbeat)

    return f"{assignment.topology} {assignment.attempt}", renew


def batch_kept(ledger: Ledger, batch: Batch, run: Run, repeat: Repeat = repeat) -> AbstractContextManager[None]:
    """Context manager. Renew the lease of an idle batch, to keep other runs from adopting it (R6)."""
    return batches_kept(ledger, [(batch, run)], repeat)


def batches_kept(
    ledger: Ledger, batches: Sequence[tuple[Batch, Run]], repeat: Repeat = repeat
) -> AbstractContextManager[None]:
    """Context manager. Renew the leases of several idle batches. A final batch needs no lease."""
    renewals = [
        (f"{batch.topology} {batch.txid}", partial(ledger.renew_waiting_lease, batch, run)) for batch, run in batches
    ]
    return _renewing(renewals, ledger, repeat)


def _renewing(renewals: Sequence[Renewal], ledger: Ledger, repeat: Repeat) -> AbstractContextManager[None]:
    """Context manager. Renew leases well before they end. After a passing error, try again the next time."""

    def try_to() -> None:
        for name, renew in renewals:
            try:
                renew()
            except (TxbatchError, OSError) as error:
                log.warning("%s: the lease was not renewed: %s", name, error)

    if not renewals:
        return nullcontext()
    return repeat(try_to, seconds=min(ledger.lease_seconds / 4, _RENEW_SECONDS_MAX), name="lease")


def _renewed(ledger: Ledger, assignment: Assignment, heartbeat: Heartbeat) -> Heartbeat:
    if ledger.renew_lease(assignment):
        return replace(heartbeat, beat=heartbeat.beat + 1)
    newest = _newest(ledger, assignment)
    log.warning("%s %s: %s took its place; it can change nothing", assignment.topology, assignment.attempt, newest)
    return replace(heartbeat, superseded=newest)


def _newest(ledger: Ledger, assignment: Assignment) -> str:
    try:
        now = ledger.batch(assignment.topology, assignment.attempt.txid)
    except UnknownName:
        return "the end of its topology, which was dropped,"
    if now.status is BatchStatus.ABORTED:
        return f"the abort of txid {now.txid} ({now.reason}; the next run plans its records anew)"
    return str(now.attempt)
