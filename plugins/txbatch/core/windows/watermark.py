"""Watermark: up to which time a stream's records are taken to be there. What of an ended window comes later is late (R25).

The ledger moves it on with each commit, and writes it into the next plan: so each attempt of a batch, and each restate of its
position, finds the same records late. Times are microseconds since 1970 in UTC.

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
    """What `with_watermark` says of a stream: the field of its time, how far its records may be behind, what late ones do.

    Of processing time it is `planned`: the field has when the batch was planned, as its plan says, and no record is late (R28).
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
        """Return what the ledger keeps of the definition."""
        return {name: value for name, value in asdict(self).items() if name != "planned" or value}

    def after(self, before: int | None, read: Iterable[int | None], behind: Iterable[int | None]) -> int | None:
        """Return where it is once a batch is committed; `before` where nothing moves it.

        `read` has the largest time of each partition that the batch read, `behind` that of each that is known to be behind. It
        follows the least of them, and never goes back. A partition that is behind and has never been read may hold any time, and
        keeps it where it is; one that was read and has no time says nothing.
        """
        known, held = [each for each in read if each is not None], list(behind)
        if not known or None in held:
            return before
        least = min([*known, *(each for each in held if each is not None)])
        return _later(before, least - self.delay)

    def behind(self, cut_by: str | None) -> int:
        """Return how far records may be behind the start of their interval; not at all by the field by which that is `cut_by`."""
        return 0 if cut_by == self.time else self.delay

    def by_plan(self, before: int | None, planned_at: int | None) -> int | None:
        """Return where it is once a batch is committed that was planned then: no later plan has an earlier time."""
        return before if planned_at is None else _later(before, planned_at)


def by_interval(before: int | None, whole_to: int, behind: int) -> int | None:
    """Return where a watermark is once all intervals up to `whole_to` are committed, whose records are so far `behind`."""
    return _later(before, whole_to - behind)


def of_interval(start: int, behind: int) -> int:
    """Return by which watermark records of an interval are late: its start says it alone, whatever is committed (R18)."""
    return max(BEGIN, start - behind)


def _later(before: int | None, found: int) -> int | None:
    if found < BEGIN:
        return before
    return found if before is None else max(before, found)


def checked_late(of: str, late: str) -> str:
    """Return what late records do; DefinitionError for what is not known."""
    if late not in (MERGE, DROP, SIDE):
        raise InvalidWindow(
            f"{of}: late={late!r} is neither 'merge', by which late records count like all others, nor 'drop', nor 'side', which "
            "keeps them as rows"
        )
    return late
