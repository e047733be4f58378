"""How far the event time of a topology is, as its ledger decides it when it plans and when it commits (R25, R26, R28).

The caller holds the topology's lock; what it knows, it gives. Times are microseconds since 1970 in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.plan import BatchPlan, OfInterval
from txbatch.core.batch.transaction import Interval, Metadata
from txbatch.core.protocol.window_closing import Marks, largest
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.windows.watermark import Watermark, by_interval, of_interval

if TYPE_CHECKING:
    pass

# As far as times are told: what a database has beyond, Python has not.
_FAR = micros_of(datetime(9999, 12, 31, tzinfo=UTC))


class Ahead(NamedTuple):
    """The records of a batch whose times are after it was planned: how many, and the greatest time, at most of the year 9999."""

    records: int
    to: int


@dataclass(frozen=True, slots=True)
class EventTimeFacts:
    """What a ledger knows of the streams of a batch when it commits it.

    `before` are the watermarks until now, `read` has by stream the largest time of each partition that the batch read. `behind`
    returns those of a stream's partitions that are behind, `whole_to` the end of the committed intervals without a gap, of the
    first ones that reach a watermark.
    """

    before: Marks
    read: Mapping[str, Iterable[int | None]]
    behind: Callable[[str], Iterable[int | None]]
    whole_to: Callable[[int | None], datetime | None]


def advance(
    watermarks: Mapping[str, Watermark], plan: BatchPlan, known: EventTimeFacts, behind: Mapping[str, int]
) -> dict[str, int]:
    """Return the watermarks once a batch is committed; a stream that is not in it keeps its own, but for processing time.

    `behind` says by stream how far records may be behind the start of their interval.
    """
    found = dict(known.before)
    for stream, says in watermarks.items():
        before = known.before.get(stream)
        if says.planned:
            now = says.by_plan(before, plan.planned_at)
        elif stream not in plan.streams:
            continue
        elif isinstance(plan.streams[stream], OfInterval):
            end = known.whole_to(before)
            now = before if end is None else by_interval(before, micros_of(end), behind[stream])
        else:
            now = says.after(before, known.read.get(stream, ()), known.behind(stream))
        if now is not None:
            found[stream] = now
    return found


def pin_watermarks(
    metadata: Metadata, watermarks: Mapping[str, Watermark], marks: Marks, now: datetime, behind: Mapping[str, int]
) -> Metadata:
    """Return a new plan that says by which watermarks its records are late, and of streams with processing time when that is.

    By interval its start says it alone, whatever is committed; `behind` is as in `advance`. A clock that goes back does not
    make a processing time earlier than that of a committed batch, which closed windows.
    """
    plan = BatchPlan.from_json(metadata)
    late = {stream: marks[stream] for stream, says in watermarks.items() if stream in marks and not says.planned}
    for stream, of in plan.streams.items():
        if stream in watermarks and isinstance(of, OfInterval):
            late[stream] = of_interval(micros_of(datetime.fromisoformat(of.interval[0])), behind[stream])
    by_plan = [marks.get(stream) for stream, says in watermarks.items() if says.planned]
    if not late and not by_plan:
        return metadata
    planned_at = largest([micros_of(now), *by_plan]) if by_plan else None
    return replace(plan, watermark=late, planned_at=planned_at).to_json()


def capped(latest: int | None, planned_at: datetime) -> int | None:
    """Return a partition's largest time as it moves the watermark: no later than the batch was planned.

    A record of the year 2099 does not end every window: `ahead_of` counts it.
    """
    return None if latest is None else min(latest, micros_of(planned_at))


def ahead_of(manifest: Manifest) -> Ahead | None:
    """Return the records of a batch whose times are after it was planned (R25); None: there are none."""
    parts = [part for parts in manifest.streams.values() for part in parts.values() if part.ahead]
    latest = largest(part.latest for part in parts)
    return None if latest is None else Ahead(sum(part.ahead or 0 for part in parts), min(latest, _FAR))


def whole_to(intervals: Iterable[Interval], reached: int | None) -> datetime | None:
    """Return the end of intervals that follow on each other without a gap: the first that has `reached` a time; None: none has.

    What is before a gap below a watermark holds that no more.
    """
    end: datetime | None = None
    for each in sorted(intervals, key=lambda interval: interval.start):
        if end is not None and each.start > end and (reached is None or reached <= micros_of(end)):
            break
        end = each.end if end is None else max(end, each.end)
    return end if end is None or reached is None or reached <= micros_of(end) else None


def late_of(manifest: Manifest) -> dict[str, int]:
    """Return how many records of each state were late, of those that have a watermark."""
    return {state: staged.late for state, staged in manifest.states.items() if staged.late is not None}
