"""`txbatch rebuild`: count every batch of a topology again by the job as it is now, and swap when all are counted (R23).

Each batch is emitted beside the ledger, one after the other in one application, and counted in a transaction of its own. A call
that was killed is called again, and goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import assert_never

from txbatch.core import planning, restate
from txbatch.core.errors import LeaseHeld, RecordsGone, TerminalError, Unavailable
from txbatch.core.ledger import Version
from txbatch.core.plan import BatchPlan
from txbatch.core.rebuild import Behind, Rebuild, Rebuilds, Rebuilt, Swapped, Watched, check_same
from txbatch.core.run_locks import REBUILD
from txbatch.core.transaction import Batch, Restate, Run
from txbatch.core.verify import EmitAgain, Unverifiable
from txbatch.run.steps import Steps

log = logging.getLogger(__name__)
# How long the swap is tried again while others read the old generation, and the pause between two tries: shorter than a report.
PATIENCE_SECONDS = 120.0
PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Rebuilder:
    """Rebuilds the topology of a job, once: what it emits is removed when `run` ends, and its application ended."""

    steps: Steps
    rebuilds: Rebuilds
    emitter: EmitAgain
    pause: Callable[[float], None] = time.sleep

    def run(self, why: str | None, by: str | None = None) -> Rebuilt:
        """Begin a rebuild, or go on with the one that runs, up to its swap.

        A call that was cut off after the swap, and comes again, finds that done, and counts nothing. Unavailable names who reads
        the old generation for too long: called again, it goes on there. TerminalError names the batch that the job cannot count:
        the old generation goes on.
        """
        job = self.steps.job
        with self.steps.locks.hold(job.topology.name, REBUILD) as held:
            if not held:
                raise LeaseHeld(f"{job.topology.name}: another process rebuilds it; see report.rebuilds")
            if (done := self.rebuilds.done(job.topology.name, job.code, why)) is not None:
                return done
            with closing(self.emitter):  # while the lock is held: another's staged files stay
                rebuild = self.rebuilds.begin(job.topology, job.name, job.code, why, by)
                log.info("%s: %s", rebuild, self.rebuilds.progress(rebuild))
                return Rebuilt(rebuild, self._to_swap(rebuild).txid)

    def _to_swap(self, rebuild: Rebuild) -> Swapped:
        left = PATIENCE_SECONDS
        while True:
            self._count_all(rebuild)
            match self._try_to_swap(rebuild, last=left <= 0):
                case Swapped() as swapped:
                    log.info(
                        "%s: its states count from now on; up to txid %s the old ones are kept", rebuild, swapped.txid
                    )
                    return swapped
                case Behind():
                    continue
                case Watched(by):
                    log.info("%s: waits for transactions that began before all was counted: %s", rebuild, by)
                    self.pause(PAUSE_SECONDS)
                    left -= PAUSE_SECONDS
                case other:
                    assert_never(other)

    def _try_to_swap(self, rebuild: Rebuild, *, last: bool) -> Swapped | Behind | Watched:
        """Swap; Watched while others keep it from that, and the last time Unavailable."""
        try:
            found = self.rebuilds.swap(rebuild, self.steps.job.topology)
        except Unavailable as error:
            found = Watched(str(error))
        if last and isinstance(found, Watched):
            raise Unavailable(
                f"{rebuild}: all is counted, and cannot be swapped while others read: {found.by}; call it again"
            )
        return found

    def _count_all(self, rebuild: Rebuild) -> None:
        while (version := self.rebuilds.next(rebuild)) is not None:
            job = self.steps.job.now()
            check_same(rebuild, job.topology, job.code)
            if self._count(rebuild, version):
                log.info("%s: txid %s is counted; %s", rebuild, version.txid, self.rebuilds.progress(rebuild))

    def _count(self, rebuild: Rebuild, version: Batch) -> bool:
        """Emit a version and count it; False where another has taken its place."""
        topology = self.steps.job.topology
        try:
            planned = plan_of(self.steps, version, rebuild.why)
            if planned is None:
                return False
            again = self.emitter.emit(topology.name, version.txid, planned.plan, version.position)
        except (RecordsGone, Unverifiable) as error:
            raise TerminalError(
                f"{rebuild}: {_of(version)} cannot be counted by the job as it is now: {error}. The states go on as they are: "
                f"mend the job, `txbatch rebuild {rebuild.topology} --cancel` and begin again; or the source, and call it again"
            ) from error
        try:
            restate.check_whole(topology, planned.version, again.manifest)
            return self.rebuilds.count(rebuild, topology, again.assignment, again.manifest, again.partials())
        finally:
            again.remove()


@dataclass(frozen=True, slots=True)
class Planned:
    """What is read again of a version that counts."""

    plan: BatchPlan
    version: Version


def plan_of(steps: Steps, version: Batch, why: str) -> Planned | None:
    """Return what is read again of a version; None where another has taken its place."""
    name, ledger = version.topology, steps.ledger
    found = ledger.version(name, version.txid)
    if found.current.txid != version.txid:
        return None
    asked = Restate(version.position, why)
    metadata = planning.plan_again(steps.job.topology, ledger.head(name, Run(REBUILD)), found, asked, ledger.upstream)
    return Planned(BatchPlan.from_json(metadata, f"{name}: the plan of {_of(version)}"), found)


def _of(version: Batch) -> str:
    return f"position {version.position}" + (f", txid {version.txid}," * (version.txid != version.position))
