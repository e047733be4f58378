"""The ledger's event time in PostgreSQL (R25, R26, R28): read under locks, ask `core.protocol.event_time`, write."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from txbatch import failpoints
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Batch, BatchKind
from txbatch.core.protocol.commit import CommitPlan
from txbatch.core.protocol.event_time import EventTimeFacts, advance, ahead_of, late_of, pin_watermarks
from txbatch.core.protocol.ledger import RunPlan
from txbatch.core.protocol.window_closing import Marks, decide_closing, largest
from txbatch.core.stored_json import canonical_json
from txbatch.core.topology.topology import Topology
from txbatch.postgres.database.queries import query
from txbatch.postgres.tables.offsets import Ended


def marks(connection: Connection, topology: str) -> Marks:
    """Return the watermarks of a topology's streams as of its last commit."""
    return connection.execute(query("watermarks"), {"topology": topology}).scalar() or {}


def closed_to(connection: Connection, topology: str) -> Marks:
    """Return, by state, the time up to which windows are closed as of the topology's last commit."""
    return connection.execute(query("closed_to"), {"topology": topology}).scalar() or {}


def pin(connection: Connection, topology: Topology, plans: Sequence[RunPlan]) -> list[RunPlan]:
    """Return plans with the watermarks by which their records are late; a restate has its position's watermarks.

    No commit closes windows until the transaction ends (R26).
    """
    if topology.closes:
        let_plan(connection, topology.name)
    known, now = marks(connection, topology.name), connection.execute(query("clock")).scalar_one()
    watermarks, behind = topology.watermarks, topology.behind
    return [(run, plan if run.restate else pin_watermarks(plan, watermarks, known, now, behind)) for run, plan in plans]


def let_plan(connection: Connection, topology: str) -> None:
    """Wait until no commit closes windows, and keep commits from closing windows until the transaction ends (R26).

    Afterwards the transaction takes no lock that a commit holds.
    """
    connection.execute(query("let_plan"), {"topology": topology})


def commit(connection: Connection, plan: CommitPlan, ranges: list[Ended]) -> None:
    """Write the batch's watermarks, the windows the batch closes, and how many records were late or ahead.

    `ranges` are the ranges the batch read. A restate moves no watermark, and closes nothing.
    """
    topology, batch, watermarks = plan.topology, plan.batch, plan.topology.watermarks
    if not watermarks:
        return
    told: dict[str, Any] = {"watermark": None, "closed_to": None, "closed": None, "late": late_of(plan.manifest)}
    if batch.kind is not BatchKind.RESTATE:
        if topology.closes:
            connection.execute(query("close_alone"), {"topology": batch.topology})
        behind, open_plans = _uncounted(connection, plan)
        failpoints.hit("commit.times_read")
        known = EventTimeFacts(
            marks(connection, batch.topology),
            _read(connection, batch, ranges),
            lambda stream: behind.get(stream, ()),
            lambda reached: _whole_to(connection, batch.topology, reached),
        )
        told["watermark"] = after = advance(watermarks, batch.plan, known, topology.behind)
        if topology.closes:
            before = closed_to(connection, batch.topology)
            told["closed_to"], told["closed"] = decide_closing(topology.aggregates, before, after, open_plans)
    written = {name: canonical_json(value) if value else None for name, value in told.items()}
    ahead, to = ahead_of(plan.manifest) or (None, None)
    of = {"topology": batch.topology, "txid": batch.txid, "ahead": ahead, "ahead_to": to}
    connection.execute(query("batch_times"), {**of, **written})


def _uncounted(connection: Connection, plan: CommitPlan) -> tuple[dict[str, list[int | None]], list[Marks]]:
    """Return, by stream, the largest times of the partitions that are behind, and the watermarks of all other open plans.

    Both are read at once: an abort beside the commit moves a plan from the open plans to the partitions that are behind.
    """
    names = {"topology": plan.batch.topology, "txid": plan.batch.txid}
    behind: dict[str, list[int | None]] = {}
    plans = list[Marks]()
    for row in connection.execute(query("uncounted"), names):
        if row.stream is not None:
            behind.setdefault(row.stream, []).append(row.latest)
        else:
            open_plan = BatchPlan({}, watermark=row.watermark or {}, planned_at=row.planned_at)
            plans.append(open_plan.marks(plan.topology.watermarks))
    return behind, plans


def _read(connection: Connection, batch: Batch, ranges: list[Ended]) -> dict[str, list[int | None]]:
    """Return, by stream, the largest time in each partition the batch read, with earlier reads of the partition."""
    found: dict[str, list[int | None]] = {}
    for stream, planned in batch.plan.streams.items():
        read = {
            row["partition"]: row["latest"] for row in ranges if row["stream"] == stream and row["status"] == "read"
        }
        names = {"topology": batch.topology, "stream": stream, "partitions": list(read)}
        before: dict[str, int | None] = {}
        if stream in batch.plan.partitioned and planned.ranges:
            before = {row.partition: row.latest for row in connection.execute(query("latest_of"), names)}
        found[stream] = [largest([latest, before.get(partition)]) for partition, latest in read.items()]
    return found


def _whole_to(connection: Connection, topology: str, reached: int | None) -> datetime | None:
    end: datetime | None = connection.execute(query("whole_to"), {"topology": topology, "reached": reached}).scalar()
    return end
