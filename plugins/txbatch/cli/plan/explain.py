"""`txbatch plan`: the next step of the next run. Asks the spouts just like a run, and stores nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.planned_ranges import read
from txbatch.core.batch.transaction import Batch, Metadata, Run
from txbatch.core.protocol.bulk import reason_against
from txbatch.core.protocol.coordinator import NothingNew
from txbatch.core.protocol.decisions import Adopt, PlanNew, Use, Wait, decide_initialize, may_adopt
from txbatch.core.protocol.event_time import pin_watermarks
from txbatch.core.protocol.interval_warnings import of_closed
from txbatch.core.protocol.ledger import Head, Ledger
from txbatch.core.protocol.planning import plan_batch
from txbatch.core.topology.guarantee import guarantees
from txbatch.core.topology.topology import Topology
from txbatch.spouts.interval import IntervalSpout


@dataclass(frozen=True, slots=True)
class GoOn:
    """The run has a batch, and goes on with the batch."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class AdoptFirst:
    """The batch is abandoned: the run adopts and finishes the batch before its own."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class FinishLeft:
    """Nothing is new, but an earlier call of `txbatch run` left this batch unfinished: the next call finishes the batch."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class AbortFirst:
    """The batch is abandoned, and the run may not adopt the batch: the run aborts the batch, then looks again."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class PlanNext:
    """The run plans this txid, after the batch `after`, if any, is final."""

    txid: int
    metadata: Metadata
    after: Batch | None = None


@dataclass(frozen=True, slots=True)
class NoInterval:
    """The topology reads by time, and the run has no interval."""


NextStep = GoOn | AdoptFirst | FinishLeft | AbortFirst | PlanNext | NoInterval | NothingNew


def preview(ledger: Ledger, topology: Topology, run: Run, job: str, *, finishes: str = "") -> dict[str, Any]:
    """Return the guarantee of each state, the batches in flight, and the next step, in fields and in a sentence.

    `one_by_one` is the reason why `txbatch run` cannot emit several batches by one job; None if possible. `warnings` are
    about an interval before later intervals. `finishes` is the prefix of names of runs with batches to finish first; empty:
    none. Works before the topology is registered. Raises the errors of planning, and of registering the topology with this
    job.
    """
    ledger.check_definition(topology, job)
    head = ledger.head(topology.name, run)
    step = next_step(ledger, topology, head, run)
    left = [batch for batch in head.pending if finishes and (batch.lease_run or "").startswith(finishes)]
    if isinstance(step, NothingNew) and left:
        step = FinishLeft(left[0])
    return {
        "topology": topology.name,
        "guarantees": guarantees(topology),
        "in_flight": list(map(_batch, head.pending)),
        "one_by_one": reason_against(topology),
        "next": {"does": sentence(step), **_fields(step)},
        "warnings": list(_warnings(ledger, topology, run, step)),
    }


def _warnings(ledger: Ledger, topology: Topology, run: Run, step: NextStep) -> Iterator[str]:
    """Yield the warnings of a run about its interval."""
    if isinstance(step, PlanNext) and run.interval is not None:
        planned = pin_watermarks(step.metadata, topology.watermarks, {}, run.interval.end, topology.behind)
        yield from of_closed(topology, run.interval, BatchPlan.from_json(planned), ledger.closed_to(topology.name))


def appeared(topology: Topology, batch: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row per file that appeared after the run's batch was planned, for spouts that read by time."""
    for stream, planned in BatchPlan.from_json(batch["metadata"]).streams.items() if "metadata" in batch else ():
        spout = topology.streams[stream].spout
        for file in spout.appeared(planned.plan) if isinstance(spout, IntervalSpout) else ():
            row = {"topology": topology.name, "stream": stream, "file": file, "txid": batch["txid"]}
            change = f"appeared after txid {batch['txid']} was planned: of this interval nothing of the file is counted"
            yield {**row, "change": change}


def passed_over(topology: Topology, batch: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning per stream whose newest file has columns that are no fields, and are passed over."""
    for stream, planned in BatchPlan.from_json(batch["metadata"]).streams.items() if "metadata" in batch else ():
        spout = topology.streams[stream].spout
        if isinstance(spout, IntervalSpout) and (found := spout.passed_over(planned.plan)):
            yield f"stream {stream!r}: {found}, no fields, passed over by extra='ignore'"


def next_step(ledger: Ledger, topology: Topology, head: Head, run: Run) -> NextStep:
    """Decide the first step of the run, and store nothing."""
    decision = decide_initialize(head, run, topology.max_pending)
    match decision:
        case Use(batch):
            return GoOn(batch)
        case _ if topology.by_interval and run.interval is None:
            return NoInterval()
        case Adopt(batch):
            return AdoptFirst(batch) if may_adopt(batch, run) else AbortFirst(batch)
        case Wait() | PlanNew():
            if run.interval is not None:
                ledger.check_interval(topology.name, run.interval)
            metadata = plan_batch(topology, head, run, ledger.upstream)
            after = decision.batch if isinstance(decision, Wait) else None
            return NothingNew() if metadata is None else PlanNext(head.next_txid, metadata, after)
        case _:
            assert_never(decision)


def sentence(step: NextStep) -> str:
    """Describe a step in a sentence."""
    match step:
        case GoOn(batch):
            return f"the run goes on with txid {batch.txid} ({batch.status})"
        case AdoptFirst(batch):
            return f"nobody looks after txid {batch.txid}: it is adopted ({batch.status})"
        case FinishLeft(batch):
            return f"txid {batch.txid} of {batch.lease_run} ({batch.status}) is finished; nothing is new: no other txid is used"
        case AbortFirst(batch):
            return f"nobody looks after txid {batch.txid}: it is aborted, and planned anew"
        case PlanNext(txid, _, after):
            planned = f"txid {txid} would be planned"
            if after is None:
                return planned
            return f"waits for txid {after.txid} of {after.lease_run}; as things stand, {planned} then"
        case NoInterval():
            return "reads by time: give --interval START END"
        case NothingNew():
            return "nothing new: no txid is used"
        case _:
            assert_never(step)


def _fields(step: NextStep) -> dict[str, Any]:
    """Return a step in fields: `action`, its batch, the ranges to read, and the awaited batch."""
    match step:
        case GoOn(batch):
            return {"action": "go_on", **_batch(batch), **read(batch.metadata)}
        case AdoptFirst(batch) | FinishLeft(batch):
            return {"action": "finish_first", **_batch(batch), **read(batch.metadata)}
        case AbortFirst(batch):
            return {"action": "abort_first", **_batch(batch)}
        case PlanNext(txid, metadata, after):
            waits_for = None if after is None else _batch(after)
            return {"action": "plan", "txid": txid, "waits_for": waits_for, **read(metadata)}
        case NoInterval():
            return {"action": "no_interval"}
        case NothingNew():
            return {"action": "nothing_new"}
        case _:
            assert_never(step)


def _batch(batch: Batch) -> dict[str, Any]:
    return {"txid": batch.txid, "status": str(batch.status), "run": batch.lease_run, "lease_live": batch.lease_live}
