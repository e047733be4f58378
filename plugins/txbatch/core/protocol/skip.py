"""A skip: whether the records of a batch may be given up, and which: all records, or one partition's records (R16).

>>> from txbatch.core.batch.transaction import BatchStatus
>>> ranges = {"partitions": {name: {"start": 0, "end": 9} for name in ("north", "south")}, "continues": ["north"]}
>>> batch = Batch("hosts", 1, BatchStatus.PLANNED, {"format": 2, "streams": {"log": ranges}}, "run:1")
>>> given_up(batch, "south").metadata["streams"]
{'log': {'partitions': {'south': {'start': 0, 'end': 9}}}}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from txbatch.core.batch.plan import Ranges
from txbatch.core.batch.transaction import Assignment, Batch, BatchKind
from txbatch.core.errors import BrokenChain, CannotSkip, IntervalTaken, NotItsTurn, RecordsGone, UnknownName
from txbatch.core.protocol import decisions
from txbatch.core.protocol.commit import why_broken
from txbatch.core.protocol.ledger import Order
from txbatch.core.text import list_first


def check_gone(assignment: Assignment) -> None:
    """Refuse to emit records no longer kept by the source: records are given up by a decision, never silently."""
    for planned in assignment.plan.partitioned.values():
        for partition, range_ in planned.partitions.items():
            if range_.gone is not None:
                raise RecordsGone(
                    f"{assignment.topology} {assignment.attempt}: records {range_.start} to {range_.end} of partition "
                    f"{partition!r} are gone: {range_.gone.why}; restore them and abort the batch: the next "
                    "plan reads them; or, if they are lost for good, give them up"
                )


def check_may_skip(batch: Batch) -> None:
    """Refuse to give up committed records, or the records of a restate, which belong to another batch (R16)."""
    decisions.check_abort(batch)
    if batch.kind is BatchKind.RESTATE:
        raise CannotSkip(
            f"{batch.topology}: txid {batch.txid} counts position {batch.position} again, and has no records of its own to give "
            "up; abort it without --skip"
        )


def check_skip(batch: Batch, order: Order, also: Sequence[int] = ()) -> None:
    """Refuse to give up records if they are committed, not next, or in another batch by now (R16).

    If records are not next, the records in between would be lost, or counted twice. `also` has all further txids, not aborted,
    with intervals that overlap the batch's interval.
    """
    check_may_skip(batch)
    if order.open_before is not None:
        raise NotItsTurn(
            f"{batch.topology}: txid {order.open_before} is open; end or abort it before txid {batch.txid}"
        )
    if also:
        raise IntervalTaken(
            f"{batch.topology}: the records of txid {batch.txid}, {batch.key}, are those of txid {also[-1]} by now; "
            "nothing of them is given up"
        )
    broken = why_broken(batch, order)
    if broken is None:
        return
    later = order.last_committed is not None and order.last_committed > batch.txid
    whose = "its records are those of a later txid by now" if later else "its records are not the next ones"
    then = "" if batch.status.final else "; abort it without --skip, and the next run plans what comes next"
    raise BrokenChain(f"{batch.topology}: txid {batch.txid} {broken}: {whose}; nothing of them is given up{then}")


def given_up(batch: Batch, partition: str | None) -> Batch:
    """Return the batch with only the given up partition; if `partition` is None, the batch unchanged.

    If several streams have the partition, name the stream too: `log:south`. Raise UnknownName if the batch reads no such
    partition. Raise TerminalError if streams without partitions would be given up, too: their plans follow on each other.
    """
    if partition is None:
        return batch
    of, plans = f"{batch.topology}: txid {batch.txid}", batch.plan.partitioned
    whole = [name for name in batch.plan.streams if name not in plans]
    if whole or batch.by_interval:
        raise CannotSkip(
            f"{of} reads stream {', '.join(map(repr, whole or plans))} by no offsets of partitions: its records are given up "
            "together; leave out --partition"
        )
    named = [(stream, name) for stream, ranges in plans.items() for name in ranges.partitions]
    found = [each for each in named if partition in (each[1], f"{each[0]}:{each[1]}")]
    if not found:
        raise UnknownName(
            f"{of} reads no partition {partition!r}; it reads {list_first([repr(name) for _, name in named])}"
        )
    if len(found) > 1:
        ways = ", ".join(repr(f"{stream}:{name}") for stream, name in found)
        raise CannotSkip(f"{of} reads partition {partition!r} of several streams; name one of {ways}")
    ((stream, name),) = found
    ranges = _only(plans[stream], name)
    return replace(batch, metadata=replace(batch.plan, streams={stream: ranges}).to_json())


def carrying_on(left: Batch, last: Batch | None) -> Batch:
    """Return the batch to give up with the last plans of all other streams, as of the `last` committed batch.

    The next plan continues a skip, and the given up batch may have been planned before a stream had its first records. An
    open batch has no say: a batch planned before the skip is refused if a stream needs the order of planning.
    """
    if last is None:
        return left
    plan = left.plan
    known = {**last.plan.idle, **last.plan.streams}
    idle = {name: each for name, each in known.items() if name not in plan.streams and not isinstance(each, Ranges)}
    return replace(left, metadata=replace(plan, idle={**plan.idle, **idle}).to_json()) if idle else left


def _only(ranges: Ranges, partition: str) -> Ranges:
    """Return the plan of one partition, without unreadable partitions: unreadable partitions are not given up."""
    continues = tuple(name for name in ranges.continues if name == partition)
    return replace(ranges.only([partition]), continues=continues, unreadable={})
