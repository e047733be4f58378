"""Intervals from a run's form, cut by the schedule of a DAG, the same for scheduled runs and backfills."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from txbatch.core.batch.transaction import INTERVALS_MAX, Interval
from txbatch.core.errors import InvalidArgument, InvalidSchedule
from txbatch.core.text import how_many
from txbatch.orchestration.result import zone_of
from txbatch.orchestration.schedules import of_airflow, timetable_of, within

if TYPE_CHECKING:
    from airflow.sdk import DAG

_HOW = "2013-01-03/2013-01-05, whose end is not part of it"


def parse(text: str, zone: str) -> Interval:
    """Return the interval named by a text, in this zone if the times have no zone. Raise ValueError for an invalid text.

    >>> str(parse("2013-01-03/2013-01-05", "America/New_York"))
    '2013-01-03T05:00:00+00:00/2013-01-05T05:00:00+00:00'
    """
    start, end = (moment(part.strip(), zone) for part in text.split("/"))
    return Interval(start, end)


def moment(text: str, zone: str) -> datetime:
    """Return the moment named by a text, in this zone if the text has none. Raise ValueError for an invalid text."""
    named = datetime.fromisoformat(text)
    return named if named.tzinfo else named.replace(tzinfo=ZoneInfo(zone))


def split_interval(whole: Interval, dag: DAG) -> list[Interval]:
    """Return the intervals of the DAG's schedule within the whole, in order.

    Raise DefinitionError if there is no interval, or more than INTERVALS_MAX, if the whole ends within an interval, or in
    the future.
    """
    zone, timetable = zone_of(timetable_of(dag)), of_airflow(dag)
    asked = f"{_between(whole, zone)} ({zone})"
    if whole.end > datetime.now(UTC):
        raise InvalidArgument(f"{asked} is not over yet; name an interval that ends now or before")
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
    """Return the intervals that begin within the DAG's dates, and a text about intervals left out.

    Airflow does the same: a run with a logical date outside has no tasks. Raise DefinitionError if no interval begins
    within.
    """
    task = dag.tasks[0]  # the task has the dates of the DAG, or narrower dates from default_args
    start, end = task.start_date, task.end_date
    within = [each for each in found if (not start or start <= each.start) and (not end or each.start <= end)]
    if len(within) == len(found):
        return within, None
    zone = zone_of(timetable_of(dag))
    dates = [f"{name} {written(date, zone)}" for name, date in (("start_date", start), ("end_date", end)) if date]
    has = f"the DAG has {' and '.join(dates)} ({zone})"
    if not within:
        raise InvalidArgument(
            f"no interval in {_between(whole, zone)} is counted: {has}; name intervals that "
            "begin within, or change the DAG's file"
        )
    left_out = len(found) - len(within)
    return within, f"{how_many(left_out, 'interval is', 'intervals are')} left out: {has}"


def _between(whole: Interval, zone: str) -> str:
    """Write an interval in the zone, in the format of `parse`.

    >>> _between(parse("2024-11-03/2024-11-03T01:30-05:00", "America/New_York"), "America/New_York")
    '2024-11-03/2024-11-03T01:30-05:00'
    """
    return f"{written(whole.start, zone)}/{written(whole.end, zone)}"


def written(when: datetime, zone: str) -> str:
    """Write a moment in the zone, in the format of `parse`.

    >>> written(datetime(2013, 1, 3, 5, tzinfo=UTC), "America/New_York"), written(datetime(2013, 1, 3, 5, tzinfo=UTC), "UTC")
    ('2013-01-03', '2013-01-03T05:00')
    """
    there = when.astimezone(ZoneInfo(zone))
    local = there.replace(tzinfo=None)
    if moment(local.isoformat(), zone) != when:  # in an hour repeated by a change of clocks
        return there.isoformat(timespec=_precision(local))
    return (
        local.date().isoformat() if local.time() == datetime.min.time() else local.isoformat(timespec=_precision(local))
    )


def _precision(local: datetime) -> str:
    return "auto" if local.second or local.microsecond else "minutes"
