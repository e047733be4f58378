"""How time is cut: into instants, local days and local months, each with a number. In Python, Spark SQL and SQL of PostgreSQL.

Times are microseconds since 1970 in UTC. A local day begins at midnight by the clocks of the zone, or at another time of the
clocks, for which the same holds. If the clocks show midnight twice, the day begins at the first midnight. If the clocks skip
midnight, the day begins when midnight would have been had the clocks not been put forward. A moment belongs to the last day that
has begun by the moment, also if the clocks go back over midnight. Numbers have no bounds: the Gregorian calendar repeats itself
every 400 years, and beyond the years of Python, a zone keeps the offset of the first or the last year.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

from txbatch.core.records.sql import spark_text

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

MICROS = timedelta(microseconds=1)
DAY_MICROS = timedelta(days=1) // MICROS
MONTHS_OF_1970 = 1970 * 12
_EPOCH, _EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1).toordinal()
# Folders of zones that only some know.
_NOT_NAMES = ("posix/", "right/")
# The Gregorian calendar begins again after so many days, which are so many months.
_CYCLE_DAYS, _CYCLE_MONTHS = 146_097, 4_800
# The times of Python that are a time in each zone.
_FIRST = (datetime.min.replace(tzinfo=UTC) + timedelta(days=2) - _EPOCH) // MICROS
_LAST = (datetime.max.replace(tzinfo=UTC) - timedelta(days=2) - _EPOCH) // MICROS


def zone_named(given: object) -> str:
    """Return the name of a zone with the same meaning in Python, Spark and PostgreSQL. Raises ValueError with the allowed
    names.

    Short names are refused: PostgreSQL takes CET for an offset, Spark for a zone.
    """
    from zoneinfo import ZoneInfoNotFoundError  # most jobs name no zone

    try:
        if not isinstance(given, str) or ("/" not in given and given != "UTC") or given.startswith(_NOT_NAMES):
            raise ValueError
        return _zone(given).key
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise ValueError("must be 'UTC' or the name of a zone, such as 'Europe/Berlin'") from None


@cache
def _zone(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


def micros_of(time: datetime) -> int:
    """Return a time in microseconds since 1970; a time without a zone is in UTC."""
    return ((time.replace(tzinfo=UTC) if time.tzinfo is None else time) - _EPOCH) // MICROS


def time_of(micros: int) -> datetime:
    """Return the time of a number of microseconds; OverflowError outside the years 1 to 9999."""
    return _EPOCH + timedelta(microseconds=micros)


class Cut(ABC):
    """A way to number time: `number` of a moment, `start` of a number."""

    @abstractmethod
    def number(self, micros: int) -> int:
        """Return the number of the span around a moment."""

    @abstractmethod
    def start(self, number: int) -> int:
        """Return the moment at which a number begins."""

    @abstractmethod
    def number_spark(self, time: str) -> str:
        """Return Spark SQL for `number`, over an expression of a timestamp."""

    @abstractmethod
    def start_spark(self, number: str) -> str:
        """Return Spark SQL for `start`, over an expression of a number."""

    @abstractmethod
    def later_sql(self, start: str, numbers: int, slide: int, origin: int) -> str:
        """Return SQL of PostgreSQL for the beginning of the span `numbers` after the span that begins at `start`.

        `start` begins a number that `slide` divides, counted from `origin`.
        """


@dataclass(frozen=True, slots=True)
class Instants(Cut):
    """Every microsecond is a number."""

    def number(self, micros: int) -> int:
        return micros

    def start(self, number: int) -> int:
        return number

    def number_spark(self, time: str) -> str:
        return f"unix_micros({time})"

    def start_spark(self, number: str) -> str:
        return f"timestamp_micros({number})"

    def later_sql(self, start: str, numbers: int, slide: int, origin: int) -> str:
        return f"({start} + interval '{numbers} microseconds')"


@dataclass(frozen=True, slots=True)
class LocalDates(Cut):
    """Numbers of spans that begin at midnight in a zone, or `begins` microseconds later by the clocks; earlier if negative."""

    zone: str
    begins: int = 0

    def number(self, micros: int) -> int:
        number = self._of_day((micros + self._offset(micros) - self.begins) // DAY_MICROS)
        return number + (micros >= self.start(number + 1)) - (micros < self.start(number))

    def start(self, number: int) -> int:
        begin = self._first_day(number) * DAY_MICROS + self.begins
        local = time_of(_within(begin)).replace(tzinfo=_zone(self.zone))
        return begin - _micros(local.utcoffset())

    def number_spark(self, time: str) -> str:
        local = _shifted_spark(f"from_utc_timestamp({time}, {spark_text(self.zone)})", -self.begins)
        number = self._of_day_spark(f"cast({local} as date)")
        after, before = (
            f"cast({time} {than} {self.start_spark(each)} as int)"
            for than, each in ((">=", f"({number} + 1)"), ("<", number))
        )
        return f"({number} + {after} - {before})"

    def start_spark(self, number: str) -> str:
        begin = _shifted_spark(f"cast({self._first_day_spark(number)} as timestamp)", self.begins)
        return f"to_utc_timestamp({begin}, {spark_text(self.zone)})"

    def later_sql(self, start: str, numbers: int, slide: int, origin: int) -> str:
        """Of two midnights PostgreSQL takes the second; the SQL finds the first by the offset of the day before."""
        zone = f"'{self.zone}'"
        local = _shifted_sql(f"{start} AT TIME ZONE {zone}", -self.begins)
        first_day = self._aligned_sql(f"date_trunc('day', {local})", slide, origin)
        midnight = _shifted_sql(f"({first_day} + interval '{numbers} {self._unit}')", self.begins)
        second = f"({midnight} AT TIME ZONE {zone})"
        before = f"({second} - interval '24 hours')"
        offset = f"({before} AT TIME ZONE {zone} - {before} AT TIME ZONE 'UTC')"
        first = f"(({midnight} - {offset}) AT TIME ZONE 'UTC')"
        return f"CASE WHEN {first} AT TIME ZONE {zone} = {midnight} THEN LEAST({first}, {second}) ELSE {second} END"

    def _offset(self, micros: int) -> int:
        return _micros(time_of(_within(micros)).astimezone(_zone(self.zone)).utcoffset())

    def _aligned_sql(self, day: str, slide: int, origin: int) -> str:
        """Return SQL of PostgreSQL for the first day of the span that begins on a day: no month is skipped, and none that
        begins at midnight begins on a later day.
        """
        return f"date_trunc('month', {day})" if self.begins else day

    _unit = ""

    @abstractmethod
    def _of_day(self, day: int) -> int:
        """Return the number of the span around a day; days are numbered from 1970 on."""

    @abstractmethod
    def _first_day(self, number: int) -> int:
        """Return the first day of a number."""

    @abstractmethod
    def _of_day_spark(self, day: str) -> str:
        """Return Spark SQL for `_of_day`, over an expression of a date."""

    @abstractmethod
    def _first_day_spark(self, number: str) -> str:
        """Return Spark SQL for the date of `_first_day`."""


class Days(LocalDates):
    """Days by the clocks of a zone, of 23 to 25 hours, from 1970 on."""

    __slots__ = ()
    _unit = "days"

    def _of_day(self, day: int) -> int:
        return day

    def _first_day(self, number: int) -> int:
        return number

    def _aligned_sql(self, day: str, slide: int, origin: int) -> str:
        """Return SQL of PostgreSQL for the first day. If the clocks skipped the first day, the span began on the next day."""
        if slide == 1:
            return day
        over = f"mod({day}::date - date '1970-01-01' - {origin}, {slide})"
        return f"({day} - make_interval(days => mod({over} + {slide}, {slide})))"

    def _of_day_spark(self, day: str) -> str:
        return f"unix_date({day})"

    def _first_day_spark(self, number: str) -> str:
        return f"date_from_unix_date({number})"


class Months(LocalDates):
    """Months by the clocks of a zone, from the year 0 on."""

    __slots__ = ()
    _unit = "months"

    def _of_day(self, day: int) -> int:
        cycles, rest = divmod(day, _CYCLE_DAYS)
        found = date.fromordinal(_EPOCH_DAY + rest)
        return found.year * 12 + found.month - 1 + cycles * _CYCLE_MONTHS

    def _first_day(self, number: int) -> int:
        cycles, rest = divmod(number - MONTHS_OF_1970, _CYCLE_MONTHS)
        first = date(1970 + rest // 12, rest % 12 + 1, 1)
        return first.toordinal() - _EPOCH_DAY + cycles * _CYCLE_DAYS

    def _of_day_spark(self, day: str) -> str:
        return f"(year({day}) * 12 + month({day}) - 1)"

    def _first_day_spark(self, number: str) -> str:
        year = f"cast(({number} - pmod({number}, 12)) div 12 as int)"
        return f"make_date({year}, pmod({number}, 12) + 1, 1)"


def _shifted_spark(time: str, by: int) -> str:
    """Return Spark SQL for a timestamp that is some microseconds later."""
    return f"timestamp_micros(unix_micros({time}) + ({by}))" if by else time


def _shifted_sql(time: str, by: int) -> str:
    """Return SQL of PostgreSQL for a time that is some microseconds later."""
    return f"(({time}) + interval '{by} microseconds')" if by else time


def _within(micros: int) -> int:
    return min(max(micros, _FIRST), _LAST)


@cache
def _micros(offset: timedelta | None) -> int:
    """Return a zone's offset in microseconds; 0 for None, which no zone has."""
    return 0 if offset is None else offset // MICROS
