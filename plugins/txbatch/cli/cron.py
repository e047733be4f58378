"""Cut a stretch of time at the times of a cron expression, in a zone, into the intervals that Airflow's timetables make.

Known difference to Airflow: expressions that fire several times within the hour that is skipped in spring.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from croniter import croniter

from txbatch.core.errors import DefinitionError
from txbatch.core.transaction import INTERVALS_MAX, Interval


def cut(whole: Interval, cron: str, zone: str) -> list[Interval]:
    """Return the intervals between the times of `cron`, in order; together they cover the whole.

    DefinitionError for a bad expression, an unknown zone, a start or end that is none of its times, and for more intervals
    than INTERVALS_MAX.
    """
    with _told(cron):
        within = _zone(zone)
        _check({"start": whole.start, "end": whole.end}, cron, within)
        found = list(islice(pairwise(_times(whole, cron, within)), INTERVALS_MAX + 1))
    if len(found) > INTERVALS_MAX:
        raise DefinitionError(
            f"{cron!r} cuts {whole} into more than {INTERVALS_MAX:,} intervals, each a batch: give a part of it at a time"
        )
    return [Interval(*ends) for ends in found]


def over(start: datetime, now: datetime, cron: str, zone: str) -> list[Interval]:
    """Return the intervals from a time of `cron` on that are over now, in order, at most INTERVALS_MAX; as `cut` does."""
    with _told(cron):
        within = _zone(zone)
        _check({"start": start}, cron, within)
        times = _times(Interval(start, now), cron, within) if start < now else ()
        return [Interval(*ends) for ends in islice(pairwise(times), INTERVALS_MAX)]


@contextmanager
def _told(cron: str) -> Iterator[None]:
    """Context manager. DefinitionError for what is no cron expression, or leads too far."""
    try:
        yield
    except ValueError as error:  # croniter's own among them
        raise DefinitionError(f"{cron!r} is no cron expression: {error}") from None
    except OverflowError:
        raise DefinitionError(
            f"{cron!r} leads out of the years 1 to 9999: give an interval further from their ends"
        ) from None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise DefinitionError(f"no zone {name!r} is known; write it like America/New_York") from None


def _check(moments: Mapping[str, datetime], cron: str, zone: ZoneInfo) -> None:
    for what, moment in moments.items():
        found = _after(moment - timedelta(seconds=1), cron, zone)
        if found != moment:
            raise DefinitionError(
                f"the interval's {what} {moment.astimezone(zone).isoformat()} is no time of {cron!r} in {zone.key}; "
                f"the next one is {found.astimezone(zone).isoformat()}"
            )


def _times(whole: Interval, cron: str, zone: ZoneInfo) -> Iterator[datetime]:
    moment = whole.start
    while moment <= whole.end:
        yield moment
        moment = _after(moment, cron, zone)


def _after(moment: datetime, cron: str, zone: ZoneInfo) -> datetime:
    """Return the next time of `cron`, in UTC. In autumn the second occurrence of an hour counts (both, for hourly expressions);
    in spring the times of the skipped hour move one hour later.
    """
    local = moment.astimezone(zone).replace(tzinfo=None, fold=0)
    times = croniter(cron, start_time=local)
    found: datetime = times.get_next(datetime)
    if times.expanded[1] == ["*"]:
        return moment + (found - local)
    return max(found.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
