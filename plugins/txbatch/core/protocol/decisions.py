"""Decisions about the next step of a run, made on values read by a ledger. A commit is decided in `commit`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from txbatch.core.batch.transaction import Batch, BatchKind, BatchStatus, Interval, Metadata, Run
from txbatch.core.errors import (
    AlreadyCommitted,
    IntervalNotOver,
    IntervalTaken,
    NotEmitted,
    OtherParameters,
    TxbatchError,
)
from txbatch.core.protocol.fence import held_by_another
from txbatch.core.protocol.ledger import Head, Offsets, RunPlan
from txbatch.core.protocol.restate import uncounted
from txbatch.core.stored_json import as_stored, canonical_json
from txbatch.core.text import one_line


@dataclass(frozen=True, slots=True)
class Use:
    """The run's own batch exists: same txid, same metadata."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Adopt:
    """Nobody looks after the batch: finish the batch first, or abort the batch (`may_adopt`)."""

    batch: Batch


class WaitReason(StrEnum):
    """Why a run waits for a batch."""

    FULL = "max_pending batches are in flight, and this batch is the oldest"
    TURN = "it is below the run's own, and another run looks after it"
    HELD = "another live run works on it"


@dataclass(frozen=True, slots=True)
class Wait:
    """The run goes on once the batch of another live run is final or abandoned."""

    batch: Batch
    why: WaitReason


@dataclass(frozen=True, slots=True)
class PlanNew:
    """The run has no batch yet: plan this txid."""

    txid: int


def decide_initialize(head: Head, run: Run, max_pending: int) -> Use | Adopt | Wait | PlanNew:
    """Decide a run's first step: use the run's batch, adopt an abandoned batch, wait, or plan (R2, R6)."""
    if head.own is not None:
        return Use(head.own)
    abandoned = next((batch for batch in head.pending if unattended(batch, run)), None)
    if abandoned is not None:
        return Adopt(abandoned)
    if len(head.pending) >= max_pending:
        return Wait(head.pending[0], WaitReason.FULL)
    return PlanNew(head.next_txid)


def unattended(batch: Batch, run: Run) -> bool:
    """True if the batch is open and no other live run has the lease (R6). This run may have it, left by a killed try."""
    return not batch.status.final and not held_by_another(batch, run)


def same_parameters(batch: Batch, run: Run) -> bool:
    """True if the batch was planned with this run's parameters."""
    return canonical_json(batch.plan.parameters) == canonical_json(run.parameters)


def check_parameters(batch: Batch, run: Run) -> None:
    """Refuse a run that meets its own batch again with other data-choosing parameters (R2)."""
    if run.restate is None and batch.key == run.key and not same_parameters(batch, run):
        stored = canonical_json(batch.plan.parameters)
        raise OtherParameters(
            f"{batch.topology}: {run.name} asks for txid {batch.txid} with parameters {canonical_json(run.parameters)}, it was "
            f"planned with {stored}; run txid {batch.txid} with the planned parameters, or start a new run"
        )


def may_adopt(batch: Batch, run: Run) -> bool:
    """True if the run may finish an abandoned batch first (R6). If False, the batch is aborted, since the records differ.

    A restate is aborted: a restate holds no records, and the restating run asks again. A half committed batch cannot be
    aborted, and is finished all the same (R21).
    """
    by_offset = run.interval is None and not batch.by_interval
    return by_offset and batch.kind is BatchKind.ORDINARY and same_parameters(batch, run)


def belongs_to_another(batch: Batch, run: Run) -> bool:
    """True if an open batch of another key was handed to the run: finish the adopted batch before the run's own."""
    return not batch.status.final and batch.key != run.key


