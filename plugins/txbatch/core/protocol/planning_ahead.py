"""The batches of several runs, found or planned at once, up to the bounds of a job (R1..R3). Compare `coordinator`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from txbatch.core.batch.transaction import Batch, Run
from txbatch.core.errors import TxbatchError
from txbatch.core.protocol import bulk, decisions
from txbatch.core.protocol.bulk_size import JobSize
from txbatch.core.protocol.coordinator import plan_for
from txbatch.core.protocol.decisions import PlanNew, Use
from txbatch.core.protocol.ledger import Head, Ledger, RunPlan
from txbatch.core.protocol.spout_coordinators import Coordinators
from txbatch.core.topology.topology import Topology


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
            as_found = at if head.own is None else replace(at, own=head.own)
            match decisions.decide_initialize(as_found, run, topology.max_pending):
                case Use(batch):
                    decisions.check_parameters(batch, run)
                    found.append(batch)
                case PlanNew():
                    metadata = plan_for(ledger, topology, at, run, coordinators)
                    if metadata is None:
                        break
                    batch = decisions.planned_batch(at, run, metadata)
                    new.append((run, batch.metadata))
                    found.append(None)
                    at = decisions.followed(at, batch)
                case _:
                    break
            weight.add(batch.plan, batch.metadata)
            full = length is not None and len(found) >= length and not bulk.long_pass(topology, batch.plan)
            if full or weight.full:
                break
    return found, new


def _without_own(heads: Sequence[Head], behind: Collection[int]) -> Head:
    """Return the head for all runs together: the runs' own batches and the txids in `behind` are left out of the pending ones."""
    own = {head.own.txid for head in heads if head.own is not None}.union(behind)
    return replace(heads[0], own=None, pending=tuple(each for each in heads[0].pending if each.txid not in own))
