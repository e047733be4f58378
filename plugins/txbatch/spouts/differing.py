"""What of its source differs since a batch was counted, file by file: what verify names, and what a restate would count."""

from __future__ import annotations

from txbatch.core.changes import Counted, Entry
from txbatch.core.plan import Ranges, StreamPlan
from txbatch.core.topology import Topology
from txbatch.core.verify import Recorded
from txbatch.spouts.changes import Looks, changes_of
from txbatch.spouts.file import FileSpout
from txbatch.spouts.interval import IntervalSpout


def differing_files(topology: Topology, recorded: Recorded) -> list[dict[str, str]]:
    """A row per file that a batch has read and that differs since, or that its interval would have now as well."""
    found = []
    for name, planned in recorded.plan_again().streams.items():
        spout = topology.streams[name].spout if name in topology.streams else None
        if isinstance(spout, FileSpout | IntervalSpout):
            counted = Counted(topology.name, name, spout.identity, _files(planned))
            found += [(name, *each) for each in changes_of(counted, Looks()) if not each[1].startswith("empty")]
        if isinstance(spout, IntervalSpout):
            found += [(name, file, "appeared") for file in spout.appeared(planned.plan)]
    return [{"stream": stream, "file": file, "change": change} for stream, file, change in found]


def _files(planned: StreamPlan) -> dict[str, Entry]:
    """What a plan says of each file."""
    if isinstance(planned, Ranges):
        return {name: [range_.end, range_.rest.get("mtime_ns")] for name, range_ in planned.partitions.items()}
    return dict(planned.plan["files"])
