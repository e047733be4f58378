"""Files as plans name them, and how a file differs from a plan: decided without looking at the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

# A file in a plan: the size, the time of the last change in nanoseconds, and a checksum of the ending if the file may grow;
# stored plans of 0.1 have the size alone.
Entry = int | Sequence[int | None]


@dataclass(frozen=True, slots=True)
class PlannedFiles:
    """The files below a source's root in one plan, or in all plans; `restates` is True for the plan of a restate (R17)."""

    topology: str
    stream: str
    source: Mapping[str, Any]
    files: dict[str, Entry]
    txid: int | None = None
    interval: tuple[datetime, datetime] | None = None
    planned_at: datetime | None = None
    restates: bool = False

    def is_live(self, entry: Entry) -> bool:
        """True if a file was expected to grow: the batch was planned on schedule while a later interval was being written."""
        changed_at = planned_time(entry)
        if self.interval is None or self.planned_at is None or changed_at is None:
            return False
        start, end = self.interval
        return changed_at / 1e9 >= end.timestamp() and self.planned_at < end + (end - start)

    def knows(self, name: str, now: Entry | None) -> bool:
        """True if the plan has a file as the file is now, as far as visible without reading; or if both lack the file."""
        entry = self.files.get(name)
        return now is None if entry is None else now is not None and difference(entry, now) is None


def planned_size(entry: Entry) -> int:
    """Return a file's size in a plan."""
    return entry if isinstance(entry, int) else int(entry[0] or 0)


def planned_time(entry: Entry) -> int | None:
    """Return the time of a file's last change in a plan, in nanoseconds; None if the plan has no time."""
    return None if isinstance(entry, int) else entry[1]


def other_ending(before: Entry, now: Entry) -> bool:
    """True if both entries have a checksum of the ending, and the checksums differ."""
    if isinstance(before, int) or isinstance(now, int) or min(len(before), len(now)) < 3:
        return False
    return before[2] != now[2]


def difference(counted: Entry, now: Entry | None) -> str | None:
    """Return how a file differs from the counted file; None if no difference is visible without reading."""
    if now is None:
        return "gone"
    before, after = planned_size(counted), planned_size(now)
    if before == 0 < after:
        return f"filled: it was empty when it was listed, now {after:,} bytes"
    if after > before:
        return f"grown from {before:,} to {after:,} bytes"
    if after < before:
        return f"replaced: {before:,} bytes before, now {after:,}"
    times = planned_time(counted), planned_time(now)
    return (
        "replaced or touched: as long as before, but changed later" if None not in times and len({*times}) > 1 else None
    )
