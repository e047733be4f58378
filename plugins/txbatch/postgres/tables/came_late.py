"""Late records met by batches, and the facts for the look of an attempt."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from txbatch.core.batch.came_late import Late, came_to_json
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Batch, BatchStatus, Interval
from txbatch.core.protocol.lookback import FOUND_MAX, INTERVALS_MAX, NEWEST, CountedPlan, FoundLate, LookFacts
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.stored_json import STORED_BYTES_MAX, canonical_json
from txbatch.postgres.database.queries import query


def column(manifest: Manifest) -> dict[str, str | None]:
    """Return the column for a batch's late records; null if the attempt did not look."""
    came = manifest.came_late
    return {"came_late": None if came is None else canonical_json(came_to_json(came), STORED_BYTES_MAX)}


def look_facts(connection: Connection, batch: Batch, since: datetime | None) -> LookFacts:
    """Return the plan of the last look before a batch, and the intervals of earlier batches."""
    of = {"topology": batch.topology, "txid": batch.txid, "since": since}
    last = connection.execute(query("last_look"), of).first() or connection.execute(query("first_look"), of).first()
    of_last = f"{batch.topology}: the plan of txid"
    before = None if last is None else BatchPlan.from_json(last.metadata, f"{of_last} {last.txid}")
    found = connection.execute(query("intervals_before"), {**of, "most": INTERVALS_MAX, "newest": NEWEST})
    intervals = ((row.txid, micros_of(row.interval_start), micros_of(row.interval_end)) for row in found)
    return LookFacts(before, tuple(intervals))


def found_late(connection: Connection, topology: str) -> list[FoundLate]:
    """Return the late records met by committed batches, unless a later version counts the records."""
    found = connection.execute(query("found_late"), {"topology": topology, "most": FOUND_MAX})
    return [_found(row) for row in found]


def counted_plans(
    connection: Connection, topology: str, since: datetime | None, until: datetime, most: int
) -> list[CountedPlan]:
    """Return the newest committed positions with intervals in a time, with the counting plans, newest first."""
    asked = {"topology": topology, "since": since, "until": until, "most": most}
    return [
        CountedPlan(
            row.position,
            row.txid,
            Interval(row.interval_start, row.interval_end),
            BatchPlan.from_json(row.metadata, f"{topology}: the plan of txid {row.txid}"),
        )
        for row in connection.execute(query("counted_plans"), asked)
    ]


def _found(row: Any) -> FoundLate:
    return FoundLate(
        row.found_by,
        row.stream,
        row.position,
        Interval(row.interval_start, row.interval_end),
        row.version,
        BatchStatus(row.status),
        row.run,
        {name: Late(*late) for name, late in row.files.items()},
        row.seen or {},
        row.counted or {},
    )
