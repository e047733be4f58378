"""Partition keys of Airflow's runs: the interval of a key, if the key is one of the DAG's grid.

Airflow's own mappers write the start of a partition, and show by the format how long the partition is: `2026-01` is a month,
`2026-01-05` a day, `2026-01-05T07` an hour.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from txbatch.core.batch.transaction import Interval
from txbatch.core.errors import DefinitionError, NoInterval
from txbatch.core.text import one_line
from txbatch.orchestration import intervals
from txbatch.orchestration.result import zone_of
from txbatch.orchestration.schedules import of_airflow, timetable_of, within

if TYPE_CHECKING:
    from airflow.sdk import DAG

_CITED = 80
# Longer than any interval.
_LONG = timedelta(days=800)
# The formats of StartOfYearMapper, StartOfQuarterMapper, ..., StartOfHourMapper.
_SIZED = re.compile(
    r"(?P<year>\d{4})(-Q(?P<quarter>[1-4])|-(?P<month>\d\d)(-(?P<day>\d\d)(?P<week> \(W\d\d\)|T(?P<hour>\d\d))?)?)?"
)


def interval_of(key: str, date: datetime | None, dag: DAG) -> Interval:
    """Return the interval of a partition key. `date` is Airflow's own reading of the key, if there is one.

    Raise NoInterval if the key is no interval of the grid, or is two hours.
    """
    zone, timetable = zone_of(timetable_of(dag)), of_airflow(dag)
    if both := _repeated(key, zone):
        raise NoInterval(
            f"partition {key!r} is two hours, as clocks go back ({zone}); count both by a run of {dag.dag_id} with the field "
            f"'catch_up': {intervals.written(both.start, zone)}/{intervals.written(both.end, zone)}"
        )
    try:
        start, end = _ends(key, date, zone)
        found = next(within(Interval(start, end or start + _LONG), timetable), None)
    except (ValueError, OverflowError, DefinitionError):
        raise _refused(key, "names no time", dag, zone) from None
    if found is None or found.start != start or end not in (None, found.end):
        told = f"is {_told(start, zone)} to {_told(end, zone)}" if end else f"begins at {_told(start, zone)}"
        raise _refused(key, told, dag, zone)
    return found


def _repeated(key: str, zone: str) -> Interval | None:
    """Return both hours of a key, if clocks in the zone show the hour twice. The key alone does not say the hour's turn."""
    sized = _SIZED.fullmatch(key)
    if sized is None or sized["hour"] is None:
        return None
    try:
        shown = datetime.fromisoformat(key).replace(tzinfo=ZoneInfo(zone))
    except ValueError:  # no time
        return None
    first, second = (shown.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
    return Interval(first, second + timedelta(hours=1)) if first < second else None


def _ends(key: str, date: datetime | None, zone: str) -> tuple[datetime, datetime | None]:
    """Return the start of a partition, and the end if the key shows it. Raise ValueError if the key shows no start, or
    another one than the date.
    """
    if sized := _SIZED.fullmatch(key):
        return _of_size(sized, date, ZoneInfo(zone))
    if "/" in key:
        whole = intervals.parse(key, zone)
        return whole.start, whole.end
    return date or intervals.moment(key, zone), None


def _of_size(sized: re.Match[str], date: datetime | None, zone: ZoneInfo) -> tuple[datetime, datetime]:
    part = {name: int(text) for name, text in sized.groupdict().items() if text and name != "week"}
    month = part.get("month", 3 * part.get("quarter", 1) - 2)
    shown = datetime(part["year"], month, part.get("day", 1), part.get("hour", 0), tzinfo=zone)
    if date is not None and date.astimezone(zone).replace(fold=0) != shown:  # in one zone, what clocks show is compared
        raise ValueError(f"{date} is another time in {zone}")
    start = (date or shown).astimezone(UTC)
    if "hour" in part:
        return start, start + timedelta(hours=1)
    if "day" in part:
        end = shown + timedelta(days=7 if sized["week"] else 1)
    else:
        end = _months_later(shown, 1 if "month" in part else 3 if "quarter" in part else 12)
    return start, end.astimezone(UTC)


def _months_later(first: datetime, months: int) -> datetime:
    years, month = divmod(first.month - 1 + months, 12)
    return first.replace(year=first.year + years, month=month + 1)


def _told(moment: datetime, zone: str) -> str:
    return intervals.written(moment, zone)


def _refused(key: str, told: str, dag: DAG, zone: str) -> NoInterval:
    return NoInterval(
        f"partition {one_line(key, _CITED)!r} {told} ({zone}), and is no interval of {dag.dag_id}, {of_airflow(dag).summary}; "
        "give intervals= the size and the zone of the partitions"
    )
