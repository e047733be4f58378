"""The counting version at the position of a committed batch, and the words for a restate there (R17)."""

from __future__ import annotations

from txbatch.core.batch.transaction import Batch
from txbatch.core.protocol.ledger import Ledger


def counting(ledger: Ledger, batch: Batch) -> int:
    """Return the txid that counts at a batch's position."""
    return batch.txid if batch.replaced_by is None else ledger.version(batch.topology, batch.txid).current.txid


def in_place_of(ledger: Ledger, batch: Batch) -> str:
    """Return the words for a restate that counts in a batch's place; empty without a restate."""
    txid = counting(ledger, batch)
    return "" if txid == batch.txid else f", counted again as txid {txid}"
