"""The plan of a batch: the records of each stream. A spout plans any JSON value; txbatch's own words stand outside the value.

>>> ranges = {"partitions": {"a": {"start": 0, "end": 9}}}
>>> plan = BatchPlan.from_json({"format": 2, "streams": {"words": ranges, "ticks": {"plan": [7]}}})
>>> plan.streams["words"].partitions["a"].end, plan.streams["ticks"]
(9, Successive(plan=[7]))
>>> {name: planned.ranges for name, planned in plan.streams.items()}
{'words': {'a': {'start': 0, 'end': 9}}, 'ticks': {'': [7]}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from txbatch.core.batch.plan_json import FORMAT, read_plan, write_plan
from txbatch.core.batch.stream_plan import Gone, OfInterval, Range, Ranges, StreamPlan, Successive

if TYPE_CHECKING:
    from txbatch.core.windows.watermark import Watermark

__all__ = ["BatchPlan", "Gone", "OfInterval", "Range", "Ranges", "StreamPlan", "Successive"]


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The plan of all streams of a batch.

    `streams` are the plans in the batch; `idle` are the last plans of streams without partitions that are not in the batch, for
    the next plans to continue. A stream that was never planned is in neither.
    `parameters` are the run's parameters that choose data. If `whole`, no partition may be left out, even by an opaque spout.
    `static` has the versions of static states and `as_of` the cuts of live states, for looking records up. `watermark` has by
    stream the time before which records are late. `planned_at` is the processing time of the batch, if a stream has
    processing time (R28). `base` has by stream the first record number, if records have numbers (R29).
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
        return write_plan({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, value: Mapping[str, Any], what: str = "the plan") -> BatchPlan:
        """Return a stored plan. If a newer txbatch stored the plan, raise NewerFormat, in which the plan is called `what`."""
        return cls(**read_plan(value, what))
