"""`txbatch plan`: what the next run would do. Asks the spouts as a plan does, and stores nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from txbatch.core.batch.plan import BatchPlan, Ranges
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

COLUMNS = frozenset({"stream", "partition", "start", "end", "note", "gone"})


@dataclass(frozen=True, slots=True)
class GoOn:
    """The run has a batch, and goes on with it."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class AdoptFirst:
    """Nobody looks after this batch: the run adopts it, and finishes it before its own."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class FinishLeft:
    """Nothing is new, but an earlier call of `txbatch run` left this batch: the next one finishes it."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class AbortFirst:
    """Nobody looks after this batch, which the run may not adopt: it aborts it, and then looks again."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class PlanNext:
    """The run plans this txid, once `after`, if there is one, makes room for it."""

    txid: int
    metadata: Metadata
    after: Batch | None = None


@dataclass(frozen=True, slots=True)
class NoInterval:
    """The topology reads by time, and the run has no interval."""


NextStep = GoOn | AdoptFirst | FinishLeft | AbortFirst | PlanNext | NoInterval | NothingNew


def preview(ledger: Ledger, topology: Topology, run: Run, job: str, *, finishes: str = "") -> dict[str, Any]:
    """Return the guarantee of each state, the batches in flight, and the next step: what it does, as fields and as a sentence.

    `one_by_one` says why its batches are emitted so, where several of a call of `txbatch run` would be by one job; else None.
    `warnings` are of an interval that comes after later ones. `finishes` is how the names of runs begin whose batches the next
    run finishes first; empty: it finishes none. Works before the topology is known. Raises what planning raises, and what
    registering the topology, of this job, would.
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
    """Yield what a run would say of its interval."""
    if isinstance(step, PlanNext) and run.interval is not None:
        planned = pin_watermarks(step.metadata, topology.watermarks, {}, run.interval.end, topology.behind)
        yield from of_closed(topology, run.interval, BatchPlan.from_json(planned), ledger.closed_to(topology.name))


def appeared(topology: Topology, batch: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row per file that was not there when the run's batch was planned, of spouts that read by time."""
    for stream, planned in BatchPlan.from_json(batch["metadata"]).streams.items() if "metadata" in batch else ():
        spout = topology.streams[stream].spout
        for file in spout.appeared(planned.plan) if isinstance(spout, IntervalSpout) else ():
            row = {"topology": topology.name, "stream": stream, "file": file, "txid": batch["txid"]}
            yield {**row, "change": "appeared: of this interval nothing of it is counted"}


def next_step(ledger: Ledger, topology: Topology, head: Head, run: Run) -> NextStep:
    """Decide what the run would do first; stores nothing."""
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
    """Return a step in words."""
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
    """Return a step as fields: `action`, the batch it is about, what that reads, and the batch that is waited for."""
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


def read(metadata: Metadata) -> dict[str, Any]:
    """Return what a batch reads: its `ranges`, and the `metadata` as it is stored."""
    return {"ranges": list(_ranges(metadata)), "metadata": metadata}


def _ranges(metadata: Metadata) -> Iterator[dict[str, Any]]:
    """Return what a batch's metadata names, a row for each range; `note` says what is unreadable or gone.

    Of a long list, only the length.
    """
    for stream, planned in BatchPlan.from_json(metadata).streams.items():
        for partition, range_ in planned.ranges.items():
            told = range_ if isinstance(range_, Mapping) else {"plan": range_}
            rest = {
                name: f"{len(value):,}" if isinstance(value, Mapping) else value
                for name, value in told.items()
                if name not in COLUMNS
            }
            note = f"gone: {told['gone']}" if isinstance(planned, Ranges) and "gone" in told else None
            row = {"stream": stream, "partition": partition or None, "start": told.get("start"), "end": told.get("end")}
            yield {**row, **rest, "note": note}
        for partition, why in planned.unreadable.items():
            yield {"stream": stream, "partition": partition, "start": None, "end": None, "note": f"unreadable: {why}"}


def _batch(batch: Batch) -> dict[str, Any]:
    return {"txid": batch.txid, "status": str(batch.status), "run": batch.lease_run, "lease_live": batch.lease_live}
