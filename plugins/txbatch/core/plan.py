"""What a batch's metadata says of each stream: the spout's own plan, any JSON value, and outside it the framework's words.

    {"format": 2, "streams": {<name>: <entry>}, "idle": {<name>: <entry>}, "parameters": {...}}

`streams` are those in the batch, `idle` the last entries of those that are not and that its next one continues. An entry is
`{"partitions": {...}, "continues": [...], "unreadable": {...}}` of a partitioned spout, whose ranges the framework carries;
else `{"plan": <what the spout planned>}`, with `"interval": [<start>, <end>]` where it reads by time. Format 1, of batches that
are in older ledgers, had the plan itself for an entry.

>>> metadata = {"format": 2, "streams": {"words": {"partitions": {"a": {"start": 0, "end": 9}}}, "ticks": {"plan": [7]}}}
>>> {name: planned.ranges for name, planned in streams_of(metadata).items()}
{'words': {'a': {'start': 0, 'end': 9}}, 'ticks': {'': [7]}}
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from txbatch.core.transaction import Metadata

FORMAT = 2


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """`plan` is what the coordinator planned and the emitter gets; `partitions` is None where the spout has none."""

    plan: Any
    partitions: Mapping[str, Metadata] | None = None
    continues: Collection[str] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    interval: Any = None

    @property
    def ranges(self) -> Mapping[str, Any]:
        """What is planned, by partition; without partitions it is all in the one called ''."""
        return {"": self.plan} if self.partitions is None else self.partitions

    def only(self, partitions: Collection[str]) -> StreamPlan:
        """The same of some partitions."""
        kept = {name: self.ranges[name] for name in self.ranges if name in partitions}
        return replace(self, plan={**self.plan, "partitions": kept}, partitions=kept)

    def to_json(self) -> dict[str, Any]:
        """The entry."""
        if self.partitions is not None:
            return dict(self.plan)
        return {"plan": self.plan, **({} if self.interval is None else {"interval": self.interval})}


def partitioned(plan: Metadata) -> StreamPlan:
    """What a PartitionedCoordinator planned."""
    return StreamPlan(plan, plan["partitions"], plan.get("continues", ()), plan.get("unreadable", {}))


def streams_of(metadata: Metadata) -> dict[str, StreamPlan]:
    """The streams in a batch."""
    return _read(metadata, "streams")


def idle_of(metadata: Metadata) -> dict[str, StreamPlan]:
    """The last plans of the streams that are not in a batch."""
    return _read(metadata, "idle")


def _read(metadata: Metadata, name: str) -> dict[str, StreamPlan]:
    of_format = _of_format_2 if metadata.get("format", 1) == FORMAT else _of_format_1
    return {stream: of_format(entry) for stream, entry in metadata.get(name, {}).items()}


def _of_format_2(entry: Metadata) -> StreamPlan:
    if "partitions" in entry:
        return partitioned(entry)
    return StreamPlan(entry["plan"], interval=entry.get("interval"))


def _of_format_1(plan: Any) -> StreamPlan:
    """By the keys of the plan, where they hold what the framework put there: a partitioned one, one by time, or any other."""
    if not isinstance(plan, Mapping):
        return StreamPlan(plan)
    ranges = plan.get("partitions")
    if isinstance(ranges, Mapping) and all(
        isinstance(each, Mapping) and {"start", "end"} <= set(each) for each in ranges.values()
    ):
        return partitioned(plan)
    return StreamPlan(plan, interval=plan.get("interval"))
