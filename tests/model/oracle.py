"""What must be true in every state, recomputed from the source and from what the workers read; never from our counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from model.ledgers import Seen
from model.source import STREAM, Record, Weights, records_of

from txbatch.core.batch.apart import ApartStatus
from txbatch.core.batch.transaction import Batch, BatchKind, BatchStatus

# By txid: what each of its attempts read, in the order in which they were issued; None before it did.
Read = Mapping[int, tuple[tuple[str, frozenset[Record] | None], ...]]


class Violation(AssertionError):
    """A rule of the protocol does not hold."""


def require(holds: bool, what: str) -> None:
    """A rule, and what it says when it is broken."""
    if not holds:
        raise Violation(what)


def check(seen: Seen, read: Read, source: Weights, max_pending: int) -> None:
    """Every invariant, in one state."""
    txids = [batch.txid for batch in seen.batches]
    require(txids == list(range(1, len(txids) + 1)), f"txids are not consecutive from 1: {txids} (R1)")
    in_flight = sum(not batch.status.final for batch in seen.batches)
    require(in_flight <= max_pending, f"{in_flight} batches are in flight, {max_pending} are allowed (R6)")
    counted = counted_by(seen, read)
    check_order(seen, counted)
    check_versions(seen)
    check_counted_once(current(seen, counted), given_up(seen))
    if seen.last is None:
        check_values(seen, counted, source)
    else:
        check_apart(seen, counted, read, source)
    check_offsets(seen, counted)


def counted_by(seen: Seen, read: Read) -> dict[int, frozenset[Record]]:
    """The records of each committed batch, as the attempt that stands in its fence has read them."""
    return {batch.txid: _read_by(batch, read) for batch in seen.batches if _counts(batch)}


def current(seen: Seen, counted: Mapping[int, frozenset[Record]]) -> dict[int, frozenset[Record]]:
    """Of these, the records of the batches that count still: no restate has taken their place (R17)."""
    return {batch.txid: counted[batch.txid] for batch in seen.batches if _counts(batch) and batch.replaced_by is None}


def given_up(seen: Seen) -> frozenset[Record]:
    """The records that were skipped, by a committed batch without any attempt (R16), unless a restate counts them after all."""
    skips = (
        batch
        for batch in seen.batches
        if batch.status is BatchStatus.COMMITTED and not batch.fence and batch.replaced_by is None
    )
    return frozenset().union(*(records_of(ranges_of(batch)) for batch in skips))


def ranges_of(batch: Batch) -> Mapping[str, Any]:
    """The ranges that a batch names, by partition."""
    return batch.plan.streams[STREAM].ranges


def _counts(batch: Batch) -> bool:
    return batch.status is BatchStatus.COMMITTED and batch.fence > 0


def _read_by(batch: Batch, read: Read) -> frozenset[Record]:
    newest_token, newest = read[batch.txid][-1]
    require(newest_token == batch.token, f"txid {batch.txid} is committed by another attempt than its newest (R5)")
    require(newest is not None, f"txid {batch.txid} is committed, but its newest attempt has read nothing (R7)")
    assert newest is not None
    return newest


def check_order(seen: Seen, counted: Mapping[int, frozenset[Record]]) -> None:
    """State changes in txid order: below a batch that counts, every batch is final."""
    newest = max(counted, default=0)
    still_open = [batch.txid for batch in seen.batches if batch.txid < newest and not batch.status.final]
    require(not still_open, f"txid {newest} is committed before {still_open} (R6)")


def check_counted_once(counted: Mapping[int, frozenset[Record]], skipped: frozenset[Record]) -> None:
    """No record is in two batches, nor counted and given up."""
    owner: dict[Record, str] = dict.fromkeys(skipped, "given up")
    for txid, records in counted.items():
        for record in records:
            require(record not in owner, f"record {record} counts in txid {txid}, and is {owner.get(record)}")
            owner[record] = f"counted in txid {txid}"


def check_versions(seen: Seen) -> None:
    """Of the committed batches that stand for a position each replaces the one before it, and the newest counts (R17)."""
    final = [batch for batch in seen.batches if batch.status is BatchStatus.COMMITTED]
    for first in (batch for batch in final if batch.kind is not BatchKind.RESTATE):
        versions = [batch for batch in final if batch.position == first.txid]
        by = [batch.replaced_by for batch in versions]
        told = f"txid {first.txid} and its restates are replaced by {by}"
        require(versions[0] == first and by == [*(each.txid for each in versions[1:]), None], f"{told} (R17)")
        read = [ranges_of(batch).keys() for batch in versions]
        require(all(names <= read[0] for names in read), f"txid {first.txid} was counted again with more than it had")


def check_values(seen: Seen, counted: Mapping[int, frozenset[Record]], source: Weights) -> None:
    """State is the fold of the contributions, and both are what the source adds up to (R9, R10)."""
    expected = source.fold(record for records in current(seen, counted).values() for record in records)
    values = {key: value for key, (value, _, _) in seen.rows.items()}
    require(values == expected, f"state is {values}, the source adds up to {expected}")
    of = {batch.txid: batch for batch in seen.batches}
    folds = {
        (key, of[txid].position, txid): value
        for txid, batch in counted.items()
        for key, value in source.fold(batch).items()
    }
    require(seen.contributions == folds, f"contributions are {seen.contributions}, the source adds up to {folds}")
    for key, (value, txid, before) in seen.rows.items():
        changed = {at for each, _, at in folds if each == key}
        newest = max(changed | {by for at in changed if (by := of[at].replaced_by) is not None})
        require(txid == newest, f"{key} says txid {txid}, txid {newest} was the last to change it (R19)")
        counts = [folds[at] for at in folds if at[0] == key and at[2] < txid <= (of[at[2]].replaced_by or txid)]
        if before is not None:
            require(
                before == sum(counts), f"{key} is {value} and says {before} before txid {txid}, not {sum(counts)} (R9)"
            )


def check_apart(seen: Seen, counted: Mapping[int, frozenset[Record]], read: Read, source: Weights) -> None:
    """A state apart is what the ledger has committed, and at most what the batch has read whose commit ends there next (R21).

    Reckoned from the source and from what the attempt that wrote last has read.
    """
    last, batches = seen.last, {batch.txid: batch for batch in seen.batches}
    assert last is not None
    there = dict(counted)
    if last.status is ApartStatus.APPLIED and last.txid not in counted:
        batch = batches[last.txid]
        require(
            not batch.status.final, f"txid {last.txid} is {batch.status}, and its rows are in the warehouse (R16, R21)"
        )
        (half,) = (records for token, records in read[last.txid] if token == last.token)
        assert half is not None
        there[last.txid] = half
    newest = max(there, default=0)
    applied = last.status is ApartStatus.APPLIED and last.txid == newest
    require(not newest or last.txid > newest or applied, f"the warehouse is at {last}, behind txid {newest} (R21)")
    expected = source.fold(record for records in there.values() for record in records)
    values = {key: value for key, (value, _, _) in seen.rows.items()}
    require(values == expected, f"the warehouse has {values}, the source adds up to {expected} (R21)")
    folds = {(key, txid) for txid, records in there.items() for key in source.fold(records)}
    for key, (_, txid, _) in seen.rows.items():
        last = max(at for each, at in folds if each == key)
        require(txid == last, f"{key} says txid {txid} in the warehouse, txid {last} was the last to change it (R19)")


def check_offsets(seen: Seen, counted: Mapping[int, frozenset[Record]]) -> None:
    """What is consumed of a partition is what was read or given up of it: batch after batch, without a gap."""
    final = sorted(_final_ranges(seen, counted))
    ends = {partition: end for partition, _, end, _ in final if partition}
    require(seen.consumed == ends, f"consumed is {seen.consumed}, read or given up was {ends}")
    for partition in ends:
        own = [(start, end) for name, start, end, _ in final if name == partition]
        starts = [0, *(end for _, end in own)]
        require([start for start, _ in own] == starts[:-1], f"ranges of {partition} are not continuous: {own} (R6)")
        order = [txid for name, _, _, txid in final if name == partition and txid in counted]
        require(all(a < b for a, b in pairwise(order)), f"{partition} was read by txids {order}, in this order (R6)")


def _final_ranges(seen: Seen, counted: Mapping[int, frozenset[Record]]) -> Iterator[tuple[str, int, int, int]]:
    for batch in seen.batches:
        if batch.status is not BatchStatus.COMMITTED or batch.kind is BatchKind.RESTATE:
            continue
        for partition, range_ in ranges_of(batch).items():
            planned = records_of({partition: range_})
            hole = bool(batch.fence and planned and not planned & counted[batch.txid])
            recorded = seen.read.get((batch.txid, partition))
            if batch.fence:
                require(
                    hole == (recorded is None), f"txid {batch.txid}: the hole in {partition} is not told as one (R13)"
                )
            if not hole:
                yield partition, range_["start"], range_["end"], batch.txid


def check_still_final(before: Mapping[int, Any], after: Mapping[int, Any]) -> None:
    """A batch that is committed or aborted stays as it is."""
    for txid, batch in before.items():
        require(after.get(txid) == batch, f"txid {txid} was final as {batch}, and is now {after.get(txid)}")
