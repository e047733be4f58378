"""The plan of a batch: the records of each stream. A spout plans any JSON value; txbatch's own words stand outside the value.

Only `BatchPlan.from_json` and `to_json` convert between the plan and the JSON in the ledger, byte for byte:

    {"format": 2, "streams": {<name>: <entry>}, "idle": {<name>: <entry>}, "parameters": {...}}

Later formats add keys:

- Format 3 adds `"whole": true`: no named partition may be left out.
- Format 4 adds `"static": {<name>: <version>}` and `"as_of": {<name>: <cut>}`: the version of each static state, and the cut
  of each live state, for looking records up.
- Format 5 adds `"watermark": {<stream>: <microseconds since 1970>}`: the watermark of each stream, by which records are late.
- Format 6 adds `"planned_at": <microseconds since 1970>`: the time of planning, which is the records' processing time.
- Format 7 adds `"base": {<stream>: <number>}`: the first record number of each stream with numbered records.
- Format 8 adds `"records": <number>` to entries of streams by time: the number of records in the interval.

An entry of a partitioned spout is `{"partitions": {...}, "continues": [...], "unreadable": {...}, "missing": [...]}`: txbatch
carries the ranges on. An entry of any other spout is `{"plan": <the spout's plan>}`, and by time also has
`"interval": [<start>, <end>]`. Format 1, of batches in older ledgers, has the spout's plan itself for an entry.

>>> ranges = {"partitions": {"a": {"start": 0, "end": 9}}}
>>> plan = BatchPlan.from_json({"format": 2, "streams": {"words": ranges, "ticks": {"plan": [7]}}})
>>> plan.streams["words"].partitions["a"].end, plan.streams["ticks"]
(9, Whole(plan=[7]))
>>> {name: planned.ranges for name, planned in plan.streams.items()}
{'words': {'a': {'start': 0, 'end': 9}}, 'ticks': {'': [7]}}
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, assert_never

from txbatch.core.formats import check_format, is_range

if TYPE_CHECKING:
    from txbatch.core.windows.watermark import Watermark

FORMAT = 2
FORMAT_OF_WHOLE = 3
FORMAT_OF_LOOK_UPS = 4
FORMAT_OF_WATERMARKS = 5
FORMAT_OF_PROCESSING_TIME = 6
FORMAT_OF_NUMBERS = 7
FORMAT_OF_RECORDS = 8
_EMPTY: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Gone:
    """Why the source no longer keeps a range, in the spout's words."""

    why: Any


