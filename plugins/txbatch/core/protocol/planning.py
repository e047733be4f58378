"""The plan of a new txid: the spouts are asked, without Spark and under no lock, and the answers are checked (R3, R4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from txbatch.core.batch.plan import BatchPlan, OfInterval, Ranges, StreamPlan, Successive
from txbatch.core.batch.transaction import Metadata, Run
from txbatch.core.errors import NoInterval, UnknownField
from txbatch.core.naming import naming_stream
from txbatch.core.protocol.ledger import Head
from txbatch.core.protocol.spout_coordinators import Coordinators, coordinator_of
from txbatch.core.sources.partition_checks import planned_records
from txbatch.core.sources.plan_checks import check_json, check_ranges, check_reads
from txbatch.core.sources.spout import PartitionedCoordinator, PartitionedSpout
from txbatch.core.stored_json import canonical_json, copy_of
from txbatch.core.topology.look_up import Versioned
from txbatch.core.topology.stream import Stream
from txbatch.core.topology.topology import Topology
from txbatch.core.upstream.look_ups import cuts, states_asked
from txbatch.core.upstream.ranges import UpstreamState
from txbatch.core.upstream.readers import check_acyclic
from txbatch.core.upstream.upstream import Upstream, UpstreamCoordinator, exported


def plan_batch(
    topology: Topology, head: Head, run: Run, upstream: Upstream | None = None, by: Coordinators | None = None
) -> Metadata | None:
    """Ask the spouts for the plan of the next txid, and return the metadata for the ledger. State spouts ask `upstream`.

    The ledger writes `watermark`, `planned_at` and `base` into the plan, behind the lock of the topology (`Transactions.plan`).
    Return None if no stream has anything new, or if a stream by time is not ready: the interval would be skipped. Raise
    DefinitionError if a plan is not JSON or over the spouts' limits, or if no spout declares a parameter. If a coordinator
    raises an error from outside txbatch, raise TransientError, with the name of the stream.
    """
    _check_declared(topology, run)
    states = states_asked(topology)
    facts = upstream_facts(upstream, states)
    if upstream is not None and exported(topology):
        check_acyclic(topology, upstream.readers())
    streams: dict[str, StreamPlan] = {}
    idle: dict[str, StreamPlan] = {}
    for stream in topology.streams.values():
        last = _last_plan(stream, head)
        with naming_stream(f"{topology.name}: the coordinator of stream {stream.name!r}"):
            planned = plan_stream(stream, head, last, run, by, upstream, facts)
        if planned is not None:
            streams[stream.name] = planned
        elif stream.spout.by_interval:
            return None
        elif last is not None:
            idle[stream.name] = last
    if not streams:
        return None
    as_of = cuts(topology, facts, {}) if states else {}
    plan = BatchPlan(streams, idle, dict(run.parameters), static=static_versions(topology), as_of=as_of)
    return to_store(topology, plan)


def plan_stream(
    stream: Stream,
    head: Head,
    last: StreamPlan | None,
    run: Run,
    by: Coordinators | None,
    upstream: Upstream | None = None,
    facts: Mapping[str, UpstreamState] | None = None,
) -> StreamPlan | None:
    """Return a stream's next plan; None if nothing is new. `last` is the plan that the next plan continues."""
    spout, of = stream.spout, f"stream {stream.name!r}"
    with coordinator_of(stream, by) as coordinator:
        check_reads(of, spout, coordinator)
        if isinstance(coordinator, PartitionedCoordinator):
            coordinator.offsets = head.offsets.get(stream.name, {})
        if isinstance(coordinator, UpstreamCoordinator):
            coordinator.upstream, coordinator.facts = upstream, facts or {}
        if not coordinator.is_ready(head.next_txid):
            return None
        asked = _asked(stream, run)
        plan = coordinator.initialize_transaction(head.next_txid, copy_of(last.plan) if last else None, asked)
    if plan is None:
        return None
    check_json(of, plan, spout.metadata_bytes_max)
    if isinstance(coordinator, PartitionedCoordinator):
        check_ranges(of, plan)
        return Ranges.from_json(plan)
    if not asked or not spout.by_interval:
        return Successive(plan)
    return OfInterval(plan, asked["interval"], planned_records(f"{of}: the interval", plan))


def upstream_facts(upstream: Upstream | None, states: Collection[str]) -> Mapping[str, UpstreamState] | None:
    """Return how far the states are that a plan asks about; None without a ledger."""
    if upstream is None:
        return None
    return upstream.facts(states) if states else {}


def static_versions(topology: Topology) -> dict[str, Metadata]:
    """Return the present version of each static state with versions."""
    found = {}
    for name, state in topology.looked_up.items():
        if isinstance(state.reader, Versioned):
            with naming_stream(f"{topology.name}: version() of {state}"):
                found[name] = state.reader.version()
    return found


def to_store(topology: Topology, plan: BatchPlan) -> Metadata:
    """Return a plan as JSON for the ledger. Raise DefinitionError if the plan is over the spouts' limits."""
    metadata = plan.to_json()
    names = {**plan.streams, **plan.idle}
    canonical_json(metadata, sum(topology.streams[name].spout.metadata_bytes_max for name in names))
    return metadata


def _check_declared(topology: Topology, run: Run) -> None:
    for name in run.parameters:
        if name not in topology.parameters:
            known = ", ".join(topology.parameters) or "none"
            raise UnknownField(f"topology {topology.name!r} has no parameter {name!r}; its spouts declare {known}")


def _last_plan(stream: Stream, head: Head) -> StreamPlan | None:
    """Return the last plan of a stream without partitions, which the next plan continues."""
    if head.prev is None or isinstance(stream.spout, PartitionedSpout):
        return None
    return {**head.prev.plan.idle, **head.prev.plan.streams}.get(stream.name)


def _asked(stream: Stream, run: Run) -> Metadata | None:
    """Build `curr_metadata` for the spout: the run's interval, and the run's parameters declared by the spout."""
    asked: dict[str, Any] = {}
    declared = stream.spout.parameters
    if stream.spout.by_interval:
        if run.interval is None:
            raise NoInterval(
                f"stream {stream.name!r} reads by time, and run {run.name!r} has no data interval; "
                "trigger it with a logical date, or give --interval START END"
            )
        asked["interval"] = [run.interval.start.isoformat(), run.interval.end.isoformat()]
    if declared:
        asked["parameters"] = {name: value for name, value in run.parameters.items() if name in declared}
    return asked or None
