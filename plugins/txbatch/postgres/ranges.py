"""What a final batch read of each partition, and where the next one starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

from txbatch.core.manifest import Manifest
from txbatch.core.transaction import Batch, BatchKind, canonical_json
from txbatch.postgres.queries import query

# How a range of a partition ended: `status`, `records`, `fingerprint`, `reason`.
Outcome = dict[str, Any]


def read(manifest: Manifest) -> Callable[[str, str], Outcome]:
    """Return what tells an outcome as the manifest does: read, or a hole (R13)."""

    def outcome(stream: str, partition: str) -> Outcome:
        found = manifest.streams.get(stream, {}).get(partition)
        if found is None:
            return _unread("unreadable", manifest.unreadable.get(stream, {}).get(partition))
        return {"status": "read", "records": found.records, "fingerprint": found.fingerprint, "reason": None}

    return outcome


def skipped(batch: Batch, why: str) -> Callable[[str, str], Outcome]:
    """Return what tells an outcome of a batch whose records are given up: skipped, but for what it could not ask (R16)."""
    plans = batch.plan.streams

    def outcome(stream: str, partition: str) -> Outcome:
        if partition in plans[stream].unreadable:
            return _unread("unreadable", plans[stream].unreadable[partition])
        return _unread("skipped", why)

    return outcome


def record(connection: Connection, batch: Batch, outcome: Callable[[str, str], Outcome]) -> None:
    """Write what became of each range of the batch; the next batch starts after all but the unreadable ones.

    A restate moves nothing: what comes next does not depend on what is counted again (R17).
    """
    ranges: list[dict[str, Any]] = []
    for stream, plan in batch.plan.streams.items():
        for partition, range_ in {**{name: {} for name in plan.unreadable}, **plan.ranges}.items():
            where = {"topology": batch.topology, "txid": batch.txid, "stream": stream, "partition": partition}
            ranges.append({**where, "metadata": canonical_json(range_), **outcome(stream, partition)})
    connection.execute(query("insert_partition"), ranges)
    if batch.kind is BatchKind.RESTATE:
        return
    carried = batch.plan.partitioned
    consumed = [row for row in ranges if row["stream"] in carried and row["status"] != "unreadable"]
    if consumed:
        connection.execute(query("set_consumed"), consumed)


def _unread(status: str, reason: str | None) -> Outcome:
    return {"status": status, "records": None, "fingerprint": None, "reason": reason}
