"""Compares a batch's source with the source as read, file by file, or by the rows of a table: for verify, and a restate."""

from __future__ import annotations

import logging

from txbatch.core.batch.manifest import ReadPartition
from txbatch.core.batch.plan import Ranges, StreamPlan
from txbatch.core.batch.planned_files import Entry, PlannedFiles
from txbatch.core.batch.transaction import Batch
from txbatch.core.corrections.verify import Recorded
from txbatch.core.errors import TxbatchError
from txbatch.core.topology.topology import Topology
from txbatch.formats.changes import Looks, changes_of
from txbatch.spouts.file import FileSpout
from txbatch.spouts.interval import IntervalSpout
from txbatch.spouts.postgres_interval import PostgresIntervalSpout
from txbatch.spouts.tables.late_rows import differences

log = logging.getLogger(__name__)


def differing_files(topology: Topology, recorded: Recorded) -> list[dict[str, str]]:
    """Return a row per file read by a batch and changed since, or new in the batch's interval; or per table, by its rows."""
    found = []
    for name, planned in recorded.plan_again().streams.items():
        spout = topology.streams[name].spout if name in topology.streams else None
        if isinstance(spout, FileSpout | IntervalSpout):
            counted = PlannedFiles(topology.name, name, spout.identity, _files(planned))
            found += [(name, *each) for each in changes_of(counted, Looks()) if not each[1].startswith("empty")]
        if isinstance(spout, IntervalSpout):
            found += [(name, file, "appeared") for file in spout.appeared(planned.plan)]
        if isinstance(spout, PostgresIntervalSpout):
            found += [(name, spout.table, change) for change in _of_table(spout, planned)]
    return [{"stream": stream, "file": file, "change": change} for stream, file, change in found]


def differing_from_plan(topology: Topology, batch: Batch) -> list[dict[str, str]]:
    """Return a row per file changed since the planning of an uncommitted batch; none if the files cannot be compared."""
    plan = batch.plan
    read = {name: dict.fromkeys(planned.ranges, ReadPartition(0, "0")) for name, planned in plan.streams.items()}
    try:
        return differing_files(
            topology, Recorded(topology.name, batch.position, batch.txid, plan, read, states=frozenset())
        )
    except TxbatchError as error:
        log.warning("%s: what changed since txid %s was planned cannot be told: %s", topology.name, batch.txid, error)
        return []


def _of_table(spout: PostgresIntervalSpout, planned: StreamPlan) -> list[str]:
    """Return how the rows of a plan differ now; nothing if the table cannot be looked at."""
    try:
        return [change for change in differences(spout.identity, [planned.plan]) if change is not None]
    except TxbatchError as error:
        log.warning("%s was not looked at: %s", spout.table, error)
        return []


def _files(planned: StreamPlan) -> dict[str, Entry]:
    """Return the plan's entry for each file."""
    if isinstance(planned, Ranges):
        return {name: [range_.end, range_.rest.get("mtime_ns")] for name, range_ in planned.partitions.items()}
    return dict(planned.plan["files"])
