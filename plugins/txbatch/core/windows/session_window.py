"""SessionWindow: records of a key that are at most a gap apart, whose first time is the start by which they are grouped (R27).

What a batch contributes are pieces: records that are a session in that batch alone. A state keeps pieces, which merge by key as
everything else does; a session is what pieces, whatever batch they are of, come to where the state is read. So nothing depends
on where batches end, and a restate, which takes a piece away, may part a session again.

>>> sessions = session_window("at", "10 seconds")
>>> list(sessions.together([(0, 4), (14, 15), (30, 30)], of=lambda piece: piece, micros=lambda second: second * 1_000_000))
[[(0, 4), (14, 15)], [(30, 30)]]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from txbatch.core.errors import InvalidWindow
from txbatch.core.records.sql import spark_name
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.windows.window import Timed, lasting, micros

Piece = TypeVar("Piece")


@dataclass(frozen=True, slots=True)
class SessionWindow(Timed):
    """What `session_window` returns: records whose times, the field `time`, are at most `gap` microseconds apart are together."""

    gap: int

    @property
    def per_record(self) -> int:
        """In how many sessions a record counts."""
        return 1

    @property
    def described(self) -> str:
        """What definitions say of it."""
        return f"sessions by {self.time}, {lasting(self.gap)} apart"

    def starts(self, time: datetime | None) -> list[datetime | None]:
        """Return the start of a record by itself, before it is together with others: its own time."""
        return [time]

    def ended_before(self, time: int) -> int:
        """Return the time before which a record is late by a watermark: that by its own time (R25)."""
        return time

    @property
    def closes_by(self) -> str:
        """By which column of the report the sessions are found that a commit closes: that of their last times (R26)."""
        return self.end_name

    def first_open(self, time: int) -> int:
        """Return before which last time sessions have ended at a time: a record of just then may still be of a later one.

        >>> session_window("at", "10 seconds").first_open(micros_of(datetime(2026, 1, 1))) - micros_of(datetime(2026, 1, 1))
        -10000000
        """
        return time - self.gap

    @property
    def spark(self) -> str:
        """Return `starts` as an expression of Spark."""
        return f"cast({spark_name(self.time)} as timestamp)"

    def together(
        self,
        pieces: Iterable[Piece],
        of: Callable[[Piece], tuple[Any, Any]],
        micros: Callable[[Any], int] = micros_of,
    ) -> Iterator[list[Piece]]:
        """Yield the pieces of each session, in order: `of` returns where one begins, and where its last record is."""
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
    """Return what `group_by` takes for sessions: `session_window("at", "30 minutes")`, by the timestamp field `at`.

    Records of equal other keys are of one session where no more than the gap lies between one and the next. Its first time is the
    field `name`, and a key; its last time is a value, `session_end`.

    Raises DefinitionError for a gap that is no length, or a length of months or years.
    """
    of = f"session_window({time!r}, {gap!r})"
    named: dict[str, object] = {"time": time, "name": name}
    for what, given in named.items():
        if not isinstance(given, str) or not given:
            raise InvalidWindow(f"{of}: {what} is {given!r}; give the name of a field")
    return SessionWindow(time, name, micros(of, "gap", gap))
