"""What lets one run emit for others of its topology, in the Spark application that it has started anyway.

To the ledger each is an ordinary attempt of its own run. While an application is at work others wait for it, and start
none: who may is decided by a lock that ends with its process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from txbatch.core.protocol import waited_for
from txbatch.core.transaction import Batch, BatchStatus, Run
from txbatch.launch.application import Application
from txbatch.postgres import run_lock
from txbatch.postgres.ledger import PostgresLedger
from txbatch.run.steps import Steps

log = logging.getLogger(__name__)
_NAME = "emit for all"  # no run is called so: theirs begin with whose they are


@contextmanager
def alone(ledger: PostgresLedger, topology: str) -> Iterator[bool]:
    """Meanwhile this process is the one that emits for all; yields False when another is."""
    with run_lock.hold(ledger.engine, topology, _NAME) as held:
        yield held


def somebody_emits(ledger: PostgresLedger, topology: str) -> bool:
    """Whether a process emits for all now."""
    return run_lock.held(ledger.engine, topology, _NAME)


def left_to_others(batch: Batch, run: Run, *, first_try: bool) -> bool:
    """Whether the run leaves its batch to the application of another that is at work.

    A first try does so even where an attempt was made: it may be under way, and a second one would fence it off. A task
    that was retried or cleared leaves only what nobody has tried.
    """
    return batch.lease_run == run.name and (first_try or not batch.fence)


def emit_for_others(steps: Steps, run: Run, spark: Application) -> None:
    """Emit, one after the other, what other living runs have planned and nobody has tried yet; max_pending at most.

    What fails is left to its own run.
    """
    for _ in range(steps.job.topology.max_pending):
        try:
            batch = next((each for each in _pending(steps, run) if _waits(each, run)), None)
            if batch is None:
                return
            log.info("%s: emits txid %s for %s", batch.topology, batch.txid, batch.lease_run)
            steps.emit_batch(batch, Run(batch.lease_run or ""), spark.emit)
        except Exception as error:
            if spark.killed:
                raise
            log.warning("%s; it is left to its own run", error)


def _pending(steps: Steps, run: Run) -> tuple[Batch, ...]:
    return steps.ledger.head(steps.job.topology.name, run).pending


def _waits(batch: Batch, run: Run) -> bool:
    return batch.status is BatchStatus.PLANNED and not batch.fence and waited_for(batch, run)
