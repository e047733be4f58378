"""Give a batch up: free the records of an uncommitted batch, or count the records as read (R16)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from txbatch.core.errors import UnknownName
from txbatch.core.protocol.ledger import Ledger


@dataclass(frozen=True, slots=True)
class GivenUp:
    """An aborted batch. `by` is the txid that counts the records as read, of `partition` alone if given; None: records are free.

    `worker` is the live run that looked after the batch.
    """

    topology: str
    txid: int
    why: str
    by: int | None = None
    partition: str | None = None
    worker: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return the row for people and scripts."""
        partition = {"partition": self.partition} if self.partition else {}
        return {
            "topology": self.topology,
            "aborted": self.txid,
            "given up by txid": self.by,
            **partition,
            "why": self.why,
        }

    @property
    def of_worker(self) -> str | None:
        """What becomes of the run that was at work; None if no run was."""
        if self.worker is None:
            return None
        return f"{self.worker} was at work on txid {self.txid}; it fails, and its next try plans anew"


def give_up(
    ledger: Ledger, topology: str, txid: int, why: str, *, skip: bool = False, partition: str | None = None
) -> GivenUp:
    """Abort a batch, and with `skip` also give up the batch's records, or the records of one partition.

    Raise the errors of the ledger: AlreadyCommitted, UnknownName, CannotSkip and others.
    """
    worker = _at_work(ledger, topology, txid)
    batch = ledger.skip(topology, txid, why, partition) if skip else ledger.abort(topology, txid, why)
    return GivenUp(topology, txid, why, batch.txid if skip else None, partition, worker)


def _at_work(ledger: Ledger, topology: str, txid: int) -> str | None:
    """Return the run that looks after an open batch; None if the batch is abandoned."""
    with suppress(UnknownName):  # the abort has a message of its own
        batch = ledger.batch(topology, txid)
        return batch.lease_run if batch.lease_live and not batch.status.final else None
    return None