@dataclass(frozen=True, slots=True)
class Range:
    """A part of a partition: from `start` to before `end`. `rest` has the spout's further keys."""

    start: Any
    end: Any
    gone: Gone | None = None
    rest: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the range as the spout planned it."""
        gone = {} if self.gone is None else {"gone": self.gone.why}
        return {"start": self.start, "end": self.end, **gone, **self.rest}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Range:
        """Return the range planned by a spout."""
        gone = Gone(value["gone"]) if "gone" in value else None
        rest = {name: each for name, each in value.items() if name not in ("start", "end", "gone")}
        return cls(value["start"], value["end"], gone, rest)


@dataclass(frozen=True, slots=True)
class Ranges:
    """The plan of a partitioned stream: a range of each partition.

    `continues` names the partitions with a range that follows an earlier planned range. `unreadable` has the reason for each
    partition that could not be asked. `missing` names partitions that were read before and are listed no more. `rest` has the
    further keys of a coordinator.
    """

    partitions: Mapping[str, Range]
    continues: tuple[str, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    rest: Mapping[str, Any] = field(default_factory=dict)

    @property
    def plan(self) -> dict[str, Any]:
        """The JSON from the coordinator, for the emitter."""
        continues = {"continues": list(self.continues)} if self.continues else {}
        unreadable = {"unreadable": dict(self.unreadable)} if self.unreadable else {}
        missing = {"missing": list(self.missing)} if self.missing else {}
        return {"partitions": self.ranges, **continues, **unreadable, **missing, **self.rest}

    @property
    def ranges(self) -> dict[str, Any]:
        """Return the range of each partition, as JSON."""
        return {name: range_.to_json() for name, range_ in self.partitions.items()}

    def only(self, partitions: Collection[str]) -> Ranges:
        """Return the plan of some partitions."""
        return replace(self, partitions={name: of for name, of in self.partitions.items() if name in partitions})

    @classmethod
    def from_json(cls, plan: Mapping[str, Any]) -> Ranges:
        """Return the ranges planned by a PartitionedCoordinator."""
        kinds = {"continues": list, "unreadable": Mapping, "missing": list}
        said = {name: plan[name] for name, kind in kinds.items() if isinstance(plan.get(name), kind) and plan[name]}
        return cls(
            partitions={name: Range.from_json(of) for name, of in plan["partitions"].items()},
            continues=tuple(said.get("continues", ())),
            unreadable=said.get("unreadable", _EMPTY),
            missing=tuple(said.get("missing", ())),
            rest={name: value for name, value in plan.items() if name != "partitions" and name not in said},
        )


@dataclass(frozen=True, slots=True)
class _Undivided:
    """The plan of a stream without partitions: the JSON from the coordinator, for the emitter."""

    plan: Any

    @property
    def ranges(self) -> dict[str, Any]:
        """The plan as the range of the only partition, ''."""
        return {"": self.plan}

    @property
    def unreadable(self) -> Mapping[str, str]:
        """No partition is left out."""
        return _EMPTY

    @property
    def missing(self) -> tuple[str, ...]:
        """No partition is missing."""
        return ()

    def only(self, partitions: Collection[str]) -> Self:
        """Return the plan unchanged: there are no partitions."""
        return self


@dataclass(frozen=True, slots=True)
class Whole(_Undivided):
    """The plan of a stream without intervals: each plan continues the plan before."""


@dataclass(frozen=True, slots=True)
class OfInterval(_Undivided):
    """The plan of a stream that reads the records of an interval, `[<start>, <end>]`; `records` is their number, if known."""

    interval: Any
    records: int | None = None


StreamPlan = Ranges | Whole | OfInterval


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The plan of all streams of a batch.

    `streams` are the plans in the batch; `idle` are the last plans of all other streams, for the next plans to continue.
    `parameters` are the run's parameters that choose data. If `whole`, no partition may be left out, even by an opaque spout.
    `static` has the versions of static states and `as_of` the cuts of live states, for looking records up. `watermark` has by
    stream the time before which records are late. `planned_at` is the time of planning, if a stream has processing time
    (R28). `base` has by stream the first record number, if records have numbers (R29).
    """

    streams: Mapping[str, StreamPlan]
    idle: Mapping[str, StreamPlan] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    format: int = FORMAT
    whole: bool = False
    static: Mapping[str, Any] = field(default_factory=dict)
    as_of: Mapping[str, Any] = field(default_factory=dict)
    watermark: Mapping[str, int] = field(default_factory=dict)
    planned_at: int | None = None
    base: Mapping[str, int] = field(default_factory=dict)

    @property
    def partitioned(self) -> dict[str, Ranges]:
        """The streams with partitions."""
        return {name: planned for name, planned in self.streams.items() if isinstance(planned, Ranges)}

    def marks(self, watermarks: Mapping[str, Watermark]) -> Mapping[str, int]:
        """Return by stream the watermarks for late records; with processing time, the watermark is the time of planning."""
        timed = [stream for stream, says in watermarks.items() if says.planned]
        known = {stream: mark for stream, mark in self.watermark.items() if stream not in timed}
        return known if self.planned_at is None else known | dict.fromkeys(timed, self.planned_at)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON for the ledger."""
        entry = _plan_alone if self.format == 1 else _entry
        value = {"streams": {name: entry(planned) for name, planned in self.streams.items()}}
        whole = {"whole": True} if self.whole else {}
        idle = {name: entry(planned) for name, planned in self.idle.items()}
        fixed = {"static": self.static, "as_of": self.as_of, "watermark": self.watermark, "planned_at": self.planned_at}
        more = {"idle": idle, "parameters": self.parameters, **fixed, "base": self.base}
        said = {name: each for name, each in more.items() if each}
        return {"format": self._least_format, **value, **said, **whole}

    @property
    def _least_format(self) -> int:
        """The oldest format with all keys of the plan."""
        if any(
            isinstance(of, OfInterval) and of.records is not None
            for of in (*self.streams.values(), *self.idle.values())
        ):
            return FORMAT_OF_RECORDS
        if self.base:
            return FORMAT_OF_NUMBERS
        if self.planned_at:
            return FORMAT_OF_PROCESSING_TIME
        if self.watermark:
            return FORMAT_OF_WATERMARKS
        if self.static or self.as_of:
            return FORMAT_OF_LOOK_UPS
        return FORMAT_OF_WHOLE if self.whole else self.format

    @classmethod
    def from_json(cls, value: Mapping[str, Any], what: str = "the plan") -> BatchPlan:
        """Return a stored plan. If a newer txbatch stored the plan, raise NewerFormat, in which the plan is called `what`."""
        format_ = check_format(what, value, FORMAT_OF_RECORDS)
        read = _by_its_keys if format_ == 1 else _of_entry
        streams, idle = (
            {name: read(entry) for name, entry in value.get(part, _EMPTY).items()} for part in ("streams", "idle")
        )
        more = {name: value.get(name, _EMPTY) for name in ("parameters", "static", "as_of", "watermark", "base")}
        more["planned_at"] = value.get("planned_at")
        return cls(streams, idle, format=min(format_, FORMAT), whole=value.get("whole") is True, **more)


def _entry(planned: StreamPlan) -> Any:
    match planned:
        case Ranges():
            return planned.plan
        case Whole(plan):
            return {"plan": plan}
        case OfInterval(plan, interval, records):
            return {"plan": plan, "interval": interval, **({} if records is None else {"records": records})}
        case _:
            assert_never(planned)


def _of_entry(entry: Mapping[str, Any]) -> StreamPlan:
    if "partitions" in entry:
        return Ranges.from_json(entry)
    if "interval" in entry:
        return OfInterval(entry["plan"], entry["interval"], entry.get("records"))
    return Whole(entry["plan"])


def _plan_alone(planned: StreamPlan) -> Any:
    return planned.plan


def _by_its_keys(plan: Any) -> StreamPlan:
    """Return a stream's plan of format 1, recognized by txbatch's own keys; without such keys, a `Whole`."""
    if not isinstance(plan, Mapping):
        return Whole(plan)
    ranges = plan.get("partitions")
    if isinstance(ranges, Mapping) and all(map(is_range, ranges.values())):
        return Ranges.from_json(plan)
    return Whole(plan) if plan.get("interval") is None else OfInterval(plan, plan["interval"])
