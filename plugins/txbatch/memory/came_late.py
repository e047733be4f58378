"""Late records met by batches, in memory. Compare `postgres.tables.came_late`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime

from txbatch.core.batch.plan import BatchPlan, OfInterval
from txbatch.core.batch.planned_files import Entry
from txbatch.core.batch.transaction import Batch, BatchKind, BatchStatus
from txbatch.core.protocol.lookback import FOUND_MAX, INTERVALS_MAX, NEWEST, CountedPlan, FoundLate, LookFacts
from txbatch.core.records.time_buckets import micros_of
from txbatch.memory.tables import Tables


def look_facts(tables: Tables, batch: Batch, since: datetime | None) -> LookFacts:
    """Return the plan of the last look before a batch, and the intervals of earlier batches."""
    last = _last_look(tables, batch, since)
    return LookFacts(None if last is None else last.plan, tuple(_intervals_before(tables, batch, since)))


def _last_look(tables: Tables, batch: Batch, since: datetime | None) -> Batch | None:
    before = [
        each
        for each in tables.batches_of(batch.topology)
        if each.txid < batch.txid and each.status is BatchStatus.COMMITTED and each.kind is BatchKind.ORDINARY
        if (each.topology, each.txid) in tables.intervals
    ]
    looked = [each for each in before if (each.topology, each.txid) in tables.came_late]
    within = [each for each in before if since and tables.intervals[each.topology, each.txid].end > since]
    return next(iter([*looked[-1:], *within[:1], *before[-1:]]), None)


def _intervals_before(tables: Tables, batch: Batch, since: datetime | None) -> list[tuple[int, int, int]]:
    alive = {
        each.txid
        for each in tables.batches_of(batch.topology)
        if each.txid < batch.txid and each.status is not BatchStatus.ABORTED and each.kind is not BatchKind.RESTATE
    }
    of = {txid: at for (name, txid), at in tables.intervals.items() if name == batch.topology and txid in alive}
    newest = sorted(of.items(), key=lambda each: each[1].start, reverse=True)[:INTERVALS_MAX]
    found = [each for rank, each in enumerate(newest) if rank < NEWEST or (since and each[1].end > since)]
    return [(txid, micros_of(at.start), micros_of(at.end)) for txid, at in reversed(found)]


def found_late(tables: Tables, topology: str) -> list[FoundLate]:
    """Return the late records met by committed batches, unless a later version counts the records."""
    met = sorted((txid for name, txid in tables.came_late if name == topology), reverse=True)
    return [each for txid in met for each in _found_by(tables, tables.batch(topology, txid))][:FOUND_MAX]


def counted_plans(
    tables: Tables, topology: str, since: datetime | None, until: datetime, most: int
) -> list[CountedPlan]:
    """Return the newest committed positions with intervals in a time, with the counting plans, newest first."""
    known = {txid: interval for (name, txid), interval in tables.intervals.items() if name == topology}
    newest = sorted(known.items(), key=lambda each: each[1].start, reverse=True)
    found = list[CountedPlan]()
    for position, interval in newest:
        first = tables.batch(topology, position)
        if first.status is not BatchStatus.COMMITTED or interval.start >= until or (since and interval.end <= since):
            continue
        version = tables.version(topology, position)
        found.append(CountedPlan(position, version.current.txid, interval, version.plan))
    return found[:most]


def _found_by(tables: Tables, batch: Batch) -> Iterator[FoundLate]:
    came = tables.came_late[batch.topology, batch.txid]
    found = [(position, stream) for stream, of in came.items() for position in of]
    for position, stream in sorted(found, key=lambda each: (-each[0], each[1])):
        version, files = _version(tables, batch.topology, position), came[stream][position]
        if version is None or (version.txid > batch.txid and version.status is BatchStatus.COMMITTED):
            continue
        again = tables.rebuilt(version)
        plans = batch.plan, version.plan if again is None else again[0]
        seen, counted = (_entries(plan, stream, files) for plan in plans)
        interval = tables.intervals[batch.topology, position]
        of = version.txid, version.status, version.lease_run
        yield FoundLate(batch.txid, stream, position, interval, *of, files, seen, counted)


def _version(tables: Tables, topology: str, position: int) -> Batch | None:
    """Return the newest version of a position, without aborted versions."""
    versions = [
        each
        for each in tables.batches_of(topology)
        if each.status is not BatchStatus.ABORTED
        if each.txid == position or (each.kind is BatchKind.RESTATE and each.position == position)
    ]
    return versions[-1] if versions else None


def _entries(plan: BatchPlan, stream: str, files: Collection[str]) -> Mapping[str, Entry]:
    planned = plan.streams.get(stream)
    known = planned.plan.get("files", {}) if isinstance(planned, OfInterval) else {}
    return {name: known[name] for name in known if name in files}