def check_interval(topology: str, interval: Interval, now: datetime, taken: Sequence[Interval]) -> None:
    """Refuse an interval not over by the ledger's clock, or in overlap with intervals of other batches (R2)."""
    if interval.end > now:
        raise IntervalNotOver(
            f"{topology}: interval {interval} is not over, it is {now.isoformat()}; run it after its end"
        )
    if taken:
        free = uncounted(interval, taken)
        left = f"not covered yet: {', '.join(map(str, free))}" if free else "all of it is covered"
        raise IntervalTaken(f"{topology}: interval {interval} overlaps {', '.join(map(str, taken))}; {left}")


class TakenIntervals:
    """The intervals of a topology's batches, as of a moment of the ledger's clock: sorted, without overlap."""

    def __init__(self, topology: str, now: datetime, intervals: Sequence[Interval]) -> None:
        self.topology, self.now, self.intervals = topology, now, list(intervals)

    def take(self, interval: Interval) -> None:
        """Add an interval. Raise as `check_interval` does if the interval may not be planned."""
        first = bisect_right(self.intervals, interval.start, key=lambda each: each.end)
        behind = bisect_left(self.intervals, interval.end, key=lambda each: each.start)
        check_interval(self.topology, interval, self.now, self.intervals[first:behind])
        self.intervals.insert(first, interval)


def moved(head: Head, now: Head, *others: Head) -> bool:
    """True if the head has changed since plans were made (R1), or if one of the planning runs has a batch by now (R2)."""
    same = now.next_txid == head.next_txid and now.prev_txid == head.prev_txid and now.offsets == head.offsets
    return not same or any(each.own is not None for each in (now, *others))


def planned_batch(head: Head, run: Run, metadata: Metadata) -> Batch:
    """Return the batch of a plan, to be stored at the head's next txid (R1)."""
    stored = head.topology, head.next_txid, BatchStatus.PLANNED, as_stored(metadata), run.key
    if run.restate is None:
        return Batch(*stored, prev_txid=head.prev_txid)
    batch = Batch(*stored, kind=BatchKind.RESTATE, position=run.restate.position)
    return replace(batch, reason=one_line(run.restate.why), requested_by=run.restate.by, found_by=run.restate.found_by)


def followed(head: Head, batch: Batch) -> Head:
    """Return the head after a batch is stored, as the base of the next plan (R3)."""
    prev = head.prev if batch.kind is BatchKind.RESTATE else batch
    return replace(head, next_txid=batch.txid + 1, prev=prev, offsets=consumed(head.offsets, [batch]))


def before_refused(plans: Sequence[RunPlan], check: Callable[[Run, Metadata], None]) -> Iterator[RunPlan]:
    """Yield plans up to the first refused by `check`, which may count the plans before as stored.

    If the very first plan is refused, raise the error.
    """
    for number, each in enumerate(plans):
        try:
            check(*each)
        except TxbatchError:
            if not number:
                raise
            return
        yield each


def check_success(batch: Batch) -> None:
    """Refuse success for a batch that is not committed (R8): NotEmitted, although the batch may be emitted."""
    if batch.status is not BatchStatus.COMMITTED:
        raise NotEmitted(f"{batch.topology}: txid {batch.txid} is {batch.status}, not committed; clear the task commit")


def check_abort(batch: Batch) -> None:
    """Refuse to abort a committed batch (R16)."""
    if batch.status is BatchStatus.COMMITTED:
        raise AlreadyCommitted(
            f"{batch.topology}: txid {batch.txid} is committed, and what is committed stays. Where its records are wrong, mend "
            f'the source and count it again, in its place: `txbatch restate {batch.topology} {batch.txid} --why "..."`'
        )


def consumed(offsets: Offsets, batches: Iterable[Batch]) -> dict[str, dict[str, Metadata]]:
    """Return the offsets after batches in txid order; restates move no offset."""
    after = {stream: dict(partitions) for stream, partitions in offsets.items()}
    for batch in (each for each in batches if each.kind is not BatchKind.RESTATE):
        for stream, planned in batch.plan.partitioned.items():
            after.setdefault(stream, {}).update(planned.ranges)
    return after
