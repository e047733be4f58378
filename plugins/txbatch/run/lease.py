"""Leases that a task keeps alive: of the attempt it emits, for the ledger and the driver, and of a batch that waits (R5, R6)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from txbatch.core.errors import TxbatchError, UnknownName
from txbatch.core.fence import Fence
from txbatch.core.transaction import Assignment, Batch, BatchStatus, Run
from txbatch.postgres.ledger import PostgresLedger
from txbatch.storage.staging import AttemptFolder

log = logging.getLogger(__name__)
_RENEW_SECONDS_MAX = 30.0


@contextmanager
def kept_alive(ledger: PostgresLedger, assignment: Assignment, folder: AttemptFolder) -> Iterator[None]:
    """Meanwhile the attempt's lease in the ledger is renewed, and then its fence file, until a newer one has begun."""
    fence = Fence(ledger.lease_seconds)
    folder.write_fence(fence)

    def renew() -> None:
        nonlocal fence
        if not fence.superseded:
            fence = _renewed(ledger, assignment, fence)
            folder.write_fence(fence)

    with _repeated(renew, ledger, f"{assignment.topology} {assignment.attempt}"):
        yield


@contextmanager
def kept(ledger: PostgresLedger, batch: Batch, run: Run) -> Iterator[None]:
    """Meanwhile nobody takes the run's batch, at which nothing is being done, for abandoned (R6)."""
    with _repeated(lambda: ledger.keep_lease(batch, run), ledger, f"{batch.topology} {batch.txid}"):
        yield


@contextmanager
def _repeated(renew: Callable[[], object], ledger: PostgresLedger, name: str) -> Iterator[None]:
    """Meanwhile a thread renews, well before the lease is over; what can be tried again is tried again the next time."""
    over = threading.Event()

    def keep() -> None:
        while not over.wait(min(ledger.lease_seconds / 4, _RENEW_SECONDS_MAX)):
            try:
                renew()
            except (TxbatchError, OSError) as error:
                log.warning("%s: the lease was not renewed: %s", name, error)

    keeper = threading.Thread(target=keep, name="lease", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()


def _renewed(ledger: PostgresLedger, assignment: Assignment, fence: Fence) -> Fence:
    if ledger.renew_lease(assignment):
        return replace(fence, beat=fence.beat + 1)
    newest = _newest(ledger, assignment)
    log.warning("%s %s: %s took its place; it can change nothing", assignment.topology, assignment.attempt, newest)
    return replace(fence, superseded=newest)


def _newest(ledger: PostgresLedger, assignment: Assignment) -> str:
    try:
        now = ledger.batch(assignment.topology, assignment.attempt.txid)
    except UnknownName:
        return "the end of its topology, which was dropped,"
    return f"txid {now.txid}, which is aborted," if now.status is BatchStatus.ABORTED else str(now.attempt)
