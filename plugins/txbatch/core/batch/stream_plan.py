"""The plan of a stream in a batch: ranges of partitions, the spout's plan, or the records of an interval."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

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
    further keys of a coordinator of a user's own, also `continues`, `unreadable` and `missing` if empty or of another type.
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
        ours = {name: plan[name] for name, kind in kinds.items() if isinstance(plan.get(name), kind) and plan[name]}
        return cls(
            partitions={name: Range.from_json(of) for name, of in plan["partitions"].items()},
            continues=tuple(ours.get("continues", ())),
            unreadable=ours.get("unreadable", _EMPTY),
            missing=tuple(ours.get("missing", ())),
            rest={name: value for name, value in plan.items() if name != "partitions" and name not in ours},
        )


@dataclass(frozen=True, slots=True)
class _Undivided:
    """The plan of a stream without partitions. The value `plan` is the JSON from the coordinator, for the emitter."""

    plan: Any

    @property
    def ranges(self) -> dict[str, Any]:
        """The whole plan as one range, as of a stream with a single partition of empty name."""
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
class Successive(_Undivided):
    """The plan of a stream without intervals: each plan continues the plan before."""


@dataclass(frozen=True, slots=True)
class OfInterval(_Undivided):
    """The plan of a stream that reads the records of an interval, `[<start>, <end>]`; `records` is their number, if known."""

    interval: Any
    records: int | None = None


StreamPlan = Ranges | Successive | OfInterval
