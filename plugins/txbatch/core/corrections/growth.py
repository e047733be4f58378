"""How many contributions a month of a topology's batches keeps, and how many a policy leaves: reckoned from the last batches.

A month has 30 days. By time, the number of batches in a month follows from the intervals; by offset, from the pace of
planning. If the number of batches or the size of a contribution is unknown, there is no result.

>>> from datetime import UTC
>>> hours = [BatchGrowth(datetime(2026, 1, 1, hour, tzinfo=UTC), timedelta(hours=1), {"hourly": 100_000}) for hour in range(5)]
>>> found = growth(hours, [StoredSize("hourly", 75_000_000, 500_000)])
>>> found
Growth(batches=720, contributions=72000000, size=10800000000)
>>> describe_growth(found, None)
'a month of 720 batches keeps 72,000,000 contributions, about 11 GB, for ever; by keep=Keep(days=30) gc leaves a month of them'
>>> describe_growth(found, Keep(txids=24))
'a month of 720 batches makes 72,000,000 contributions, about 11 GB; of them gc leaves about 360 MB: the last 24 txids'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from txbatch.core.state.keep import Keep

# How many of the last batches are asked.
LAST_BATCHES = 1_000
MONTH = timedelta(days=30)
# Batches planned within less have no pace: the batches of a backlog follow each other at once.
PACE_MIN = timedelta(hours=1)
# With fewer rows the size of a table says nothing about a row.
ROWS_MIN = 1_000
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True, slots=True)
class BatchGrowth:
    """A committed batch: the time of planning, the length of the interval, and the number of changed keys by state."""

    planned_at: datetime
    interval: timedelta | None
    keys: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class StoredSize:
    """The bytes of a state's contributions on disk, and the number of contributions."""

    state: str
    size: int | None
    rows: int | None


@dataclass(frozen=True, slots=True)
class Growth:
    """A month of batches: the numbers of batches, of contributions, and of the contributions' bytes."""

    batches: int
    contributions: int
    size: int


def growth(last: Sequence[BatchGrowth], stored: Sequence[StoredSize]) -> Growth | None:
    """Return the growth in a month, by the last batches of a topology; None if unknown."""
    batches = _in_a_month(last)
    sizes = {each.state: each.size / each.rows for each in stored if each.size and each.rows and each.rows >= ROWS_MIN}
    if batches is None or not sizes:
        return None
    rows = {state: batches * sum((each.keys or {}).get(state, 0) for each in last) / len(last) for state in sizes}
    return Growth(round(batches), round(sum(rows.values())), round(sum(rows[state] * sizes[state] for state in sizes)))


def describe_growth(found: Growth, keep: Keep | None) -> str:
    """Return in words what a month keeps, and how much a policy leaves, or could leave."""
    month = f"{found.batches:,} batches" if found.batches != 1 else "1 batch"
    amount = f"{found.contributions:,} contributions, about {size(found.size)}"
    if keep is None:
        return f"a month of {month} keeps {amount}, for ever; by keep=Keep(days=30) gc leaves a month of them"
    return f"a month of {month} makes {amount}; of them gc leaves about {size(left(found, keep))}: {keep}"


def left(found: Growth, keep: Keep) -> int:
    """Return how many bytes of contributions a policy leaves, once the topology has as many batches as the policy keeps."""
    if keep.days is not None:
        return round(found.size * keep.days / MONTH.days)
    return round(found.size * (keep.txids or 0) / max(found.batches, 1))


def size(number: float) -> str:
    """Return a number of bytes in words.

    >>> size(999), size(1_460_000), size(130e9), size(1.5e12)
    ('999 bytes', '1.5 MB', '130 GB', '1.5 TB')
    """
    unit = 0
    while number >= 999.5 and unit < len(_UNITS) - 1:
        number, unit = number / 1_000, unit + 1
    return f"{number:.1f} {_UNITS[unit]}" if unit and number < 9.95 else f"{number:.0f} {_UNITS[unit]}"


def _in_a_month(last: Sequence[BatchGrowth]) -> float | None:
    """Return how many batches a month has; None if the batches have neither intervals nor a pace."""
    intervals = [each.interval for each in last if each.interval]
    if intervals:
        return MONTH * len(intervals) / sum(intervals, timedelta())
    planned = sorted(each.planned_at for each in last)
    if len(planned) < 2 or planned[-1] - planned[0] < PACE_MIN:
        return None
    return MONTH * (len(planned) - 1) / (planned[-1] - planned[0])
