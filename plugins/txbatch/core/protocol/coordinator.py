"""The protocol's coordinator finds or plans a run's batch (R1..R4), and asks the coordinators of spouts. The ledger stores."""

from __future__ import annotations

from dataclasses import dataclass

from txbatch.core.batch.transaction import Batch, Metadata, Run
from txbatch.core.protocol.decisions import Adopt, Use, Wait, WaitReason, check_parameters, decide_initialize
from txbatch.core.protocol.fence import held_by_another
from txbatch.core.protocol.ledger import Head, Ledger
from txbatch.core.protocol.planning import plan_batch
from txbatch.core.protocol.planning_again import plan_restate
from txbatch.core.protocol.restate import counted_meanwhile
from txbatch.core.protocol.spout_coordinators import Coordinators
from txbatch.core.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class NothingNew:
    """No spout has anything new, or the restate has been counted meanwhile: no txid is used (R4)."""


@dataclass(frozen=True, slots=True)
class Yours:
    """All lower txids are final: the run's own batch may be committed (R6)."""


@dataclass(frozen=True, slots=True)
class FinishFirst:
    """Only this run looks after a lower txid, to be committed before the run's own."""

    batch: Batch


Turn = Yours | Wait | FinishFirst


def initialize_transaction(ledger: Ledger, topology: Topology, run: Run) -> Batch | Wait | NothingNew:
    """Find the run's batch again, adopt or abort an abandoned batch, or plan a new batch by the coordinators of the spouts.

    If a batch is adopted, finish the batch first, then call again (see `decisions.belongs_to_another`). Return a Wait if
    max_pending batches are in flight.
    """
    while True:
        head = ledger.head(topology.name, run)
        decision = decide_initialize(head, run, topology.max_pending)
        if isinstance(decision, Use):
            check_parameters(decision.batch, run)
            return decision.batch
        if isinstance(decision, Wait):
            return decision
        if isinstance(decision, Adopt):
            batch = ledger.adopt(decision.batch, run)
        else:
            metadata = plan_for(ledger, topology, head, run)
            if metadata is None:
                return NothingNew()
            batch = ledger.plan(head, run, metadata, topology)
        if batch is not None:
            return batch
        # none adopted, or none planned: another run was faster, so look again


def take_turn(ledger: Ledger, own: Batch, run: Run) -> Turn:
    """Decide what stands before the run's own batch: nothing, a batch of another live run, or a batch to finish first (R6).

    An abandoned batch is adopted. If the run may not adopt the batch (`may_adopt`), the batch is aborted, and planned again by
    the batch's own run.
    """
    while (txid := ledger.turn_of(own.topology, own.txid)) is not None:
        lowest = ledger.batch(own.topology, txid)
        if held_by_another(lowest, run):
            return Wait(lowest, WaitReason.TURN)
        adopted = ledger.adopt(lowest, run)
        if adopted is not None:
            return FinishFirst(adopted)
    return Yours()


def plan_for(
    ledger: Ledger, topology: Topology, head: Head, run: Run, by: Coordinators | None = None
) -> Metadata | None:
    """Return the metadata for a run's next batch; None if nothing is new, or the restate has been counted meanwhile."""
    if run.restate is None:
        return plan_batch(topology, head, run, ledger.upstream, by)
    version = ledger.version(topology.name, run.restate.position)
    if counted_meanwhile(version, head.pending, run.restate):
        return None
    return plan_restate(topology, head, version, run.restate, ledger.upstream, by)
