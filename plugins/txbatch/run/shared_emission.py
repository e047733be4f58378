"""One run emits for others of its topology too, in the Spark application that it has started anyway.

To the ledger each is an ordinary attempt of its own run. While an application is at work others wait for it, and start
none: who may is decided by a lock that ends with its process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import assert_never

from txbatch.core.batch.transaction import Batch, BatchStatus, Run
from txbatch.core.protocol.decisions import Wait
from txbatch.core.protocol.fence import waited_for
from txbatch.core.protocol.ports import Application, RunLocks
from txbatch.core.text import one_line
from txbatch.run.bulk import Planned, emit_ahead
from txbatch.run.steps import Steps

log = logging.getLogger(__name__)
EMIT_FOR_ALL = "emit for all"  # no run is called so: theirs begin with whose they are


@dataclass(frozen=True, slots=True)
class Emit:
    """The run emits its batch itself; `for_others` too, as no other process does."""

    batch: Batch
    for_others: bool


@dataclass(frozen=True, slots=True)
class WaitForOthers:
    """The application of another run is at work, and is going to emit this run's batch."""

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
    """Decide who emits the run's batch; `alone` is the only process that emits for others.

    A first try leaves its batch to the application that is at work even where an attempt was made: it may be under way,
    and a second one would fence it off. A task that was retried or cleared leaves only what nobody has tried.
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
    """Emit the run's batch, and for others if nobody else does; or say for whom the run waits.

    `start` gives the application, which ends with its block; it is called only when this run emits.
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
    """Emit the run's batch by one job with what others wait for; by itself where that cannot be, or fails."""
    own = decision.batch
    if decision.for_others and own.status is BatchStatus.PLANNED:
        emit_ahead(steps, application, [(own, run), *_waiting(steps, run)])
        now = steps.ledger.batch(own.topology, own.txid)
        if now.status is BatchStatus.EMITTED and now.lease_run == run.name:
            return now
    return steps.emit_or_wait(own, run, application.emit)


def emit_for_others(steps: Steps, run: Run, application: Application) -> None:
    """Emit what other living runs have planned and nobody has tried yet: by one job where that goes, else one after the other.

    What comes meanwhile too, max_pending at most. What fails is left to its own run.
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
    """Return what other living runs have planned and nobody has tried yet."""
    pending = steps.ledger.head(steps.job.topology.name, run).pending
    return [(each, Run(each.lease_run or "")) for each in pending if _waits(each, run)]


def _waits(batch: Batch, run: Run) -> bool:
    return batch.status is BatchStatus.PLANNED and not batch.fence and waited_for(batch, run)
