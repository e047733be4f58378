"""Cut a span of time by a cron expression, in a zone, into the same intervals as Airflow's timetables.

Known difference to Airflow: expressions that fire several times within the hour skipped in spring.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

from croniter import croniter

from txbatch.core.batch.transaction import INTERVALS_MAX, Interval
from txbatch.core.errors import DefinitionError, InvalidSchedule

_SECOND = timedelta(seconds=1)
# The largest change of any clock ever, except by whole days.
_MOVED_MAX = timedelta(hours=2)


def split_by_cron(whole: Interval, cron: str, zone: str) -> list[Interval]:
    """Return the intervals between the times of `cron`, in order. Together the intervals cover the whole.

    Raise DefinitionError for a bad expression, an unknown zone, a start or end that is no time of `cron`, and for more
    intervals than INTERVALS_MAX.
    """
    with _naming_cron(cron):
        within = _zone(zone)
        _check_start(whole.start, cron, within)
        times = list(islice(_times(whole, cron, within), INTERVALS_MAX + 2))
        if len(times) > INTERVALS_MAX + 1:
            raise InvalidSchedule(
                f"{cron!r} cuts {whole} into more than {INTERVALS_MAX:,} intervals, each a batch: give a part of it at a time"
            )
        if times[-1] != whole.end:
            raise _no_time("end", whole.end, cron, within, _after(times[-1], cron, within))
    return [Interval(*ends) for ends in pairwise(times)]


def over(start: datetime, now: datetime, cron: str, zone: str) -> list[Interval]:
    """Return the ended intervals from a time of `cron` on, in order, at most INTERVALS_MAX. Raise like `split_by_cron`."""
    with _naming_cron(cron):
        within = _zone(zone)
        _check_start(start, cron, within)
        times = _times(Interval(start, now), cron, within) if start < now else ()
        return [Interval(*ends) for ends in islice(pairwise(times), INTERVALS_MAX)]


@contextmanager
def _naming_cron(cron: str) -> Iterator[None]:
    """Context manager. Raise DefinitionError for an invalid cron expression, or times outside the years 1 to 9999."""
    try:
        yield
    except ValueError as error:  # croniter's own among them
        raise InvalidSchedule(f"{cron!r} is no cron expression: {error}") from None
    except OverflowError:
        raise InvalidSchedule(
            f"{cron!r} leads out of the years 1 to 9999: give an interval further from their ends"
        ) from None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidSchedule(f"no zone {name!r} is known; write it like America/New_York") from None


def _check_start(moment: datetime, cron: str, zone: ZoneInfo) -> None:
    if not _is_time(moment, cron, zone):
        raise _no_time("start", moment, cron, zone, _after(moment - _SECOND, cron, zone))


def _no_time(what: str, moment: datetime, cron: str, zone: ZoneInfo, following: datetime) -> DefinitionError:
    return InvalidSchedule(
        f"the interval's {what} {moment.astimezone(zone).isoformat()} is no time of {cron!r} in {zone.key}; "
        f"the next one is {following.astimezone(zone).isoformat()}"
    )


def _is_time(moment: datetime, cron: str, zone: ZoneInfo) -> bool:
    """True if an interval of `cron` may begin at the moment: at a time of `cron` on the zone's clock, or at the next
    time after one.
    """
    local = _local(moment, zone)
    times = croniter(cron, start_time=local - _MOVED_MAX - _SECOND)
    shown: list[datetime] = list(takewhile(lambda each: each <= local, iter(lambda: times.get_next(datetime), None)))
    if _each_hour(times):
        before: datetime = croniter(cron, start_time=local).get_prev(datetime)
        return local in shown or any(_after(each, cron, zone) == moment for each in _moments(before, zone))
    return any(max(_moments(each, zone)) == moment for each in shown)


def _times(whole: Interval, cron: str, zone: ZoneInfo) -> Iterator[datetime]:
    moment = whole.start
    while moment <= whole.end:
        yield moment
        moment = _after(moment, cron, zone)


def _after(moment: datetime, cron: str, zone: ZoneInfo) -> datetime:
    """Return the next time of `cron`, in UTC.

    In autumn the second occurrence of an hour counts (both, for hourly expressions). In spring the times of the skipped
    hour move one hour later.
    """
    local = _local(moment, zone)
    times = croniter(cron, start_time=local)
    found: datetime = times.get_next(datetime)
    return moment + (found - local) if _each_hour(times) else max(_moments(found, zone))


def _each_hour(times: croniter) -> bool:
    return bool(times.expanded[1] == ["*"])


def _local(moment: datetime, zone: ZoneInfo) -> datetime:
    """Return the time shown by a clock in the zone."""
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def _moments(shown: datetime, zone: ZoneInfo) -> list[datetime]:
    """Return the moments of a local time, in UTC: two in autumn. A skipped time has two as well, by either offset."""
    return [shown.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
