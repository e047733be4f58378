"""The coordinator: finds the batch of a run, or plans it (R1..R4). Deciding and asking only; the ledger stores."""

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
from txbatch.core.topology.topology import Topology


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


def initialize_transaction(ledger: Ledger, topology: Topology, run: Run) -> Batch | Wait | NothingNew:
    """Find the run's batch again, or plan it; adopt one that nobody looks after, if there is one.

    An adopted batch is finished first, and then this is asked again (see `decisions.is_adopted`). Returns a Wait when max_pending
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


def plan_many(
    ledger: Ledger,
    topology: Topology,
    runs: Sequence[Run],
    behind: Collection[int] = (),
    length: int | None = None,
) -> list[Batch]:
    """Find the batches of several runs, or plan them: by one look at the sources, in one transaction, up to the bounds of a job.

    No more than `length`, where that is given, unless they are read by a long pass, which is not made more often than it must be.
    Returns those of the first runs, in order. The one behind them has none: it waits, adopts, is refused, or nothing is new. Why,
    `initialize_transaction` tells. None of them counts as in flight, nor do the txids that they are planned `behind`, which the
    same process brings to their commits: max_pending is for those of others.
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
    """Return the batches of the first runs, None for each that is new, and the plans of the new ones."""
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
    """Return how things stand for all of these runs: what they have themselves, and what they are behind, is in nobody's way."""
    own = {head.own.txid for head in heads if head.own is not None}.union(behind)
    return replace(heads[0], own=None, pending=tuple(each for each in heads[0].pending if each.txid not in own))


def _as_stored(head: Head, run: Run, planned: Metadata) -> Batch:
    """Return the batch that a plan makes, with its metadata as the ledger gives it back."""
    metadata = json.loads(canonical_json(planned, STORED_BYTES_MAX))
    kind = BatchKind.ORDINARY if run.restate is None else BatchKind.RESTATE
    return Batch(head.topology, head.next_txid, BatchStatus.PLANNED, metadata, run.key, kind=kind)


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


def _planned(
    ledger: Ledger, topology: Topology, head: Head, run: Run, by: Coordinators | None = None
) -> Metadata | None:
    if run.restate is None:
        return plan_batch(topology, head, run, ledger.upstream, by)
    version = ledger.version(topology.name, run.restate.position)
    return plan_restate(topology, head, version, run.restate, ledger.upstream, by)
