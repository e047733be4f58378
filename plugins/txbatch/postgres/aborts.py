"""End a batch without a commit: abort frees the batch's records, skip gives the records up (R16)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from txbatch.core.batch.transaction import STORED_BYTES_MAX, Batch, BatchStatus, Run, canonical_json
from txbatch.core.errors import HalfCommitted
from txbatch.core.protocol import decisions
from txbatch.core.protocol.skip import given_up
from txbatch.core.text import one_line
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.database.queries import query
from txbatch.postgres.tables import batches, offsets


def abort(connection: Connection, warehouses: Warehouses, topology: str, txid: int, why: str) -> Batch:
    """Free the records of an uncommitted batch. Raise TerminalError if the batch is committed."""
    ids: dict[str, Any] = {"topology": topology, "txid": txid}
    batches.lock_topology(connection, topology)  # no plan builds on the batch meanwhile
    batch = batches.lock_batch(connection, **ids)
    decisions.check_abort(batch)
    if batch.status is not BatchStatus.ABORTED:
        _free(connection, warehouses, batch, why)
    return batches.batch(connection, **ids)


def skip(
    connection: Connection, warehouses: Warehouses, topology: str, txid: int, why: str, partition: str | None
) -> Batch:
    """Abort a batch and count the batch's records as read, by a new txid. Raise the same errors as `Ledger.skip`."""
    ids: dict[str, Any] = {"topology": topology, "txid": txid}
    batches.lock_topology(connection, topology)
    batch = batches.lock_batch(connection, **ids)
    decisions.check_may_skip(batch)
    pending = batches.batches(connection, "lock_open_batches", topology=topology)  # none of them commits meanwhile
    also = connection.execute(query("also_covering"), ids).scalars().all()
    left = given_up(batch, partition)
    decisions.check_skip(left, *batches.order(connection, batch), also)
    if batch.status.final:
        warehouses.prepare_skip(connection, pending)
    else:
        _free(connection, warehouses, batch, why)
    skipped = {**ids, "skip_txid": batches.last_txid(connection, topology) + 1, "reason": one_line(why)}
    metadata = canonical_json(left.metadata, STORED_BYTES_MAX)
    connection.execute(query("insert_skip"), {**skipped, "prev_txid": batch.prev_txid, "metadata": metadata})
    if partition is None:
        connection.execute(query("repoint_keys"), skipped)
    done = batches.batch(connection, topology, skipped["skip_txid"])
    offsets.record(connection, done, offsets.skipped(done, skipped["reason"]))
    return done


def abandon(connection: Connection, warehouses: Warehouses, abandoned: Batch, run: Run) -> bool:
    """Abort an abandoned batch; return False if a warehouse has rows of the batch and cannot take them back."""
    try:
        _free(connection, warehouses, abandoned, f"abandoned by {abandoned.lease_run}; {run.name} found it so")
    except HalfCommitted:
        return False
    return True


def _free(connection: Connection, warehouses: Warehouses, batch: Batch, reason: str) -> None:
    """Take back all rows in states apart, then free the batch's records."""
    warehouses.take_back(connection, batch)
    ids: dict[str, Any] = {"topology": batch.topology, "txid": batch.txid}
    connection.execute(query("supersede_attempts"), ids)
    connection.execute(query("abort"), {**ids, "reason": one_line(reason)})
    offsets.note_missed(connection, batch)
