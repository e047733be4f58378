"""The coordinator finds or plans the batch of a run (R1..R4). The coordinator decides and asks; the ledger stores."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from txbatch.core.batch.transaction import (
    STORED_BYTES_MAX,
    Batch,
    BatchKind,
    BatchStatus,
    Metadata,
    Run,
    canonical_json,
)
from txbatch.core.errors import TxbatchError
from txbatch.core.protocol import bulk
from txbatch.core.protocol.bulk_size import JobSize
from txbatch.core.protocol.decisions import (
    Adopt,
    PlanNew,
    Use,
    Wait,
    WaitReason,
    check_parameters,
    decide_initialize,
    followed,
)
from txbatch.core.protocol.fence import waited_for
from txbatch.core.protocol.ledger import Head, Ledger, RunPlan
from txbatch.core.protocol.planning import Coordinators, plan_batch, plan_restate
from txbatch.core.protocol.restate import counted_meanwhile
from txbatch.core.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class NothingNew:
    """The spout is not ready: no txid is used (R4)."""


@dataclass(frozen=True, slots=True)
class Yours:
    """All lower txids are final: the run's own batch may be committed (R6)."""


@dataclass(frozen=True, slots=True)
class FinishFirst:
    """Only this run looks after a lower txid, to be committed before the run's own."""

    batch: Batch


Turn = Yours | Wait | FinishFirst


def initialize_transaction(ledger: Ledger, topology: Topology, run: Run) -> Batch | Wait | NothingNew:
    """Find the run's batch again, adopt an abandoned batch, or plan a new batch.

    If a batch is adopted, finish the batch first, then call again (see `decisions.is_adopted`). Return a Wait if max_pending
    batches are in flight.
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
            metadata = _planned(ledger, topology, head, run)
            if metadata is None:
                return NothingNew()
            batch = ledger.plan(head, run, metadata, topology)
        if batch is not None:
            return batch


def initialize_many(
    ledger: Ledger,
    topology: Topology,
    runs: Sequence[Run],
    behind: Collection[int] = (),
    length: int | None = None,
) -> list[Batch]:
    """Find or plan the batches of several runs: by one look at the sources, in one transaction, up to the bounds of a job.

    `length` is the most batches, except for plans with a long pass, since long passes are made as seldom as possible. Return
    the batches of the first runs, in order. The next run has no batch: the run waits, adopts, is refused, or nothing is new;
    `initialize_transaction` returns the reason. `max_pending` is for batches of other runs: the found and planned batches do
    not count as in flight, nor do the txids in `behind`, committed by the same process.
    """
    heads = ledger.heads(topology.name, runs)
    found, new = _planned_ahead(ledger, topology, heads, runs, behind, length)
    stored: Iterator[Batch] = iter(())
    with suppress(TxbatchError):
        stored = iter(ledger.plan_many(heads[0], new, topology) or ()) if new else stored
    batches = [batch or next(stored, None) for batch in found]
    end = batches.index(None) if None in batches else len(batches)
    return [batch for batch in batches[:end] if batch is not None]


def _planned_ahead(
    ledger: Ledger,
    topology: Topology,
    heads: Sequence[Head],
    runs: Sequence[Run],
    behind: Collection[int],
    length: int | None,
) -> tuple[list[Batch | None], list[RunPlan]]:
    """Return the batches of the first runs, None for each new batch, and the plans of new batches."""
    found, new, at, weight = list[Batch | None](), list[RunPlan](), _without_own(heads, behind), JobSize(topology)
    with Coordinators() as coordinators, suppress(TxbatchError):
        for run, head in zip(runs, heads, strict=True):
            match decide_initialize(replace(at, own=head.own), run, topology.max_pending):
                case Use(batch):
                    check_parameters(batch, run)
                    found.append(batch)
                case PlanNew():
                    planned = _planned(ledger, topology, at, run, coordinators)
                    if planned is None:
                        break
                    batch = _as_stored(at, run, planned)
                    new.append((run, batch.metadata))
                    found.append(None)
                    at = followed(at, batch)
                case _:
                    break
            weight.add(batch.plan)
            full = length is not None and len(found) >= length and not bulk.long_pass(topology, batch.plan)
            if full or weight.full:
                break
    return found, new


def _without_own(heads: Sequence[Head], behind: Collection[int]) -> Head:
    """Return the head for all runs together: the runs' own batches and the txids in `behind` are left out of the pending ones."""
    own = {head.own.txid for head in heads if head.own is not None}.union(behind)
    return replace(heads[0], own=None, pending=tuple(each for each in heads[0].pending if each.txid not in own))


def _as_stored(head: Head, run: Run, planned: Metadata) -> Batch:
    """Return the batch of a plan, with the metadata as the ledger would return them."""
    metadata = json.loads(canonical_json(planned, STORED_BYTES_MAX))
    kind = BatchKind.ORDINARY if run.restate is None else BatchKind.RESTATE
    return Batch(head.topology, head.next_txid, BatchStatus.PLANNED, metadata, run.key, kind=kind)


def take_turn(ledger: Ledger, own: Batch, run: Run) -> Turn:
    """Decide what stands before the run's own batch: nothing, a batch of another live run, or a batch to finish first (R6).

    An abandoned batch is adopted. If the abandoned batch has an interval, the batch is aborted, and planned again by the
    batch's own run.
    """
    while (txid := ledger.turn_of(own.topology, own.txid)) is not None:
        lowest = ledger.batch(own.topology, txid)
        if waited_for(lowest, run):
            return Wait(lowest, WaitReason.TURN)
        adopted = ledger.adopt(lowest, run)
        if adopted is not None:
            return FinishFirst(adopted)
    return Yours()


def _planned(
    ledger: Ledger, topology: Topology, head: Head, run: Run, by: Coordinators | None = None
) -> Metadata | None:
    if run.restate is None:
        return plan_batch(topology, head, run, ledger.upstream, by)
    version = ledger.version(topology.name, run.restate.position)
    if counted_meanwhile(version, head.pending, run.restate):
        return None
    return plan_restate(topology, head, version, run.restate, ledger.upstream, by)
