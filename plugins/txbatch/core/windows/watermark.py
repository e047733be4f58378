"""Watermark: the time up to which all records of a stream are taken to have come (R25).

A record is late if its window had ended by the watermark. The ledger moves the watermark on with each commit, and writes the
watermark into the next plan. Each attempt of a batch, and each restate of its position, therefore finds the same records late.
Times are microseconds since 1970 in UTC.

>>> Watermark("at", 60).after(None, read=[500, 300], behind=[])
240
>>> Watermark("at", 60).after(240, read=[900], behind=[310])
250
>>> Watermark("at", 60).after(250, read=[900], behind=[None])
250
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from txbatch.core.errors import InvalidWindow
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.windows.window import lasting

# What becomes of late records: they count like all others, are left out, or are kept in a state of their own.
MERGE, DROP, SIDE = "merge", "drop", "side"
# Nothing ends before the year 1.
BEGIN = micros_of(datetime.min.replace(tzinfo=UTC))


@dataclass(frozen=True, slots=True)
class Watermark:
    """The result of `with_watermark` for a stream: the field of time, the delay of records, and what happens to late records.

    A watermark of processing time is `planned`: the field has the time at which the batch was planned, and no record is late
    (R28).
    """

    time: str
    delay: int
    late: str = MERGE
    planned: bool = False

    def __str__(self) -> str:
        if self.planned:
            return f"of processing time, {self.time}"
        return f"{lasting(self.delay)} behind {self.time}, late={self.late!r}"

    def to_json(self) -> dict[str, Any]:
        """Return the part of the definition that the ledger keeps."""
        return {name: value for name, value in asdict(self).items() if name != "planned" or value}

    def after(self, before: int | None, read: Iterable[int | None], behind: Iterable[int | None]) -> int | None:
        """Return the watermark after a batch is committed; `before` if nothing moves the watermark.

        `read` has the largest time of each partition that the batch read; `behind` has the largest time of each partition
        known to be behind. The watermark follows the smallest of all these times, and never goes back. A partition that is
        behind and has never been read may hold any time, and keeps the watermark in place. A partition that was read and has
        no time does not count.
        """
        known, held = [each for each in read if each is not None], list(behind)
        if not known or None in held:
            return before
        least = min([*known, *(each for each in held if each is not None)])
        return _later(before, least - self.delay)

    def behind(self, cut_by: str | None) -> int:
        """Return how far records may be behind the start of their interval; 0 if intervals are `cut_by` the watermark's field."""
        return 0 if cut_by == self.time else self.delay

    def by_plan(self, before: int | None, planned_at: int | None) -> int | None:
        """Return the watermark after a batch planned at a time is committed: no later plan has an earlier time."""
        return before if planned_at is None else _later(before, planned_at)


def by_interval(before: int | None, whole_to: int, behind: int) -> int | None:
    """Return the watermark once all intervals up to `whole_to` are committed, with records up to `behind` microseconds behind."""
    return _later(before, whole_to - behind)


def of_interval(start: int, behind: int) -> int:
    """Return the watermark by which records of an interval are late: from the interval's start alone, not from commits (R18)."""
    return max(BEGIN, start - behind)


def _later(before: int | None, found: int) -> int | None:
    if found < BEGIN:
        return before
    return found if before is None else max(before, found)


def checked_late(of: str, late: str) -> str:
    """Return what happens to late records; DefinitionError for an unknown value."""
    if late not in (MERGE, DROP, SIDE):
        raise InvalidWindow(
            f"{of}: late={late!r} is no policy for late records; say 'merge' to count late records, 'drop' to leave late records "
            "out, or 'side' to keep late records as rows"
        )
    return late
