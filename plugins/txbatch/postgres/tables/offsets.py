"""The part of each partition that a final batch read, and the start of the next part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import Batch, BatchKind
from txbatch.core.protocol.event_time import capped
from txbatch.core.stored_json import STORED_BYTES_MAX, canonical_json
from txbatch.postgres.database.queries import query

# How a range of a partition ended: `status`, `records`, `fingerprint`, `reason`, and the `latest` time that was read.
Outcome = dict[str, Any]
# The same with the `stream` and the `partition`.
Ended = dict[str, Any]


def read(manifest: Manifest, planned_at: datetime) -> Callable[[str, str], Outcome]:
    """Return a function from partition to outcome, by a batch's manifest: read, or a hole (R13).

    The latest time is at most the time of the plan (R25).
    """

    def outcome(stream: str, partition: str) -> Outcome:
        found = manifest.streams.get(stream, {}).get(partition)
        if found is None:
            return _unread("unreadable", manifest.unreadable.get(stream, {}).get(partition))
        counted = {
            "records": found.records,
            "fingerprint": found.fingerprint,
            "latest": capped(found.latest, planned_at),
        }
        return {"status": "read", "reason": None, **counted}

    return outcome


def skipped(batch: Batch, why: str) -> Callable[[str, str], Outcome]:
    """Return a function from partition to outcome for a batch given up: skipped, or unreadable as planned (R16)."""
    plans = batch.plan.streams

    def outcome(stream: str, partition: str) -> Outcome:
        if partition in plans[stream].unreadable:
            return _unread("unreadable", plans[stream].unreadable[partition])
        return _unread("skipped", why)

    return outcome


def record(connection: Connection, batch: Batch, outcome: Callable[[str, str], Outcome]) -> list[Ended]:
    """Write the outcome of each range of the batch, and return the outcomes.

    The next batch starts after all ranges but the unreadable. A restate moves no offset: the next batch does not depend on a
    batch counted again (R17).
    """
    ids: dict[str, Any] = {"topology": batch.topology, "txid": batch.txid}
    ranges: list[Ended] = []
    for stream, plan in batch.plan.streams.items():
        for partition, range_ in {**{name: {} for name in plan.unreadable}, **plan.ranges}.items():
            where = {"stream": stream, "partition": partition, "metadata": canonical_json(range_, STORED_BYTES_MAX)}
            ranges.append({**where, **outcome(stream, partition)})
    connection.execute(query("insert_partitions"), {**ids, **_columns(ranges)})
    if batch.kind is BatchKind.RESTATE:
        return ranges
    carried = batch.plan.partitioned
    consumed = [row for row in ranges if row["stream"] in carried and row["status"] != "unreadable"]
    missed = [row for row in ranges if row["stream"] in carried and row["status"] == "unreadable"]
    if missed:
        connection.execute(query("lock_behind"), {**ids, **_columns(missed)})
    if consumed:
        connection.execute(query("set_consumed"), {**ids, **_columns(consumed)})
        connection.execute(query("caught_up"), {"topology": batch.topology})
    return ranges


def note_missed(connection: Connection, batch: Batch) -> None:
    """Note that an ordinary batch is aborted: the batch's partitions are behind until another batch reads them (R25)."""
    if batch.kind is BatchKind.ORDINARY:
        ids = {"topology": batch.topology, "txid": batch.txid}
        named = ((stream, each) for stream, planned in batch.plan.partitioned.items() for each in planned.ranges)
        missed = [{"stream": stream, "partition": partition} for stream, partition in named]
        if missed:
            connection.execute(query("set_behind"), {**ids, **_columns(missed)})


def _columns(rows: Sequence[Ended]) -> dict[str, list[Any]]:
    """Return the values of each column, in the order of the rows."""
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def _unread(status: str, reason: str | None) -> Outcome:
    return {"status": status, "records": None, "fingerprint": None, "reason": reason, "latest": None}
