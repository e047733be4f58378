"""SessionWindow: records of a key at most a gap apart, grouped by their first time, the start of the session (R27).

A batch contributes pieces: records that are a session in that batch alone. A state keeps pieces, and pieces merge by key like
everything else. A session is joined from the pieces of all batches when a state is read. Sessions therefore do not depend on
where batches end. A restate may take a piece away, and part a session again.

>>> sessions = session_window("at", "10 seconds")
>>> list(sessions.together([(0, 4), (14, 15), (30, 30)], of=lambda piece: piece, micros=lambda second: second * 1_000_000))
[[(0, 4), (14, 15)], [(30, 30)]]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from txbatch.core.errors import InvalidWindow
from txbatch.core.records.sql import spark_name
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.windows.timed import Timed
from txbatch.core.windows.window import lasting, micros

Piece = TypeVar("Piece")


@dataclass(frozen=True, slots=True)
class SessionWindow(Timed):
    """The result of `session_window`: records are together if `time` of both is at most `gap` microseconds apart."""

    gap: int

    @property
    def per_record(self) -> int:
        """The number of sessions in which a record counts."""
        return 1

    @property
    def described(self) -> str:
        """The session window in the words of definitions."""
        return f"sessions by {self.time}, {lasting(self.gap)} apart"

    def starts(self, time: datetime | None) -> list[datetime | None]:
        """Return the start of a record by itself, before the record is joined with others: the record's own time."""
        return [time]

    def late_before(self, time: int) -> int:
        """Return the time before which a record is late by a watermark: the watermark, against the record's own time (R25)."""
        return time

    @property
    def left(self) -> str:
        """The words for sessions that have left, before a time."""
        return "(its sessions) that end"

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> SessionWindow:
        """Return the session window from the stored JSON."""
        return cls("", stored["start"], stored["gap"])

    def to_json(self) -> dict[str, Any]:
        return {"start": self.name, "gap": self.gap}

    @property
    def closes_by(self) -> str:
        """The report column by which the sessions closed by a commit are found: the column of their last times (R26)."""
        return self.end_name

    def first_open(self, time: int) -> int:
        """Return the time before which ended sessions have their last record. A record of just then may join a later session.

        >>> session_window("at", "10 seconds").first_open(micros_of(datetime(2026, 1, 1))) - micros_of(datetime(2026, 1, 1))
        -10000000
        """
        return time - self.gap

    @property
    def spark(self) -> str:
        """Spark SQL for `starts`."""
        return f"cast({spark_name(self.time)} as timestamp)"

    def together(
        self,
        pieces: Iterable[Piece],
        of: Callable[[Piece], tuple[Any, Any]],
        micros: Callable[[Any], int] = micros_of,
    ) -> Iterator[list[Piece]]:
        """Yield the pieces of each session, in order: `of` returns the start of a piece, and the time of its last record."""
        found: list[Piece] = []
        reaches = 0
        for piece in sorted(pieces, key=lambda each: micros(of(each)[0])):
            start, last = map(micros, of(piece))
            if found and start > reaches + self.gap:
                yield found
                found = []
            reaches = max(reaches, last) if found else last
            found.append(piece)
        if found:
            yield found


def session_window(time: str, gap: str, *, name: str = "session_start") -> SessionWindow:
    """Return a key of `group_by` for sessions: `session_window("at", "30 minutes")`, by the timestamp field `at`.

    Records with equal other keys are in one session while no more than the gap lies between one record and the next. The
    session's first time is the field `name`, and a key; its last time is a value, `session_end`.

    Raises DefinitionError for a gap that is no length, or a length of months or years.
    """
    of = f"session_window({time!r}, {gap!r})"
    named: dict[str, object] = {"time": time, "name": name}
    for what, given in named.items():
        if not isinstance(given, str) or not given:
            raise InvalidWindow(f"{of}: {what} is {given!r}; give the name of a field")
    return SessionWindow(time, name, micros(of, "gap", gap))
