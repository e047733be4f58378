"""A run also emits batches of other runs of its topology, in its own Spark application.

To the ledger each is an ordinary attempt of the batch's own run. While an application is at work, other runs start no
application, and wait. A lock decides which process emits for all. The lock ends with the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import assert_never

from txbatch.core.batch.transaction import Batch, BatchStatus, Run
from txbatch.core.protocol.decisions import Wait
from txbatch.core.protocol.fence import held_by_another
from txbatch.core.protocol.ports import Application, RunLocks
from txbatch.core.text import one_line
from txbatch.run.bulk import Planned, emit_ahead
from txbatch.run.steps import Steps

log = logging.getLogger(__name__)
EMIT_FOR_ALL = "emit for all"  # no name of a run: names of runs begin with their maker


@dataclass(frozen=True, slots=True)
class Emit:
    """The run emits its batch itself. If `for_others`, the run also emits for others, because no other process does."""

    batch: Batch
    for_others: bool


@dataclass(frozen=True, slots=True)
class WaitForOthers:
    """The application of another run is at work, and will emit this run's batch."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Taken:
    """Another run has emitted this run's batch for it."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Emitted:
    """The run has emitted its batch itself."""

    batch: Batch


Emission = Emit | WaitForOthers | Taken


def somebody_emits(locks: RunLocks, topology: str) -> bool:
    """True while a process emits for all runs of the topology."""
    return locks.held(topology, EMIT_FOR_ALL)


def decide(batch: Batch, run: Run, *, alone: bool, first_try: bool) -> Emission:
    """Decide which run emits the run's batch. If `alone`, no other process emits for others.

    On its first try, a task leaves its batch to the working application, even after an attempt: the attempt may be under
    way, and a second attempt would fence off the first. A retried or cleared task only leaves a batch without any attempt.
    """
    own = batch.lease_run == run.name
    if own and batch.status is BatchStatus.EMITTED and first_try:
        return Taken(batch)
    if own and not alone and (first_try or not batch.fence):
        return WaitForOthers(batch)
    return Emit(batch, for_others=alone)


def emit(
    steps: Steps, batch: Batch, run: Run, start: Callable[[], AbstractContextManager[Application]], *, first_try: bool
) -> Emitted | Taken | WaitForOthers | Wait:
    """Emit the run's batch, and also for others if no other process does; or return the reason to wait.

    `start` is called only if this run emits. The application ends with its block.
    """
    with steps.locks.hold(batch.topology, EMIT_FOR_ALL) as alone:
        decision = decide(steps.ledger.batch(batch.topology, batch.txid), run, alone=alone, first_try=first_try)
        match decision:
            case Taken() | WaitForOthers():
                return decision
            case Emit():
                with start() as application:
                    emitted = _emit_own(steps, decision, run, application)
                    if isinstance(emitted, Batch) and decision.for_others:
                        emit_for_others(steps, run, application)
                return Emitted(emitted) if isinstance(emitted, Batch) else emitted
            case _:
                assert_never(decision)


def _emit_own(steps: Steps, decision: Emit, run: Run, application: Application) -> Batch | Wait:
    """Emit the run's batch by one job together with waiting batches of others. If impossible, or after a failure, emit
    the batch by itself.
    """
    own = decision.batch
    if decision.for_others and own.status is BatchStatus.PLANNED:
        emit_ahead(steps, application, [(own, run), *_waiting(steps, run)])
        now = steps.ledger.batch(own.topology, own.txid)
        if now.status is BatchStatus.EMITTED and now.lease_run == run.name:
            return now
    return steps.emit_or_wait(own, run, application.emit)


def emit_for_others(steps: Steps, run: Run, application: Application) -> None:
    """Emit the untried planned batches of other live runs: by one job if possible, and the rest one after the other.

    Batches planned meanwhile are emitted too, at most max_pending. If a batch fails, its own run finishes the batch.
    """
    emit_ahead(steps, application, _waiting(steps, run))
    for _ in range(steps.job.topology.max_pending):
        try:
            if not (waiting := _waiting(steps, run)):
                return
            batch, its_run = waiting[0]
            log.info("%s: emits txid %s for %s", batch.topology, batch.txid, one_line(its_run.name))
            steps.emit_batch(batch, its_run, application.emit)
        except Exception as error:
            if application.killed:
                raise
            log.warning("%s; it is left to its own run", error)


def _waiting(steps: Steps, run: Run) -> list[Planned]:
    """Return the untried planned batches of other live runs."""
    pending = steps.ledger.head(steps.job.topology.name, run).pending
    return [(each, Run(each.lease_run or "")) for each in pending if _waits(each, run)]


def _waits(batch: Batch, run: Run) -> bool:
    return batch.status is BatchStatus.PLANNED and not batch.fence and held_by_another(batch, run)
