"""`txbatch plan`: what the next run would do. Asks the spouts as a plan does, and stores nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from txbatch.core.coordinator import plan_batch
from txbatch.core.guarantee import guarantees
from txbatch.core.ledger import Ledger
from txbatch.core.plan import BatchPlan, Ranges
from txbatch.core.protocol import Adopt, Use, Wait, decide_initialize, may_adopt
from txbatch.core.topology import Topology
from txbatch.core.transaction import Batch, Metadata, Run
from txbatch.spouts.interval import IntervalSpout

COLUMNS = frozenset({"stream", "partition", "start", "end", "note", "gone"})


def preview(ledger: Ledger, topology: Topology, run: Run, job: str) -> dict[str, Any]:
    """The guarantee of each state, the batches in flight, and the next batch: its txid, what the run does, and its metadata.

    Works before the topology is known. Raises what planning raises, and what registering the topology, of this job, would.
    """
    ledger.check_definition(topology, job)
    head = ledger.head(topology.name, run)
    decision = decide_initialize(head, run, topology.max_pending)
    found = {
        "topology": topology.name,
        "guarantees": guarantees(topology),
        "in_flight": list(map(_batch, head.pending)),
    }
    if isinstance(decision, Use):
        return {**found, "next": _known(decision.batch, f"the run goes on with txid {decision.batch.txid}")}
    if topology.by_interval and run.interval is None:
        return {**found, "next": {"does": "reads by time: give --interval START END"}}
    if isinstance(decision, Adopt):
        if may_adopt(decision.batch, run):
            return {
                **found,
                "next": _known(decision.batch, f"nobody looks after txid {decision.batch.txid}: it is adopted"),
            }
        return {
            **found,
            "next": {"does": f"nobody looks after txid {decision.batch.txid}: it is aborted, and planned anew"},
        }
    if run.interval is not None:
        ledger.check_interval(topology.name, run.interval)
    metadata = plan_batch(topology, head, run)
    if metadata is None:
        return {**found, "next": {"does": "nothing new: no txid is used"}}
    does = f"txid {head.next_txid} would be planned"
    if isinstance(decision, Wait):
        does = f"waits for txid {decision.batch.txid} of {decision.batch.lease_run}; as things stand, {does} then"
    return {**found, "next": _next(does, head.next_txid, metadata)}


def appeared(topology: Topology, batch: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row per file that was not there when the run's batch was planned, of spouts that read by time."""
    for stream, planned in BatchPlan.from_json(batch["metadata"]).streams.items() if "metadata" in batch else ():
        spout = topology.streams[stream].spout
        for file in spout.appeared(planned.plan) if isinstance(spout, IntervalSpout) else ():
            row = {"topology": topology.name, "stream": stream, "file": file, "txid": batch["txid"]}
            yield {**row, "change": "appeared: of this interval nothing of it is counted"}


def _next(does: str, txid: int, metadata: Metadata) -> dict[str, Any]:
    return {"does": does, "txid": txid, "ranges": list(_ranges(metadata)), "metadata": metadata}


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


def _known(batch: Batch, does: str) -> dict[str, Any]:
    return _next(f"{does} ({batch.status})", batch.txid, batch.metadata)


def _batch(batch: Batch) -> dict[str, Any]:
    return {"txid": batch.txid, "status": str(batch.status), "run": batch.lease_run, "lease_live": batch.lease_live}
