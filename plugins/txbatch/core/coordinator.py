"""The coordinator: finds the batch of a run, or plans it (R1..R4). Deciding and asking only; the ledger stores."""

from __future__ import annotations

from dataclasses import dataclass

from txbatch.core.ledger import Head, Ledger
from txbatch.core.planning import plan_batch, plan_restate
from txbatch.core.protocol import Adopt, Use, Wait, WaitReason, check_parameters, decide_initialize, waited_for
from txbatch.core.topology import Topology
from txbatch.core.transaction import Batch, Metadata, Run


@dataclass(frozen=True, slots=True)
class NothingNew:
    """The spout is not ready: no txid is used (R4)."""


@dataclass(frozen=True, slots=True)
class Yours:
    """All lower txids are final: the run's own batch may be committed (R6)."""


@dataclass(frozen=True, slots=True)
class FinishFirst:
    """Nobody but this run looks after a lower txid, which is to be committed before its own."""

    batch: Batch


Turn = Yours | Wait | FinishFirst


def initialize_transaction(ledger: Ledger, topology: Topology, run: Run, ahead: int = 0) -> Batch | Wait | NothingNew:
    """Find the run's batch again, or plan it; adopt one that nobody looks after, if there is one.

    An adopted batch is finished first, and then this is asked again (see `protocol.is_adopted`). Returns a Wait when max_pending
    batches are in flight, without those `ahead` that the caller looks after and is going to emit together with this one.
    """
    while True:
        head = ledger.head(topology.name, run)
        decision = decide_initialize(head, run, topology.max_pending + ahead)
        if isinstance(decision, Use):
            check_parameters(decision.batch, run)
            return decision.batch
        if isinstance(decision, Wait):
            return decision
        if isinstance(decision, Adopt):
            batch = ledger.adopt(decision.batch, run)
        else:
            metadata = _planned(ledger, topology, head, run)
            if metadata is None:
                return NothingNew()
            batch = ledger.plan(head, run, metadata, topology)
        if batch is not None:
            return batch


def take_turn(ledger: Ledger, own: Batch, run: Run) -> Turn:
    """Decide what stands before the run's own batch: nothing, a batch of another live run, or one to finish first (R6).

    An abandoned batch is adopted, or aborted when it has an interval: its own run plans it anew.
    """
    while (txid := ledger.turn_of(own.topology, own.txid)) is not None:
        lowest = ledger.batch(own.topology, txid)
        if waited_for(lowest, run):
            return Wait(lowest, WaitReason.TURN)
        adopted = ledger.adopt(lowest, run)
        if adopted is not None:
            return FinishFirst(adopted)
    return Yours()


def _planned(ledger: Ledger, topology: Topology, head: Head, run: Run) -> Metadata | None:
    if run.restate is None:
        return plan_batch(topology, head, run, ledger.upstream)
    version = ledger.version(topology.name, run.restate.position)
    return plan_restate(topology, head, version, run.restate, ledger.upstream)
