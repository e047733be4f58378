"""A lease that a task keeps alive while its attempt is emitted, for the ledger and for the attempt's driver (R5)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from txbatch.core.errors import TransientError
from txbatch.core.fence import Fence
from txbatch.core.transaction import Assignment, BatchStatus
from txbatch.postgres.ledger import PostgresLedger
from txbatch.storage.staging import AttemptFolder

log = logging.getLogger(__name__)
_RENEW_SECONDS_MAX = 30.0


@contextmanager
def kept_alive(ledger: PostgresLedger, assignment: Assignment, folder: AttemptFolder) -> Iterator[None]:
    """Meanwhile a thread renews the attempt's lease in the ledger, and then its fence file, until a newer one has begun."""
    fence, over = Fence(ledger.lease_seconds), threading.Event()
    folder.write_fence(fence)
    keeper = threading.Thread(target=_keep, args=(ledger, assignment, folder, fence, over), name="lease", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()


def _keep(
    ledger: PostgresLedger, assignment: Assignment, folder: AttemptFolder, fence: Fence, over: threading.Event
) -> None:
    while not over.wait(min(ledger.lease_seconds / 4, _RENEW_SECONDS_MAX)) and not fence.superseded:
        try:
            fence = _renewed(ledger, assignment, fence)
            folder.write_fence(fence)
        except (TransientError, OSError) as error:
            log.warning("%s %s: the lease was not renewed: %s", assignment.topology, assignment.attempt, error)


def _renewed(ledger: PostgresLedger, assignment: Assignment, fence: Fence) -> Fence:
    if ledger.renew_lease(assignment):
        return replace(fence, beat=fence.beat + 1)
    now = ledger.batch(assignment.topology, assignment.attempt.txid)
    newest = f"txid {now.txid}, which is aborted," if now.status is BatchStatus.ABORTED else str(now.attempt)
    log.warning("%s %s: %s took its place; it can change nothing", assignment.topology, assignment.attempt, newest)
    return replace(fence, superseded=newest)
