"""What plans say of files, and in what a file differs from that: decided without looking at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

# What a plan says of a file: its size, when it was last changed, in nanoseconds, and a checksum of its ending where it may
# grow; stored plans of 0.1 the size alone.
Entry = int | Sequence[int | None]


@dataclass(frozen=True, slots=True)
class PlannedFiles:
    """What one plan, or all of them, says of the files below a source's root; `restates`: a restate made it (R17)."""

    topology: str
    stream: str
    source: Mapping[str, Any]
    files: dict[str, Entry]
    txid: int | None = None
    interval: tuple[datetime, datetime] | None = None
    planned_at: datetime | None = None
    restates: bool = False

    def is_live(self, entry: Entry) -> bool:
        """True if a file was expected to grow: this batch was planned on schedule while a later interval was being written."""
        changed_at = planned_time(entry)
        if self.interval is None or self.planned_at is None or changed_at is None:
            return False
        start, end = self.interval
        return changed_at / 1e9 >= end.timestamp() and self.planned_at < end + (end - start)

    def knows(self, name: str, now: Entry | None) -> bool:
        """True if the plan has a file as it is now, as far as that can be seen without reading it; or knows that it is gone."""
        entry = self.files.get(name)
        return now is None if entry is None else now is not None and difference(entry, now) is None


def planned_size(entry: Entry) -> int:
    """The size that a plan says."""
    return entry if isinstance(entry, int) else int(entry[0] or 0)


def planned_time(entry: Entry) -> int | None:
    """When the file was last changed, as a plan says, if it does."""
    return None if isinstance(entry, int) else entry[1]


def difference(counted: Entry, now: Entry | None) -> str | None:
    """In what a file differs from what was counted; None for in nothing that can be seen without reading it."""
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
