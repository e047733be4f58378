"""`txbatch rebuild`: count every batch of a topology again by the job as it is now, and swap when all are counted (R23).

Batches are emitted beside the ledger, in one application, several by one job where that goes. Each is counted in a transaction of
its own. A call that was killed is called again, and goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import assert_never

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Batch, Restate, Run
from txbatch.core.corrections.rebuild import Behind, Rebuild, Rebuilds, Rebuilt, Swapped, Watched, check_same
from txbatch.core.corrections.verify import Again, EmitAgain
from txbatch.core.errors import (
    LeaseHeld,
    RebuildStopped,
    RecordsGone,
    TxbatchError,
    Unavailable,
    Unverifiable,
)
from txbatch.core.protocol import bulk, planning, restate
from txbatch.core.protocol.bulk_size import JobSize
from txbatch.core.protocol.ledger import PositionVersion
from txbatch.core.protocol.ports import REBUILD
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
            found = Watched(error.text)
        if last and isinstance(found, Watched):
            raise Unavailable(
                f"{rebuild}: all is counted, and cannot be swapped while others read: {found.by}; call it again"
            )
        return found

    def _count_all(self, rebuild: Rebuild) -> None:
        ahead = dict[int, Emitted | None]()
        while (version := self.rebuilds.next(rebuild)) is not None:
            job = self.steps.job.now()
            check_same(rebuild, job.topology, job.code)
            if version.txid not in ahead:
                ahead = self._emit_ahead(rebuild)
            if self._count(rebuild, version, ahead.pop(version.txid, None)):
                log.info("%s: txid %s is counted; %s", rebuild, version.txid, self.rebuilds.progress(rebuild))

    def _emit_ahead(self, rebuild: Rebuild) -> dict[int, Emitted | None]:
        """Emit by one job those that are counted next, and return that by txid; None for one that is to be emitted by itself.

        Nothing where the next one does not go together with those behind it.
        """
        name, planned = self.steps.job.topology.name, self._plan_ahead(rebuild)
        if len(planned) < 2:
            return {}
        log.info("%s: emitting %d batches by one job", rebuild, len(planned))
        plans = {version.txid: (of.plan, version.position) for version, of in planned}
        again = self.emitter.emit_bulk(name, plans)
        return {version.txid: (of, again[version.txid]) if version.txid in again else None for version, of in planned}

    def _plan_ahead(self, rebuild: Rebuild) -> list[tuple[Batch, Planned]]:
        """Return what is read again of the next versions, up to the bounds of one job, and to one that does not go together."""
        topology, found = self.steps.job.topology, list[tuple[Batch, Planned]]()
        if bulk.reason_against(topology) is not None:
            return found
        weight, versions = JobSize(topology), self.rebuilds.to_count(rebuild, bulk.BATCHES_MAX)
        plans = plans_of(self.steps, versions, rebuild.why)
        with suppress(TxbatchError), closing(plans):  # whose plan fails is told when it is the next
            for version, planned in plans:
                if found and not bulk.go_together(topology, found[0][1].plan, planned.plan):
                    break
                found.append((version, planned))
                weight.add(planned.plan)
                if weight.full:
                    break
        return found

    def _count(self, rebuild: Rebuild, version: Batch, emitted: Emitted | None) -> bool:
        """Count a version, which is emitted where it is not yet; False where another has taken its place."""
        topology, found = self.steps.job.topology, emitted or self._emit(rebuild, version)
        if found is None:
            return False
        planned, again = found
        try:
            restate.check_whole(topology, planned.version, again.manifest)
            return self.rebuilds.count(rebuild, topology, again.assignment, again.manifest, again.partials())
        finally:
            again.remove()

    def _emit(self, rebuild: Rebuild, version: Batch) -> Emitted | None:
        """Emit a version by itself; None where another has taken its place."""
        try:
            planned = plan_of(self.steps, version, rebuild.why)
            if planned is None:
                return None
            again = self.emitter.emit(self.steps.job.topology.name, version.txid, planned.plan, version.position)
        except (RecordsGone, Unverifiable) as error:
            raise RebuildStopped(
                f"{rebuild}: {_of(version)} cannot be counted by the job as it is now: {error}. The states go on as they are: "
                f"mend the job, `txbatch rebuild {rebuild.topology} --cancel` and begin again; or the source, and call it again"
            ) from error
        return planned, again


@dataclass(frozen=True, slots=True)
class Planned:
    """What is read again of a version that counts."""

    plan: BatchPlan
    version: PositionVersion


Emitted = tuple[Planned, Again]


def plan_of(steps: Steps, version: Batch, why: str) -> Planned | None:
    """Return what is read again of a version; None where another has taken its place."""
    found = list(plans_of(steps, [version], why))
    return found[0][1] if found else None


def plans_of(steps: Steps, versions: Iterable[Batch], why: str) -> Generator[tuple[Batch, Planned], None, None]:
    """Yield what is read again of each version, by one look at the sources; nothing where another has taken its place."""
    topology, ledger = steps.job.topology, steps.ledger
    head = ledger.head(topology.name, Run(REBUILD))
    with planning.Coordinators() as coordinators:
        for version in versions:
            found = ledger.version(topology.name, version.txid)
            if found.current.txid == version.txid:
                asked = Restate(version.position, why)
                metadata = planning.plan_again(topology, head, found, asked, ledger.upstream, coordinators)
                plan = BatchPlan.from_json(metadata, f"{topology.name}: the plan of {_of(version)}")
                yield version, Planned(plan, found)


def _of(version: Batch) -> str:
    return f"position {version.position}" + (f", txid {version.txid}," * (version.txid != version.position))
