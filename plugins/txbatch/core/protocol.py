"""What may happen next: every decision of the protocol, made on values that a ledger has read under its locks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from txbatch.core.errors import (
    BrokenChain,
    IntervalNotOver,
    IntervalTaken,
    LeaseHeld,
    NotItsTurn,
    RecordsGone,
    StaleAttempt,
    TerminalError,
)
from txbatch.core.ledger import Head, Offsets
from txbatch.core.plan import FORMAT, idle_of, streams_of
from txbatch.core.transaction import (
    INIT_TXID,
    Assignment,
    Batch,
    BatchStatus,
    Interval,
    Metadata,
    Run,
    canonical_json,
)

_ANEW = "it is aborted and planned anew"


@dataclass(frozen=True, slots=True)
class Use:
    """The run's own batch exists: same txid, same metadata."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Adopt:
    """Nobody looks after this batch: finish it first."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Wait:
    """As many batches as allowed are in flight; this is the oldest."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan this txid."""

    txid: int


def decide_initialize(head: Head, run: Run, max_pending: int) -> Use | Adopt | Wait | Plan:
    """What a run does first (R2, R6)."""
    if head.own is not None:
        return Use(head.own)
    abandoned = next((batch for batch in head.pending if unattended(batch, run)), None)
    if abandoned is not None:
        return Adopt(abandoned)
    if len(head.pending) >= max_pending:
        return Wait(head.pending[0])
    return Plan(head.next_txid)


def unattended(batch: Batch, run: Run) -> bool:
    """Whether an open batch has nobody but this run to look after it: an heir may have begun to, and died (R6)."""
    return not batch.status.final and (not batch.lease_live or batch.lease_run == run.name)


def waited_for(batch: Batch, run: Run) -> bool:
    """Whether another live run looks after an open batch: it is left to that one (R6)."""
    return not batch.status.final and batch.lease_live and batch.lease_run != run.name


def same_parameters(batch: Batch, run: Run) -> bool:
    """Whether the batch was planned with this run's parameters."""
    return canonical_json(batch.metadata.get("parameters", {})) == canonical_json(run.parameters)


def check_parameters(batch: Batch, run: Run) -> None:
    """Refuse a run that meets its own batch again with other data-choosing parameters (R2)."""
    if batch.key == run.key and not same_parameters(batch, run):
        stored = canonical_json(batch.metadata.get("parameters", {}))
        raise TerminalError(
            f"{batch.topology}: {run.name} asks for txid {batch.txid} with parameters {canonical_json(run.parameters)}, it was "
            f"planned with {stored}; run it with those, or start a new run"
        )


def may_adopt(batch: Batch, run: Run) -> bool:
    """Whether the run may finish an abandoned batch before its own (R6); else it is aborted, for its records are others."""
    return run.interval is None and same_parameters(batch, run)


def is_adopted(batch: Batch, run: Run) -> bool:
    """Whether a batch in flight that the run looks after is another run's: it is finished first, then comes its own."""
    return not batch.status.final and batch.key != run.key


def check_gone(assignment: Assignment) -> None:
    """Refuse to emit records that the source no longer keeps: they are given up by a decision, never silently."""
    for planned in streams_of(assignment.metadata).values():
        for partition, range_ in (planned.partitions or {}).items():
            if "gone" in range_:
                raise RecordsGone(
                    f"{assignment.topology} {assignment.attempt}: records {range_['start']} to {range_['end']} of partition "
                    f"{partition!r} are gone: {range_['gone']}; restore them and abort the batch, or give them up: "
                    f'`txbatch abort {assignment.topology} {assignment.attempt.txid} --skip --why "..."`'
                )


def next_txid(txids: Sequence[int]) -> int:
    """Consecutive from 1, never reused, never skipped (R1)."""
    return txids[-1] + 1 if txids else INIT_TXID


def check_interval(topology: str, interval: Interval, now: datetime, taken: Sequence[Interval]) -> None:
    """Refuse an interval that is not over by the ledger's clock, or reaches into those of other batches (R2)."""
    if interval.end > now:
        raise IntervalNotOver(
            f"{topology}: interval {interval} is not over, it is {now.isoformat()}; run it after its end"
        )
    if taken:
        free = uncovered(interval, taken)
        left = f"not covered yet: {', '.join(map(str, free))}" if free else "all of it is covered"
        raise IntervalTaken(f"{topology}: interval {interval} overlaps {', '.join(map(str, taken))}; {left}")


def uncovered(interval: Interval, taken: Sequence[Interval]) -> list[Interval]:
    """The parts of an interval outside these others, which are in order and apart."""
    free, at = [], interval.start
    for other in taken:
        if at < other.start:
            free.append(Interval(at, other.start))
        at = max(at, other.end)
    return [*free, Interval(at, interval.end)] if at < interval.end else free


def moved(head: Head, now: Head) -> bool:
    """Whether the head is no longer what a plan was made for (R1)."""
    expected = (head.next_txid, head.prev_txid, head.offsets, None)
    return (now.next_txid, now.prev_txid, now.offsets, now.own) != expected


