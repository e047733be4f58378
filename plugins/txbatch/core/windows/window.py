"""Window: a span of event time, and records are grouped by its start."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from txbatch.core.errors import (
    InvalidWindow,
    OutOfRange,
)
from txbatch.core.records.sql import spark_name
from txbatch.core.records.time_buckets import (
    DAY_MICROS,
    MONTHS_OF_1970,
    Cut,
    Days,
    Instants,
    LocalDates,
    Months,
    micros_of,
    time_of,
    zone_named,
)
from txbatch.core.windows.timed import Timed

# A record counts in at most as many windows.
SLIDES_MAX = 10_000
_YEARS_MAX = 10_000
# More digits no length has; of thousands Python makes no number.
_DIGITS_MAX = 20
_LENGTH = re.compile(r"\s*(-?\d+)\s+([a-z]+?)s?\s*", re.IGNORECASE)
# By unit the kind of its numbers, and how many of these it is.
_UNITS = {
    "second": ("instant", 1_000_000),
    "minute": ("instant", 60_000_000),
    "hour": ("instant", 3_600_000_000),
    "day": ("day", 1),
    "week": ("day", 7),
    "month": ("month", 1),
    "year": ("month", 12),
}
# The same in words, the largest first; in UTC days are instants, too.
_TOLD = {
    "instant": {
        "week": 7 * DAY_MICROS,
        "day": DAY_MICROS,
        "hour": 3_600_000_000,
        "minute": 60_000_000,
        "second": 1_000_000,
    },
    "day": {"week": 7, "day": 1},
    "month": {"year": 12, "month": 1},
}
# Spark's own names of windows that it begins itself, in UTC.
_TRUNCATED = {1_000_000: "second", 60_000_000: "minute", 3_600_000_000: "hour", DAY_MICROS: "day"}
_OF_YEAR = {"instant": 365 * DAY_MICROS, "day": 365, "month": 12}
_LAST = micros_of(datetime.max.replace(tzinfo=UTC))
_CUTS: Mapping[str, Callable[[str, int], Cut]] = {
    "instants": lambda _zone, _begins: Instants(),
    "days": Days,
    "months": Months,
}
# What is said of where windows end. By this it is told how a view is made: who changes that changes what is said.
END = "When the window ends, which is not part of it, null after the year 9999"
# What a month has at least.
_MONTH_MICROS = 28 * DAY_MICROS
# 1970 began on a Thursday.
_MONDAY = 4


class Length(NamedTuple):
    """The length of a window: a number of a kind of cut; `weeks` is true if weeks are cut on Mondays."""

    kind: str
    number: int
    weeks: bool

    def describe(self, *, weeks: bool) -> str:
        """Return the length in the largest unit; weeks only if time is cut by weeks.

        >>> Length("instant", 3_600_000_000, False).describe(weeks=False), Length("day", 14, True).describe(weeks=True)
        ('1 hour', '2 weeks')
        """
        units = (each for each in _TOLD[self.kind].items() if weeks or each[0] != "week")
        unit, of = next(each for each in units if self.number % each[1] == 0)
        number = self.number // of
        return f"{number} {unit}{'s'[: number != 1]}"


@dataclass(frozen=True, slots=True)
class Window(Timed):
    """The result of `window`: the times of the field `time` are cut into windows, and the field `name` has the windows'
    starts.

    A window has `size` numbers of `cut`. Windows begin `slide` numbers apart, counted from `origin`. The end is not part of a
    window.
    """

    cut: Cut
    size: int
    slide: int
    origin: int
    described: str = dataclass_field()

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Window:
        """Return the window from the stored JSON."""
        cut = _CUTS[stored["cut"]](stored.get("zone", ""), stored.get("begins", 0))
        return cls("", stored["start"], cut, stored["size"], stored["slide"], stored["origin"], "")

    def to_json(self) -> dict[str, Any]:
        cut: dict[str, Any] = {"cut": type(self.cut).__name__.lower()}
        if isinstance(self.cut, LocalDates):
            cut |= {"zone": self.cut.zone} | ({"begins": self.cut.begins} if self.cut.begins else {})
        return {"start": self.name, **cut, "size": self.size, "slide": self.slide, "origin": self.origin}

    def derived(self, key: datetime) -> dict[str, datetime | None]:
        return {self.end_name: self.end(key)}

    def derived_sql(self, key: str) -> dict[str, str]:
        return {self.end_name: self.end_sql(key)}

    @property
    def derived_said(self) -> dict[str, str]:
        return {self.end_name: f"{END}: {self.described}"}

    @property
    def per_record(self) -> int:
        """The number of windows in which a record counts."""
        return self.size // self.slide

    def starts(self, time: datetime | None) -> list[datetime | None]:
        """Return the starts of all windows around a time; null for null. BadRecord if a window begins before the year 1."""
        if time is None:
            return [None]
        last = self._number(micros_of(time))
        starts = dict.fromkeys(map(self.cut.start, range(last - self.size + self.slide, last + 1, self.slide)))
        try:
            return [time_of(start) for start in starts]
        except OverflowError:
            raise OutOfRange(
                f"field {self.time!r} has a time whose window begins outside the years 1 to 9999; filter such records out"
            ) from None

    def end(self, start: datetime) -> datetime | None:
        """Return the end of a window; None for the year 10000, which Python has not."""
        try:
            return time_of(self.cut.start(self._number(micros_of(start)) + self.size))
        except OverflowError:
            return None

    def _number(self, time: int) -> int:
        """Return the number of the last window that begins by a time.

        If the time is the start of a window, the number is that window's, also if the window's first day was skipped and the
        start is the next day's.
        """
        number = self.cut.number(time)
        return number - (number - self.origin) % self.slide

    def first_open(self, time: int) -> int:
        """Return the start of the first window that has not ended at a time; the start may be beyond the years of Python."""
        number = self.cut.number(time) - self.size + 1
        return self.cut.start(number + (self.origin - number) % self.slide)

    def end_sql(self, start: str) -> str:
        """Return SQL of PostgreSQL for `end`: null for the year 10000, which PostgreSQL has, but Python has not."""
        try:
            without = time_of(self.first_open(_LAST)).isoformat()
        except OverflowError:
            return "NULL::timestamptz"
        end = self.cut.later_sql(start, self.size, self.slide, self.origin)
        return f"CASE WHEN {start} < timestamptz '{without}' THEN {end} END"

    @property
    def spark(self) -> str:
        """Spark SQL for the start of a window; if windows slide, for an array of starts."""
        time = f"cast({spark_name(self.time)} as timestamp)"
        if (unit := self._truncated) is not None:
            return f"date_trunc('{unit}', {time})"
        number = self.cut.number_spark(time)
        ahead = f"{number} - {self.origin}" if self.origin % self.slide else number
        last = number if self.slide == 1 else f"({number} - pmod({ahead}, {self.slide}))"
        if self.per_record == 1:
            return self.cut.start_spark(last)
        numbers = f"sequence({last} - {self.size - self.slide}, {last}, {self.slide})"
        starts = f"array_distinct(transform({numbers}, _txbatch_number -> {self.cut.start_spark('_txbatch_number')}))"
        return f"if({time} is null, array({time}), {starts})"

    @property
    def _truncated(self) -> str | None:
        """The unit to truncate a time to the start of a window, cheaper than arithmetic; None if no unit does."""
        if not isinstance(self.cut, Instants) or self.per_record > 1 or self.origin % self.slide:
            return None
        return _TRUNCATED.get(self.slide)


def window(
    time: str,
    length: str,
    slide: str | None = None,
    *,
    start: str | None = None,
    timezone: str | None = None,
    name: str = "window_start",
) -> Window:
    """Return a key of `group_by` for windows of event time: `window("ts", "10 minutes")`, by the timestamp field `ts`.

    Lengths are numbers of seconds, minutes, hours, days, weeks (from Monday), months or years. Windows are counted from 1970
    on. With a `slide`, a window begins at every multiple of the slide, and a record counts in every window around its time. In
    a `timezone`, days and longer spans begin at local midnight; without a timezone, at midnight in UTC. With a `start`, all
    windows begin later by a length, or earlier: `start="6 hours"`, by the clocks of the zone, or `start="-1 day"`. The
    window's start is the field `name`, and a key; reports have the end, too.

    Raises DefinitionError for an invalid length, or if time cannot be cut by the lengths.
    """
    given = {"slide": slide, "start": start}
    of = f"window({time!r}, {length!r}{''.join(f', {what}={said!r}' for what, said in given.items() if said is not None)})"
    named: dict[str, object] = {"time": time, "name": name}
    for what, field in named.items():
        if not isinstance(field, str) or not field:
            raise InvalidWindow(f"{of}: {what} is {field!r}; give the name of a field")
    zone = _zone(of, timezone)
    whole, grid = _length(of, "length", length, zone), _length(of, "slide", length if slide is None else slide, zone)
    if zone != "UTC" and "instant" in (whole.kind, grid.kind):
        raise InvalidWindow(
            f"{of}: timezone={timezone!r} is where days, weeks, months and years begin, and a day there may have 23 or 25 hours; "
            "leave it out, or give lengths of days"
        )
    if slide is not None:
        _check_slide(of, whole, grid)
    months, begins = (0, 0) if start is None else _start(of, start, grid)
    cut, origin = _cut(grid, zone, begins)
    every = "" if whole.number == grid.number else f", one every {grid.describe(weeks=grid.weeks)},"
    where = "" if zone == "UTC" else f" in {zone}"
    described = (
        f"windows of {whole.describe(weeks=grid.weeks)}{every} by {time}{where}{_described_start(months, begins)}"
    )
    return Window(time, name, cut, whole.number, grid.number, origin + months, described)


def micros(of: str, what: str, given: str) -> int:
    """Return a length in microseconds; DefinitionError for an invalid length, and for months and years, whose length varies."""
    found = _length(of, what, given, "UTC")
    if found.kind == "month":
        raise InvalidWindow(f"{of}: months and years differ in length, and the {what} {given!r} is one; give days")
    return found.number


def lasting(given: int) -> str:
    """Return text for microseconds, in the largest unit that divides the number.

    >>> lasting(3_600_000_000), lasting(5_400_000_000), lasting(1_500_000)
    ('1 hour', '90 minutes', '1.5 seconds')
    """
    whole = given and given % 1_000_000 == 0
    return Length("instant", given, weeks=False).describe(weeks=False) if whole else f"{given / 1_000_000:g} seconds"


def _cut(grid: Length, zone: str, begins: int) -> tuple[Cut, int]:
    """Return how time is cut, and the number from which windows are counted; `begins` is in microseconds."""
    match grid.kind:
        case "month":
            return Months(zone, begins), MONTHS_OF_1970
        case "day":
            return Days(zone, begins), _MONDAY * grid.weeks
        case _:
            return Instants(), _MONDAY * DAY_MICROS * grid.weeks + begins


def _start(of: str, given: object, grid: Length) -> tuple[int, int]:
    """Return how many months, and microseconds of the clocks, windows begin later; negative for earlier.

    The same windows have the same numbers: those of the nearest start, earlier or later.
    """
    kind, number, _ = _number(of, "start", given)
    micros = number if kind == "instant" else number * DAY_MICROS
    if kind == "month" and grid.kind != "month":
        raise InvalidWindow(
            f"{of}: the start {given!r} is in months, which differ in length, and windows are of others; give days or hours"
        )
    each = grid.number * {"instant": 1, "day": DAY_MICROS, "month": 1 if kind == "month" else _MONTH_MICROS}[grid.kind]
    moved = number if kind == "month" else micros
    if not 0 < abs(moved) < each:
        raise InvalidWindow(
            f"{of}: the start {given!r} is not shorter than what lies between two windows, or is nothing; give a shorter one, or "
            "leave it out"
        )
    if kind == "month":
        return _nearest(moved, each), 0
    return 0, moved if grid.kind == "month" else _nearest(moved, each)


def _nearest(moved: int, each: int) -> int:
    """Return the least of the numbers that differ by multiples of `each`, ahead or behind.

    >>> _nearest(6, 7), _nearest(-1, 7), _nearest(3, 6), _nearest(-3, 6)
    (-1, -1, 3, 3)
    """
    ahead = moved % each
    return ahead if 2 * ahead <= each else ahead - each


def _described_start(months: int, begins: int) -> str:
    moved = months or begins
    if not moved:
        return ""
    told = Length("month", abs(months), weeks=False).describe(weeks=False) if months else lasting(abs(begins))
    return f", beginning {told} {'later' if moved > 0 else 'earlier'}"


def _zone(of: str, timezone: object) -> str:
    try:
        return "UTC" if timezone is None else zone_named(timezone)
    except ValueError as error:
        raise InvalidWindow(f"{of}: timezone={timezone!r} {error}") from None


def _length(of: str, what: str, given: object, zone: str) -> Length:
    """Return a length from its text; in UTC, days are written in microseconds, since all have 24 hours."""
    kind, number, unit = _number(of, what, given)
    if number <= 0:
        raise InvalidWindow(f"{of}: the {what} {given!r} is not at least 1 {unit}, and at most {_YEARS_MAX:,} years")
    if kind == "day" and zone == "UTC":
        return Length("instant", number * DAY_MICROS, unit == "week")
    return Length(kind, number, unit == "week")


def _number(of: str, what: str, given: object) -> tuple[str, int, str]:
    """Return the kind of a text's unit, how many numbers of that kind the text has, also below nothing, and the unit."""
    found = _LENGTH.fullmatch(given) if isinstance(given, str) else None
    unit = found[2].lower() if found else ""
    if found is None or unit not in _UNITS:
        raise InvalidWindow(
            f"{of}: the {what} {given!r} is not a whole number and a unit, such as '10 minutes'; units are {', '.join(_UNITS)}"
        )
    kind, each = _UNITS[unit]
    if len(found[1]) > _DIGITS_MAX:  # what was given is so long that an error shows its beginning alone
        raise InvalidWindow(f"a {what} of {len(found[1]):,} digits is not at most {_YEARS_MAX:,} years; {of}")
    number = int(found[1]) * each
    if abs(number) > _YEARS_MAX * _OF_YEAR[kind]:
        raise InvalidWindow(f"{of}: the {what} {given!r} is not at least 1 {unit}, and at most {_YEARS_MAX:,} years")
    return kind, number, unit


def _check_slide(of: str, whole: Length, grid: Length) -> None:
    """DefinitionError if windows cannot begin at multiples of the slide."""
    if "month" in (whole.kind, grid.kind):
        raise InvalidWindow(f"{of}: months and years differ in length, and have no slide; leave it out, or give days")
    if grid.number > whole.number:
        raise InvalidWindow(
            f"{of}: the slide is longer than the window, and records between two windows would count in none; give a shorter one"
        )
    if whole.number % grid.number:
        raise InvalidWindow(
            f"{of}: the slide does not divide the window, and records would count in one more or less; give one that does"
        )
    if whole.number // grid.number > SLIDES_MAX:
        raise InvalidWindow(
            f"{of}: each record would count in {whole.number // grid.number:,} windows; at most {SLIDES_MAX:,} are taken: give a "
            "longer slide"
        )
