"""The event time of the ledger in memory (R25, R26, R28).

Compare `postgres.tables.event_time`: `core.protocol.event_time` decides for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import Batch, BatchKind, BatchStatus
from txbatch.core.protocol.commit import CommitPlan
from txbatch.core.protocol.event_time import (
    EventTimeFacts,
    advance,
    ahead_of,
    capped,
    late_of,
    pin_watermarks,
    whole_to,
)
from txbatch.core.protocol.ledger import RunPlan
from txbatch.core.protocol.window_closing import Marks, decide_closing, largest
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.topology.topology import Topology
from txbatch.memory.stored import Times
from txbatch.memory.tables import Tables


def pin(tables: Tables, topology: Topology, plans: Sequence[RunPlan], now: datetime) -> list[RunPlan]:
    """Return the plans with watermarks to decide which records are late; a restate keeps the watermarks of the position."""
    watermarks, known, behind = topology.watermarks, marks(tables, topology.name), topology.behind
    return [(run, plan if run.restate else pin_watermarks(plan, watermarks, known, now, behind)) for run, plan in plans]


def note_planned(tables: Tables, topology: str, txid: int, at: datetime) -> None:
    """Keep the time of a batch's planning: no later time moves a watermark."""
    tables.times[topology, txid] = Times(at)


def planned_at(tables: Tables, batch: Batch) -> int | None:
    """Return the time of a batch's planning, in microseconds since 1970; None without watermarks."""
    times = tables.times.get((batch.topology, batch.txid))
    return None if times is None else micros_of(times.planned_at)


def marks(tables: Tables, topology: str) -> Marks:
    """Return the watermarks of a topology's streams as of its last commit."""
    written = {txid: of.watermark for (name, txid), of in tables.times.items() if name == topology and of.watermark}
    return written[max(written)] if written else {}


def closed_to(tables: Tables, topology: str) -> Marks:
    """Return, for each state, the end of closed windows since the last commit of the topology."""
    written = {txid: of.closed_to for (name, txid), of in tables.times.items() if name == topology and of.closed_to}
    return written[max(written)] if written else {}


def _open(tables: Tables, batch: Batch) -> list[Batch]:
    """Return the other batches that may still count for the first time."""
    others = (each for each in tables.batches_of(batch.topology) if each.txid != batch.txid)
    return [each for each in others if not each.status.final and each.kind is BatchKind.ORDINARY]


def note_committed(tables: Tables, plan: CommitPlan, batch: Batch) -> None:
    """Write the watermarks after the batch's commit, the windows closed by the batch, and the number of late records."""
    topology, manifest, at = plan.topology, plan.manifest, (batch.topology, batch.txid)
    watermarks = topology.watermarks
    if not watermarks or at not in tables.times:
        return
    times = replace(tables.times[at], late=late_of(manifest), ahead=ahead_of(manifest))
    if batch.kind is not BatchKind.RESTATE:
        read = _read(tables, batch, manifest, times.planned_at)
        known = EventTimeFacts(
            marks(tables, batch.topology),
            read,
            lambda stream: _behind(tables, batch.topology, stream),
            lambda reached: _whole_to(tables, batch.topology, reached),
        )
        after = advance(watermarks, batch.plan, known, topology.behind)
        open_plans = [each.plan.marks(watermarks) for each in _open(tables, batch)]
        shut, found = decide_closing(topology.aggregates, closed_to(tables, batch.topology), after, open_plans)
        times = replace(times, watermark=after, closed_to=shut, closed=found)
    tables.times[at] = times


def _read(tables: Tables, batch: Batch, manifest: Manifest, planned_at: datetime) -> dict[str, list[int | None]]:
    """Return the largest time of each partition read by the batch, including earlier reads, and keep the times."""
    found: dict[str, list[int | None]] = {}
    for stream, parts in manifest.streams.items():
        for partition, part in parts.items():
            at = batch.topology, stream, partition
            latest = capped(part.latest, planned_at)
            if stream in batch.plan.partitioned and (latest := largest([latest, tables.latest.get(at)])) is not None:
                tables.latest[at] = latest
            found.setdefault(stream, []).append(latest)
    return found


def _behind(tables: Tables, topology: str, stream: str) -> Iterable[int | None]:
    """Return the largest time of each partition missed, by an unreadable range or an abort, since the partition was last
    read.
    """
    last: dict[str, int] = {}
    missed: dict[str, int] = {}
    for batch in tables.batches_of(topology):
        planned = batch.plan.partitioned.get(stream)
        if planned is None or batch.kind is BatchKind.RESTATE:
            continue
        aborted = batch.status is BatchStatus.ABORTED and batch.kind is BatchKind.ORDINARY
        for partition in {**planned.ranges, **planned.unreadable}:
            read = tables.partitions.get((topology, stream, partition, batch.txid))
            if batch.status is BatchStatus.COMMITTED:
                given_up = batch.kind is BatchKind.SKIP and partition not in planned.unreadable
                (last if read is not None or given_up else missed)[partition] = batch.txid
            elif aborted and partition in planned.ranges:
                missed[partition] = batch.txid
    behind = (partition for partition, txid in missed.items() if txid > last.get(partition, 0))
    return [tables.latest.get((topology, stream, partition)) for partition in behind]


def _whole_to(tables: Tables, topology: str, reached: int | None) -> datetime | None:
    """Return the end of the first gapless intervals of committed batches that have `reached` a time."""
    committed = [batch for batch in tables.batches_of(topology) if batch.status is BatchStatus.COMMITTED]
    ordinary = [batch.txid for batch in committed if batch.kind is not BatchKind.RESTATE]
    known = (tables.intervals[topology, txid] for txid in ordinary if (topology, txid) in tables.intervals)
    return whole_to(known, reached)
