"""The plan by which a committed batch is counted again, for a restate or a rebuild (R17, R23). Compare `planning`."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime
from typing import Any, assert_never

from txbatch.core.batch.plan import BatchPlan, OfInterval, Ranges, StreamPlan, Successive
from txbatch.core.batch.transaction import Interval, Metadata, Restate, Run
from txbatch.core.errors import PartitionUnreadable, RecordsGone, SchemaMismatch, SourceNotReady
from txbatch.core.naming import naming_stream
from txbatch.core.protocol import restate
from txbatch.core.protocol.ledger import Head
from txbatch.core.protocol.planning import plan_stream, static_versions, to_store, upstream_facts
from txbatch.core.protocol.restate import PositionVersion
from txbatch.core.protocol.spout_coordinators import Coordinators
from txbatch.core.sources.plan_checks import check_json, check_ranges
from txbatch.core.sources.spout import PartitionedSpout
from txbatch.core.topology.stream import Stream
from txbatch.core.topology.topology import Topology
from txbatch.core.upstream.look_ups import cuts, states_asked
from txbatch.core.upstream.upstream import Upstream, check_again


def plan_restate(
    topology: Topology,
    head: Head,
    version: PositionVersion,
    asked: Restate,
    upstream: Upstream | None = None,
    by: Coordinators | None = None,
) -> Metadata:
    """Return the plan by which a committed batch is counted again (R17). Raise TerminalError if the batch may not be restated."""
    restate.check_topology(topology)
    restate.check_version(version, asked)
    return plan_again(topology, head, version, asked, upstream, by)


def plan_again(
    topology: Topology,
    head: Head,
    version: PositionVersion,
    asked: Restate,
    upstream: Upstream | None = None,
    by: Coordinators | None = None,
) -> Metadata:
    """Return the metadata of a plan that reads again the records of a position's batch.

    By interval, the plan is new, for the interval as of now. By offset, the plan has the same records as the spouts find them
    now: an error names missing records. Static states are looked up as of now, live states as of the txid fixed by the
    batch. The batch also fixes the watermarks for late records (R25), the processing time (R28) and the record numbers (R29).
    """
    plan, streams = version.first.plan, dict[str, StreamPlan]()
    facts = upstream_facts(upstream, states_asked(topology, plan.streams))
    for name, planned in plan.streams.items():
        if name not in topology.streams:
            raise SchemaMismatch(
                f"{topology.name}: txid {asked.position} read stream {name!r}, which is not defined any more"
            )
        with naming_stream(f"{topology.name}: the coordinator of stream {name!r}"):
            again = _again(topology.streams[name], planned, head, version, asked, by)
        if not isinstance(again, Ranges) or again.partitions or again.unreadable:
            streams[name] = again
    if not any(planned.ranges for planned in streams.values()):
        raise PartitionUnreadable(f"{topology.name}: nothing of what txid {asked.position} read is left: {streams}")
    if facts is not None:
        check_again(topology, facts, streams)
    whole, as_of = not asked.accept_missing, cuts(topology, facts, plan.as_of)
    now = BatchPlan(
        streams,
        {},
        plan.parameters,
        whole=whole,
        static=static_versions(topology),
        as_of=as_of,
        watermark=plan.watermark,
        planned_at=plan.planned_at,
        base=plan.base,
    )
    return to_store(topology, now)


def _again(
    stream: Stream, planned: StreamPlan, head: Head, version: PositionVersion, asked: Restate, by: Coordinators | None
) -> StreamPlan:
    match planned:
        case Ranges():
            if by is not None:
                by.of(stream)  # the spout shares its look at the source, for all versions
            with stream.spout.one_look() if isinstance(stream.spout, PartitionedSpout) else nullcontext():
                return _ranges_again(stream, restate.ranges_again(stream.name, planned, version), asked)
        case OfInterval(before, interval):
            stream.spout.check_again(before)
            of = Interval(*map(datetime.fromisoformat, interval))
            as_then = Run("restate", interval=of, parameters=version.first.plan.parameters)
            anew = plan_stream(stream, head, None, as_then, by)
            if anew is None:
                raise SourceNotReady(f"{head.topology}: stream {stream.name!r} is not ready for {of}; try again")
            return anew
        case Successive(plan):
            again = stream.spout.plan_again("", plan)
            check_json(f"stream {stream.name!r}", again, stream.spout.metadata_bytes_max)
            return Successive(again)
        case _:
            assert_never(planned)


def _ranges_again(stream: Stream, ranges: Ranges, asked: Restate) -> Ranges:
    """Return the ranges as the spout finds them now. Raise the spout's error if a range is missing and may not be."""
    found, missing = dict[str, Any](), dict[str, str]()
    for name, range_ in ranges.ranges.items():
        try:
            found[name] = stream.spout.plan_again(name, range_)
        except (PartitionUnreadable, RecordsGone) as error:
            if not asked.accept_missing:
                raise type(error)(
                    f"txid {asked.position} is counted again whole or not at all: {error}; or say --accept-missing"
                ) from error
            missing[name] = error.text
    planned = {**ranges.rest, "partitions": found, **({"unreadable": missing} if missing else {})}
    check_json(f"stream {stream.name!r}", planned, stream.spout.metadata_bytes_max)
    check_ranges(f"stream {stream.name!r}", planned)
    return Ranges.from_json(planned)
