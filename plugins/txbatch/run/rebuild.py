"""`txbatch rebuild`: count every batch of a topology again by the job as it is now, and swap when all are counted (R23).

Batches are emitted beside the ledger, in one application, several by one job if possible: while the batches of one job are
counted, Spark emits the next. Each batch is counted in a transaction of its own. If a call was killed, call again: the next call
goes on with the same rebuild.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import assert_never

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Batch, Restate, Run
from txbatch.core.corrections.rebuild import Behind, Progress, Rebuild, Rebuilds, Rebuilt, Swapped, Watched, check_same
from txbatch.core.corrections.verify import Again, EmitAgain
from txbatch.core.errors import (
    LeaseHeld,
    RebuildStopped,
    RecordsGone,
    TxbatchError,
    Unavailable,
    Unverifiable,
)
from txbatch.core.protocol import bulk, restate
from txbatch.core.protocol.bulk_size import JobSize
from txbatch.core.protocol.planning_again import plan_again
from txbatch.core.protocol.ports import REBUILD
from txbatch.core.protocol.restate import PositionVersion
from txbatch.core.protocol.spout_coordinators import Coordinators
from txbatch.run.steps import Steps

log = logging.getLogger(__name__)
# Seconds to try the swap while others read the old generation, and the pause between two tries: shorter than a report.
PATIENCE_SECONDS = 120.0
PAUSE_SECONDS = 1.0
_PROGRESS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Rebuilder:
    """Rebuilds the topology of a job, once. At the end of `run`, staged files are removed and the application ends."""

    steps: Steps
    rebuilds: Rebuilds
    emitter: EmitAgain
    pause: Callable[[float], None] = time.sleep

    def run(self, why: str | None, by: str | None = None) -> Rebuilt:
        """Begin a rebuild, or go on with the running rebuild, up to the swap.

        If an earlier call was cut off after the swap, return the finished rebuild, and count nothing. Raise Unavailable,
        with the names of the readers, if others read the old generation for too long: the next call goes on with the swap.
        Raise TerminalError, with the name of the batch, if the job cannot count a batch: the old generation goes on.
        """
        job = self.steps.job
        with self.steps.concerning(), self.steps.locks.hold(job.topology.name, REBUILD) as held:
            if not held:
                raise LeaseHeld(f"{job.topology.name}: another process rebuilds it; see report.rebuilds")
            if (done := self.rebuilds.done(job.topology.name, job.code, why)) is not None:
                return done
            with closing(self.emitter):  # while the lock is held: files staged by another process stay
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
        """Swap. If readers prevent the swap, return Watched; the last time, raise Unavailable."""
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
        ahead = _Ahead(self, rebuild)
        told = _Told(lambda: self.rebuilds.progress(rebuild))
        while (version := self.rebuilds.next(rebuild)) is not None:
            self._check(rebuild)
            ahead.reach(version)
            self._count_on(rebuild, version, ahead, told)

    def _check(self, rebuild: Rebuild) -> None:
        job = self.steps.job.now()
        check_same(rebuild, job.topology, job.code)

    def _count_on(self, rebuild: Rebuild, version: Batch, ahead: _Ahead, told: _Told) -> None:
        """Count a version, then the versions emitted ahead, up to a replaced version."""
        while self._count(rebuild, version, ahead):
            log.info("%s: txid %s is counted; %s", rebuild, version.txid, told.one_more())
            if (following := ahead.first()) is None:
                return
            version = following
            self._check(rebuild)

    def begin_ahead(self, rebuild: Rebuild, behind: int, length: int) -> Callable[[], EmittedAhead] | None:
        """Begin to emit the next batches behind a txid by one job. Return None if no two batches go together.

        The returned function waits for the job, and returns the batches by txid, in order; None for a batch to emit by itself.
        """
        name, planned = self.steps.job.topology.name, self._plan_ahead(rebuild, behind, length)
        if len(planned) < 2:
            return None
        log.info("%s: emitting %d batches by one job", rebuild, len(planned))
        plans = {of.batch.txid: (of.plan, of.batch.position) for of in planned}
        emitted = self.emitter.begin_bulk(name, plans)

        def found() -> EmittedAhead:
            again = emitted()
            return {
                of.batch.txid: (of.batch, (of, again[of.batch.txid]) if of.batch.txid in again else None)
                for of in planned
            }

        return found

    def _plan_ahead(self, rebuild: Rebuild, behind: int, length: int) -> list[Planned]:
        """Return the plans of the versions behind a txid, up to a length and the bounds of one job. Stop before a version that
        does not go together.
        """
        topology, found = self.steps.job.topology, list[Planned]()
        if bulk.reason_against(topology) is not None:
            return found
        left = islice(self._behind(rebuild, behind), bulk.BATCHES_MAX)
        weight, plans = JobSize(topology), plans_of(self.steps, left, rebuild.why)
        with suppress(TxbatchError), closing(plans):  # a version without a plan raises when its turn comes
            for planned in plans:
                if found and not bulk.go_together(topology, found[0].plan, planned.plan):
                    break
                found.append(planned)
                weight.add(planned.plan)
                if weight.full or (len(found) >= length and not bulk.long_pass(topology, planned.plan)):
                    break
        return found

    def _behind(self, rebuild: Rebuild, txid: int) -> Iterator[PositionVersion]:
        """Yield the versions to count behind a txid, asked for in growing pieces: few of many partitions fill a job."""
        for length in chain([2], bulk.lengths()):
            found = self.rebuilds.to_count(rebuild, length, txid)
            yield from found
            if len(found) < length:
                return
            txid = found[-1].current.txid

    def _count(self, rebuild: Rebuild, version: Batch, ahead: _Ahead) -> bool:
        """Count a version, and emit the version first if necessary. Return False if another version has replaced this version."""
        topology, found = self.steps.job.topology, ahead.take(version) or self._emit(rebuild, version, ahead)
        if found is None:
            return False
        planned, again = found
        try:
            restate.check_whole(topology, planned.version, planned.plan, again.manifest)
            return self.rebuilds.count(rebuild, topology, again.assignment, again.manifest, again.partials())
        finally:
            again.remove()

    def _emit(self, rebuild: Rebuild, version: Batch, ahead: _Ahead) -> Emitted | None:
        """Emit a version by itself. Return None if another version has replaced this version."""
        ahead.end()
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
    """The plan to read a version of a position again."""

    plan: BatchPlan
    version: PositionVersion

    @property
    def batch(self) -> Batch:
        """The batch that counts at the position."""
        return self.version.current


Emitted = tuple[Planned, Again]
EmittedAhead = dict[int, tuple[Batch, Emitted | None]]


@dataclass(slots=True)
class _Ahead:
    """The versions emitted ahead: while the versions of one job are counted, the next job is at work."""

    rebuilder: Rebuilder
    rebuild: Rebuild
    _found: EmittedAhead = field(default_factory=dict)
    _begun: Callable[[], EmittedAhead] | None = None
    _lengths: Iterator[int] = field(default_factory=bulk.lengths)

    def reach(self, version: Batch) -> None:
        """Have the version to count next emitted, if by a job of several, and begin the next job."""
        if version.txid in self._found:
            return
        self.end()
        if version.txid not in self._found:
            self._found = {}
            self._begun = self._begin()
            self.end()
        if self._found:
            self._begun = self._begin()

    def end(self) -> None:
        """Wait for the job at work, if any: after that, the application is free."""
        begun, self._begun = self._begun, None
        if begun is not None:
            self._found |= begun()

    def first(self) -> Batch | None:
        """Return the version to count next, as far as known; None if no version is left."""
        return next((version for version, _ in self._found.values()), None)

    def take(self, version: Batch) -> Emitted | None:
        """Take a version out. Return None if the version is to be emitted by itself."""
        return self._found.pop(version.txid, (version, None))[1]

    def _begin(self) -> Callable[[], EmittedAhead] | None:
        return self.rebuilder.begin_ahead(self.rebuild, max(self._found, default=0), next(self._lengths))


@dataclass(slots=True)
class _Told:
    """The progress of a rebuild, asked for once a second at most: the answer takes longer the more versions are counted."""

    ask: Callable[[], Progress]
    _last: Progress | None = None
    _asked_at: float = 0.0

    def one_more(self) -> Progress:
        """Return the progress after one more version."""
        now = time.monotonic()
        if self._last is None or self._last.seconds_each is None or now - self._asked_at >= _PROGRESS_SECONDS:
            self._last, self._asked_at = self.ask(), now
        else:
            self._last = self._last.after_one()
        return self._last


def plan_of(steps: Steps, version: Batch, why: str) -> Planned | None:
    """Return the plan to read a version again; None if another version has replaced this version."""
    found = steps.ledger.version(steps.job.topology.name, version.txid)
    if found.current.txid != version.txid:
        return None
    return next(plans_of(steps, [found], why))


def plans_of(steps: Steps, versions: Iterable[PositionVersion], why: str) -> Generator[Planned, None, None]:
    """Yield the plan to read each version again, by one look at the sources."""
    topology, ledger = steps.job.topology, steps.ledger
    head = ledger.head(topology.name, Run(REBUILD))
    with Coordinators() as coordinators:
        for found in versions:
            asked = Restate(found.current.position, why)
            metadata = plan_again(topology, head, found, asked, ledger.upstream, coordinators)
            plan = BatchPlan.from_json(metadata, f"{topology.name}: the plan of {_of(found.current)}")
            yield Planned(plan, found)


def _of(version: Batch) -> str:
    return f"position {version.position}" + (f", txid {version.txid}," * (version.txid != version.position))
