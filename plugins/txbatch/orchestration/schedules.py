"""Check schedules: runs need intervals, and the interval of a run must be an interval of its DAG's schedule."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from txbatch import fit
from txbatch.core.batch.transaction import Interval
from txbatch.core.errors import DefinitionError, InvalidSchedule
from txbatch.orchestration.result import zone_of

if TYPE_CHECKING:
    from airflow.sdk import DAG, Context

GRID = 'CronDataIntervalTimetable("0 0 * * *", timezone="UTC")'
DAILY = f"{GRID}, from airflow.timetables.interval"
_WAITED_FOR = f"{DAILY}: a source that is not ready for an interval is waited for"
# What to write instead of a schedule without an interval for each run, by class name: the SDK has classes of its own.
_INSTEAD = {
    "OnceTimetable": "schedule=None, and trigger one run with a logical date or a range to catch up",
    "ContinuousTimetable": f"{DAILY}, with any cron expression: a run of ContinuousTimetable is as long as the run before",
    "AssetTriggeredTimetable": _WAITED_FOR,
    "AssetOrTimeSchedule": f"its timetable alone, {_WAITED_FOR}",
    "PartitionedAssetTimetable": _WAITED_FOR,
    "PartitionedAtRuntime": DAILY,
    "CronPartitionTimetable": DAILY,
    "EventsTimetable": "schedule=None, and trigger each run with its logical date, or several with a range to catch up",
}
_A_DAY = timedelta(days=1)
FIRST_TASK = "initialize_transaction"


def check_schedule(topology: str, dag: DAG) -> None:
    """Reject a schedule without data intervals if the topology reads by time: each run would fail."""
    instead = instead_of(dag.timetable)
    if instead is not None:
        raise InvalidSchedule(
            f"topology_dag: {topology} reads by time, and the runs of schedule={dag.schedule!r} have no interval; write {instead}"
            f"; or keep the schedule and add intervals={GRID}: then a run counts each interval that is over"
        )


def instead_of(timetable: Any) -> str | None:
    """Return a replacement for a schedule without data intervals; None for a schedule with data intervals."""
    for kind in type(timetable).__mro__:
        if kind.__name__ in _INSTEAD:
            return _INSTEAD[kind.__name__]
    each = getattr(timetable, "timetables", getattr(timetable, "_timetables", [timetable]))
    spans = [getattr(one, "interval", getattr(one, "_interval", None)) for one in each]  # Airflow's classes hide both
    return DAILY if any(span is not None and not span for span in spans) else None


def timetable_of(dag: DAG) -> Any:
    """Return the timetable that cuts time for the runs of a DAG: `intervals` of `topology_dag`, or else the schedule."""
    return getattr(dag.task_dict.get(FIRST_TASK), "intervals", None) or dag.timetable


def is_scheduled(timetable: object) -> bool:
    """True unless the schedule is None. Without a schedule, runs may have any interval."""
    return type(timetable).__name__ != "NullTimetable"


def cut_in(context: Context) -> str | None:
    """Return the zone in which the schedule of a run's DAG cuts intervals; None without a schedule."""
    dag = context.get("dag")
    return zone_of(timetable_of(dag)) if dag is not None and is_scheduled(timetable_of(dag)) else None


def check_scheduled(interval: Interval, dag: DAG) -> None:
    """Raise DefinitionError if a run's interval is not in the schedule of its DAG. Start and end dates do not matter."""
    if not is_scheduled(timetable_of(dag)):
        return
    timetable = of_airflow(dag)
    if next(within(interval, timetable), None) != interval:
        raise InvalidSchedule(
            f"the run's interval {interval} is none of the schedule of {dag.dag_id}, {timetable.summary}, and once it is counted "
            f"those that overlap it are refused; {_how_to_count(interval.start, dag)}"
        )


def empty_interval(moment: datetime, dag: DAG | None) -> DefinitionError:
    """Return the error for a run with an empty interval: its schedule has no intervals, or clocks were changed."""
    if dag is None or not is_scheduled(dag.timetable) or instead_of(dag.timetable) is not None:
        return InvalidSchedule(
            f"the run's data interval is empty, as with a cron string; give the DAG schedule={DAILY}"
        )
    return InvalidSchedule(
        f"the run's data interval is empty: at {moment.isoformat()}, by a change of clocks, the schedule of {dag.dag_id} has "
        f"none; {_how_to_count(moment, dag)}"
    )


def within(whole: Interval, timetable: Any) -> Iterator[Interval]:
    """Yield all intervals of an Airflow timetable that begin and end within the whole.

    At a change of clocks, a timetable may miss the interval at the start of the whole; then begin with the intervals a day
    before.
    """
    ways = _chain(timetable, None, whole), _chain(timetable, _a_day_before(whole.start, timetable), whole)
    firsts = [(next(way, None), way) for way in ways]
    for first, way in firsts:
        if first is not None and first.start == whole.start:
            yield first
            yield from way
            return
    first, way = firsts[0]
    if first is not None:
        yield first
        yield from way


def _chain(timetable: Any, last: Any, whole: Interval) -> Iterator[Interval]:
    """Yield the intervals in the whole after a last interval, or from the start of the whole."""
    from airflow.timetables.base import TimeRestriction

    earliest = _of_pendulum(whole.start) if last is None else None
    restriction = TimeRestriction(earliest, _of_pendulum(whole.end), catchup=True)
    while info := timetable.next_dagrun_info(last_automated_data_interval=last, restriction=restriction):
        found = info.data_interval
        if found.start == found.end or found.end > whole.end or (last is not None and found.start <= last.start):
            return
        last = found
        if found.start >= whole.start:
            yield Interval(found.start, found.end)


def newest(moment: datetime, timetable: Any) -> Interval:
    """Return the newest interval of a timetable that was over at a moment."""
    befores = (_a_day_before(each, timetable) for each in (moment, moment - _A_DAY))
    # At a change of clocks, Airflow infers an empty one.
    before = next(each for each in befores if each.start < each.end)
    found = deque(_chain(timetable, before, Interval(before.start, moment)), maxlen=1)
    return found[0] if found else Interval(before.start, before.end)


def _a_day_before(moment: datetime, timetable: Any) -> Any:
    return timetable.infer_manual_data_interval(run_after=_of_pendulum(moment) - _A_DAY)


def _of_pendulum(moment: datetime) -> Any:
    """Convert a moment for Airflow's timetables. Pendulum cannot compute with some zones."""
    from pendulum import from_timestamp

    return from_timestamp(moment.timestamp())


def _how_to_count(moment: datetime, dag: DAG) -> str:
    """Describe how to count the interval of a moment, or the newest ended interval before."""
    timetable, now = of_airflow(dag), datetime.now(UTC)
    before = _a_day_before(moment, timetable)
    whole = Interval(before.start, min(now, moment + timedelta(days=800)))  # longer than any interval
    found = None
    for found in _chain(timetable, before, whole):
        if found.end > moment:
            break
    if found is None:
        return "name one that is over, in a backfill or under Catch up"
    logical_date = found.end.astimezone(ZoneInfo(zone_of(timetable_of(dag))))
    return f"to count {found} trigger it with the logical date {logical_date.isoformat()}"


def of_airflow(dag: DAG) -> Any:
    """Return the timetable that cuts time for the runs of a DAG, of the class that computes."""
    return fit.computing(timetable_of(dag))
