"""Intervals that a run's form names, and how the schedule of a DAG cuts them: as scheduled runs and backfills have them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from txbatch.core.batch.transaction import INTERVALS_MAX, Interval
from txbatch.core.errors import InvalidArgument, InvalidSchedule
from txbatch.core.text import how_many
from txbatch.orchestration.result import zone_of
from txbatch.orchestration.schedules import within

if TYPE_CHECKING:
    from airflow.sdk import DAG

_HOW = "2013-01-03/2013-01-05, whose end is not part of it"


def parse(text: str, zone: str) -> Interval:
    """Return the interval that a text names; times without a zone are in this one. ValueError for none.

    >>> str(parse("2013-01-03/2013-01-05", "America/New_York"))
    '2013-01-03T05:00:00+00:00/2013-01-05T05:00:00+00:00'
    """
    start, end = (_moment(part.strip(), zone) for part in text.split("/"))
    return Interval(start, end)


def _moment(text: str, zone: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))


def split_interval(whole: Interval, dag: DAG) -> list[Interval]:
    """Return the intervals of the DAG's schedule that the whole is made of, in order.

    DefinitionError where it is made of none, or not of whole ones, or of more than INTERVALS_MAX, and for those to come.
    """
    from airflow.serialization.encoders import coerce_to_core_timetable

    zone = zone_of(dag.timetable)
    asked = f"{_between(whole, zone)} ({zone})"
    if whole.end > datetime.now(UTC):
        raise InvalidArgument(f"{asked} is not over yet; name an interval that ends now or before")
    timetable: Any = coerce_to_core_timetable(dag.timetable)
    found = list(islice(within(whole, timetable), INTERVALS_MAX + 1))
    if not found:
        raise InvalidSchedule(
            f"the schedule of {dag.dag_id}, {timetable.summary}, has no interval in {asked}; name its start and end, or its "
            f"days: {_HOW}"
        )
    if len(found) > INTERVALS_MAX:
        raise InvalidSchedule(
            f"{asked} has more than {INTERVALS_MAX:,} intervals, each a batch: give a part of it at a time"
        )
    covered = Interval(found[0].start, found[-1].end)
    if covered != whole:
        raise InvalidSchedule(
            f"{asked} is not made of whole intervals of the schedule of {dag.dag_id}; those in it are {_between(covered, zone)}"
        )
    return found


def between_dates(found: Sequence[Interval], whole: Interval, dag: DAG) -> tuple[list[Interval], str | None]:
    """Return those of the intervals in the whole that begin within the DAG's dates, and what is to be said of the others.

    So Airflow does it: a run whose logical date is outside of them has no tasks. DefinitionError where none is within.
    """
    task = dag.tasks[0]  # its dates are those of the DAG, or of default_args where these are narrower
    start, end = task.start_date, task.end_date
    within = [each for each in found if (not start or start <= each.start) and (not end or each.start <= end)]
    if len(within) == len(found):
        return within, None
    zone = zone_of(dag.timetable)
    dates = [f"{name} {_written(date, zone)}" for name, date in (("start_date", start), ("end_date", end)) if date]
    has = f"the DAG has {' and '.join(dates)} ({zone})"
    if not within:
        raise InvalidArgument(
            f"no interval in {_between(whole, zone)} is counted: {has}; name intervals that "
            "begin within, or change the DAG's file"
        )
    left_out = len(found) - len(within)
    return within, f"{how_many(left_out, 'interval is', 'intervals are')} left out: {has}"


def _between(whole: Interval, zone: str) -> str:
    """Write an interval as `parse` reads it, in the zone.

    >>> _between(parse("2024-11-03/2024-11-03T01:30-05:00", "America/New_York"), "America/New_York")
    '2024-11-03/2024-11-03T01:30-05:00'
    """
    return f"{_written(whole.start, zone)}/{_written(whole.end, zone)}"


def _written(moment: datetime, zone: str) -> str:
    """Write a moment as `parse` reads it, in the zone.

    >>> _written(datetime(2013, 1, 3, 5, tzinfo=UTC), "America/New_York"), _written(datetime(2013, 1, 3, 5, tzinfo=UTC), "UTC")
    ('2013-01-03', '2013-01-03T05:00')
    """
    there = moment.astimezone(ZoneInfo(zone))
    local = there.replace(tzinfo=None)
    if _moment(local.isoformat(), zone) != moment:  # of an hour that comes twice
        return there.isoformat(timespec=_precision(local))
    return (
        local.date().isoformat() if local.time() == datetime.min.time() else local.isoformat(timespec=_precision(local))
    )


def _precision(local: datetime) -> str:
    return "auto" if local.second or local.microsecond else "minutes"
