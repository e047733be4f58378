"""Store the next txids with their plans (R1, R2): all plans of a call by a few statements, however many plans there are.

The caller holds the lock of the topology, and commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection

from txbatch.core.batch.transaction import Batch, Interval
from txbatch.core.protocol import decisions
from txbatch.core.protocol.ledger import Head, RunPlan
from txbatch.core.stored_json import STORED_BYTES_MAX, canonical_json
from txbatch.core.text import one_line
from txbatch.postgres.database.queries import query
from txbatch.postgres.schema import state_tables
from txbatch.postgres.tables import batches

# So many bytes of plans go by one statement: a plan by time names every file.
STATEMENT_BYTES = 16_000_000
Row = dict[str, Any]


def insert(connection: Connection, head: Head, plans: Sequence[RunPlan], lease_seconds: int) -> list[Batch]:
    """Store plans one after the other; return the batches, in the same order."""
    for txid in range(head.next_txid, head.next_txid + len(plans), state_tables.AHEAD_TXIDS):
        state_tables.ensure_partitions(connection, head.topology, txid)
    given, stored = {"topology": head.topology, "lease_seconds": lease_seconds}, list[Batch]()
    for piece in _in_pieces(_rows(head, plans)):
        columns = {name: [row[name] for row in piece] for name in piece[0]}
        stored += batches.batches(connection, "insert_batches", **given, **columns)
        connection.execute(query("insert_batch_keys"), {**given, **columns})
        connection.execute(query("forget_waits"), {**given, **columns})
    return sorted(stored, key=lambda each: each.txid)


def taken_intervals(connection: Connection, topology: str, asked: Sequence[Interval]) -> decisions.TakenIntervals:
    """Return the intervals of batches that overlap the span of the given intervals."""
    between = {"interval_start": min(each.start for each in asked), "interval_end": max(each.end for each in asked)}
    found = connection.execute(query("overlapping_intervals"), {"topology": topology, **between})
    intervals = [Interval(row.start, row.end) for row in found]
    return decisions.TakenIntervals(topology, connection.execute(query("clock")).scalar_one(), intervals)


def _rows(head: Head, plans: Iterable[RunPlan]) -> Iterator[Row]:
    """Yield the row to store for each plan, by the names of the statements' parameters."""
    prev_txid = head.prev_txid
    for txid, (run, metadata) in enumerate(plans, head.next_txid):
        again, interval = run.restate, run.interval if run.restate is None else None
        yield {
            "txids": txid,
            "positions": again.position if again else None,
            "keys": run.key,
            "starts": interval.start if interval else None,
            "ends": interval.end if interval else None,
            "plans": canonical_json(metadata, STORED_BYTES_MAX),
            "prev_txids": None if again else prev_txid,
            "runs": run.name,
            "reasons": one_line(again.why) if again else None,
            "requested_by": again.by if again else None,
            "found_by": again.found_by if again else None,
            "dag_ids": run.dag_id,
            "run_ids": run.run_id,
        }
        prev_txid = prev_txid if again else txid


def _in_pieces(found: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield rows in lists: one statement takes a whole list."""
    piece, size = list[Row](), 0
    for row in found:
        more = len(row["plans"])
        if piece and size + more > STATEMENT_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(row)
        size += more
    yield piece