def check_attempt(batch: Batch, run: Run) -> None:
    """Whether this run may start an attempt now (R5)."""
    if batch.status is BatchStatus.COMMITTED:
        raise TerminalError(f"{batch.topology}: already committed as txid {batch.txid}")
    if batch.status is BatchStatus.ABORTED:
        raise TerminalError(f"{batch.topology}: txid {batch.txid} was aborted; run initialize_transaction again")
    if waited_for(batch, run):
        raise LeaseHeld(
            f"{batch.topology}: txid {batch.txid} is being worked on by {batch.lease_run}; wait until it ends"
        )


def check_fence(batch: Batch, named: Assignment | Batch) -> None:
    """Refuse an attempt, named by its assignment or by its batch as it was read earlier, that is not the newest (R5)."""
    attempt = named.attempt
    if batch.status.final or batch.fence != attempt.attempt_id or batch.token != named.token:
        raise StaleAttempt(
            f"{batch.topology}: attempt {attempt} is not the newest of txid {batch.txid}, which is {batch.status} "
            f"with attempt {batch.attempt}; nothing was changed"
        )


def check_commit(
    batch: Batch, loaded: Batch, open_before: int | None, last_committed: int | None, offsets: Offsets
) -> bool:
    """Whether to apply; False: it is committed already.

    `loaded` is the batch as it was read before its partials were, `open_before` the lowest txid below that is not final,
    `last_committed` the highest committed one. Raises StaleAttempt (R5), NotItsTurn, BrokenChain (R6).
    """
    if batch.status is BatchStatus.COMMITTED:
        return False
    check_fence(batch, loaded)
    if batch.status is not BatchStatus.EMITTED:
        raise TerminalError(f"{batch.topology}: attempt {batch.attempt} has no manifest yet; run emit_batch first")
    if open_before is not None:
        raise NotItsTurn(f"{batch.topology}: txid {batch.txid} waits for txid {open_before}")
    check_chain(batch, last_committed, offsets)
    return True


def check_chain(batch: Batch, last_committed: int | None, offsets: Offsets, then: str = _ANEW) -> None:
    """Refuse a batch that does not continue what is committed (R6); `then` says what comes of it."""
    plans = streams_of(batch.metadata)
    one_by_one = [each for each in (*plans.values(), *idle_of(batch.metadata).values()) if each.partitions is None]
    in_order = any(each.interval is None or not batch.by_interval for each in one_by_one)
    if in_order and batch.prev_txid != last_committed:
        raise BrokenChain(
            f"{batch.topology}: txid {batch.txid} was planned after txid {batch.prev_txid}, "
            f"but txid {last_committed} is the last committed: {then}"
        )
    for stream, planned in plans.items():
        for partition, range_ in (planned.partitions or {}).items():
            last = offsets.get(stream, {}).get(partition)
            check_continues(batch, partition, range_, last, partition in planned.continues, then)


def check_continues(
    batch: Batch, partition: str, range_: Metadata, last: Metadata | None, continues: bool, then: str = _ANEW
) -> None:
    """Refuse a range that does not start where the partition's last committed one ended.

    With none committed it may start anywhere, unless it `continues` one that was planned before it.
    """
    if continues if last is None else range_["start"] != last["end"]:
        raise BrokenChain(
            f"{batch.topology}: txid {batch.txid} starts {partition} at {range_['start']}, committed is "
            f"{last['end'] if last else 'nothing'}: {then}"
        )


def check_success(batch: Batch) -> None:
    """Refuse success for what is not committed (R8)."""
    if batch.status is not BatchStatus.COMMITTED:
        raise TerminalError(
            f"{batch.topology}: txid {batch.txid} is {batch.status}, not committed; clear the task commit"
        )


def check_abort(batch: Batch) -> None:
    """Refuse to abort what is committed (R16)."""
    if batch.status is BatchStatus.COMMITTED:
        raise TerminalError(
            f"{batch.topology}: txid {batch.txid} is committed, and what is committed stays. Where its records are wrong, mend "
            f"the source or the job and count all of it again: `txbatch drop {batch.topology}`, or another topology with states "
            "of other names"
        )


def check_skip(
    batch: Batch, open_before: int | None, last_committed: int | None, offsets: Offsets, also: Sequence[int] = ()
) -> None:
    """Refuse to give up records that are committed, not next, or another batch's by now (R16).

    `also` are the other txids, not aborted, that reach into the batch's interval.
    """
    check_abort(batch)
    if open_before is not None:
        raise NotItsTurn(f"{batch.topology}: txid {open_before} is open; end or abort it before txid {batch.txid}")
    if also:
        raise IntervalTaken(
            f"{batch.topology}: the records of txid {batch.txid}, {batch.key}, are those of txid {also[-1]} by now; "
            "nothing of them is given up"
        )
    check_chain(
        batch, last_committed, offsets, "its records are those of a later txid by now; nothing of them is given up"
    )


def ranges(entry: Any) -> Mapping[str, Any]:
    """What an entry of `streams` names, by partition; an unpartitioned stream has the one partition ''."""
    return streams_of({"format": FORMAT if "plan" in entry else 1, "streams": {"": entry}})[""].ranges


def consumed(offsets: Offsets, batches: Iterable[Batch]) -> dict[str, dict[str, Metadata]]:
    """The offsets after these batches, in txid order."""
    after = {stream: dict(partitions) for stream, partitions in offsets.items()}
    for batch in batches:
        for stream, planned in streams_of(batch.metadata).items():
            if planned.partitions is not None:
                after.setdefault(stream, {}).update(planned.partitions)
    return after
