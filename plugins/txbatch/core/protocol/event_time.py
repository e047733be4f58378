"""How far the event time of a topology is, decided by the ledger at planning and at the commit (R25, R26, R28).

The caller holds the topology's lock, and passes the facts. Times are microseconds since 1970 in UTC.
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

# The greatest time in messages: Python has no later time, a database has.
_FAR = micros_of(datetime(9999, 12, 31, tzinfo=UTC))


class Ahead(NamedTuple):
    """The records of a batch with times after the planning: how many, and the greatest time, at most of the year 9999."""

    records: int
    to: int


@dataclass(frozen=True, slots=True)
class EventTimeFacts:
    """A ledger's facts about the streams of a batch at the commit.

    `before` has the watermarks until now. `read` has by stream the largest time of each partition in the batch; `behind`
    returns the largest times of a stream's partitions that are behind. `whole_to` returns the end of the first
    row of adjoining committed intervals that goes as far as a watermark.
    """

    before: Marks
    read: Mapping[str, Iterable[int | None]]
    behind: Callable[[str], Iterable[int | None]]
    whole_to: Callable[[int | None], datetime | None]


def advance(
    watermarks: Mapping[str, Watermark], plan: BatchPlan, known: EventTimeFacts, behind: Mapping[str, int]
) -> dict[str, int]:
    """Return the watermarks after a commit. A stream outside the batch keeps the old watermark, except for processing time.

    `behind` has by stream how far records may be behind the start of the interval.
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
    """Return a new plan with the watermarks by which records are late, and with the processing time if a stream has one.

    By interval, the watermark depends on the start of the interval alone, whatever is committed; `behind` is as in `advance`.
    If the clock goes back, the processing time is still no earlier than the processing time of a committed batch, which
    closed windows.
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
    """Return a partition's largest time for the watermark: no later than the batch was planned.

    A record of the year 2099 does not end every window: `ahead_of` counts the record.
    """
    return None if latest is None else min(latest, micros_of(planned_at))


def ahead_of(manifest: Manifest) -> Ahead | None:
    """Return the number and greatest time of records with times after the planning (R25); None without records ahead."""
    parts = [part for parts in manifest.streams.values() for part in parts.values() if part.ahead]
    latest = largest(part.latest for part in parts)
    return None if latest is None else Ahead(sum(part.ahead or 0 for part in parts), min(latest, _FAR))


def whole_to(intervals: Iterable[Interval], reached: int | None) -> datetime | None:
    """Return the end of the first row of adjoining intervals that goes as far as `reached`; None if no row does.

    Intervals before a gap below the watermark hold the watermark back no more.
    """
    end: datetime | None = None
    for each in sorted(intervals, key=lambda interval: interval.start):
        if end is not None and each.start > end and (reached is None or reached <= micros_of(end)):
            break
        end = each.end if end is None else max(end, each.end)
    return end if end is None or reached is None or reached <= micros_of(end) else None


def late_of(manifest: Manifest) -> dict[str, int]:
    """Return the number of late records by state, for states with a watermark."""
    return {state: staged.late for state, staged in manifest.states.items() if staged.late is not None}
