"""Ends of a batch without a commit, in memory: abort and skip (R16). Compare `postgres.aborts`."""

from __future__ import annotations

from txbatch.core.batch.transaction import Batch
from txbatch.core.protocol import decisions
from txbatch.core.protocol.skip import given_up
from txbatch.memory.apart import MemoryWarehouses
from txbatch.memory.tables import Tables


def abort(tables: Tables, warehouses: MemoryWarehouses, ledger: str, batch: Batch) -> Batch:
    """Free the batch's records, once the states apart hold nothing of the batch."""
    if batch.fence and not batch.status.final and tables.open_before(batch.topology, batch.txid) is None:
        warehouses.take_back(ledger, batch, tables.states_apart(batch.topology), tables.view)
    return tables.abort(batch)


def skip(
    tables: Tables, warehouses: MemoryWarehouses, ledger: str, topology: str, txid: int, why: str, partition: str | None
) -> Batch:
    """Abort a batch and give up the records, of all partitions or a single one, by a txid that counts the records as read."""
    now = tables.batch(topology, txid)
    decisions.check_may_skip(now)
    at = topology, txid
    open_before, last_committed = tables.open_before(*at), tables.last_committed(topology)
    also = tables.also_covering(now)
    left = given_up(now, partition)
    decisions.check_skip(left, open_before, last_committed, tables.offsets(topology), also)
    pending = [each for each in tables.batches_of(topology) if not each.status.final]
    if now.status.final:
        warehouses.prepare_skip(ledger, pending, tables.states_apart(topology), tables.view)
    else:
        abort(tables, warehouses, ledger, now)
    return tables.give_up(left, why, found_by_run=partition is None)
