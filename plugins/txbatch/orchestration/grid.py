"""The grid of a DAG: `intervals` of `topology_dag`, for schedules without data intervals, such as assets.

The schedule says when a run starts, the grid which intervals there are. A run by the schedule or by hand counts each interval
that is over and not counted. A run of a backfill counts the interval of the backfill, and a run with a partition key the
interval of the partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING, Any

from txbatch import fit
from txbatch.core.batch.transaction import INTERVALS_MAX, Interval
from txbatch.core.errors import InvalidArgument, WindowsGone
from txbatch.core.text import how_many
from txbatch.orchestration import intervals, partitions
from txbatch.orchestration.result import zone_of
from txbatch.orchestration.schedules import (
    FIRST_TASK,
    GRID,
    instead_of,
    is_scheduled,
    newest,
    of_airflow,
    timetable_of,
    within,
)
from txbatch.run.run_names import OF_CALL

if TYPE_CHECKING:
    from airflow.sdk import DAG, Context

    from txbatch.core.topology.topology import Topology
    from txbatch.run.steps import Steps

# No timetable has a time here, unless its intervals begin anywhere.
_AT_NO_TICK = datetime(2026, 1, 15, 12, 34, 56, 789, tzinfo=UTC)
# So many intervals at a time are checked for windows that have left.
_TOGETHER = 1_000


def check(topology: Topology, dag: DAG, given: object, reaches_back: object = None) -> None:
    """Raise DefinitionError for `intervals` without a cut of time, or unfit for the topology or the DAG; or for a bound
    without a length.
    """
    if reaches_back is not None and not (isinstance(reaches_back, timedelta) and reaches_back > timedelta()):
        raise InvalidArgument(
            f"topology_dag: reaches_back={reaches_back!r} is no length of time; write timedelta(days=7)"
        )
    if not topology.by_interval:
        raise InvalidArgument(f"topology_dag: {topology.name} does not read by time; leave out intervals={given!r}")
    if not is_scheduled(given) or not hasattr(given, "can_be_scheduled"):
        raise InvalidArgument(f"topology_dag: intervals={given!r} is no timetable; write intervals={GRID}")
    if instead_of(given) is not None or not _is_fixed(given):
        raise InvalidArgument(
            f"topology_dag: intervals={given!r} does not say where each interval begins and ends; write intervals={GRID}"
        )
    if dag.catchup and (dag.start_date or dag.default_args.get("start_date")) is None:
        raise InvalidArgument(
            f"topology_dag: {topology.name} has catchup=True, which counts from the start date on; give start_date="
        )


def _is_fixed(timetable: Any) -> bool:
    """True if the intervals do not depend on the moment of asking."""
    from pendulum import from_timestamp

    try:
        found = fit.computing(timetable).infer_manual_data_interval(run_after=from_timestamp(_AT_NO_TICK.timestamp()))
    except NotImplementedError:
        return False
    return bool(found.start < found.end < _AT_NO_TICK)


def is_given(dag: DAG | None) -> bool:
    """True if the DAG has a grid."""
    return dag is not None and getattr(dag.task_dict.get(FIRST_TASK), "intervals", None) is not None


def catches_up(context: Context) -> bool:
    """True if the run counts all that is over: it has neither a partition key nor an interval of its own."""
    if not is_given(context.get("dag")):
        return False
    dag_run: Any = context["dag_run"]
    return not _partition(dag_run) and not _has_interval(dag_run)


def waits_for_end(interval: Interval, context: Context) -> bool:
    """True if the run of a partition waits for the end of the interval: the interval has begun, or begins within the
    interval's length. A key of later days is a mistake.
    """
    if not is_given(context.get("dag")) or not _partition(context["dag_run"]):
        return False
    start, end = (
        each.timestamp() for each in (interval.start, interval.end)
    )  # Pendulum cannot compute with some zones
    return 2 * start - end <= datetime.now(UTC).timestamp()


def interval_of(dag_run: Any, dag: DAG) -> Interval | None:
    """Return the interval of a run with a partition key or an interval of its own; None for a run that catches up.

    Raise DefinitionError for a partition key that is no interval of the grid.
    """
    if key := _partition(dag_run):
        return partitions.interval_of(key, getattr(dag_run, "partition_date", None), dag)
    if not _has_interval(dag_run):
        return None
    start, end = dag_run.data_interval_start, dag_run.data_interval_end
    return newest(start, of_airflow(dag)) if start == end else Interval(start, end)


def _partition(dag_run: Any) -> str | None:
    return getattr(dag_run, "partition_key", None)


def _has_interval(dag_run: Any) -> bool:
    """True for a run of a backfill, or with an interval given by hand: Airflow infers none for most schedules with a grid."""
    start, end = getattr(dag_run, "data_interval_start", None), getattr(dag_run, "data_interval_end", None)
    if start is None or _kind(dag_run) == "scheduled":
        return False
    return bool(start != end) or _kind(dag_run) == "backfill"


def _kind(dag_run: Any) -> str | None:
    kind = getattr(dag_run, "run_type", None)
    return getattr(kind, "value", kind)


@dataclass(frozen=True, slots=True)
class Over:
    """The intervals to count by a run, in order, and a text for people: intervals in gaps, passed by, or left."""

    intervals: Sequence[Interval]
    told: str | None = None


def over(steps: Steps, run_name: str, context: Context) -> Over:
    """Return the intervals of the grid that are over and not counted, or counted by this run before: each try of each
    task finds the same.

    The first interval is the oldest counted one; with `catchup`, the first after the start date, if that is older; without
    any counted interval and without `catchup`, the newest interval. The dates of the DAG bound all, and `reaches_back` the age of
    an interval. What is over is decided by the start of the run, anew if the run is cleared, or by an earlier logical date
    given by hand. An interval refused by the ledger because windows have left is passed by, and told.
    """
    dag, moment = context["dag"], _moment(context)
    mine, others = _counted(steps, run_name)
    counted = sorted([*mine, *others], key=lambda each: each.start)
    since = _start(counted, moment, of_airflow(dag), dag)
    start = max(since, _reached(moment, dag) or since)
    if start >= moment:
        return Over([])
    refused, found = _passed_by(steps, _uncounted(others, Interval(start, moment), dag), mine)
    first = list(islice(found, INTERVALS_MAX + 1))
    told = [
        _in_gaps(first[:INTERVALS_MAX], others, dag),
        _refused(refused, dag),
        None if start == since else _beyond(next(_uncounted(counted, Interval(since, moment), dag), None), start, dag),
        f"more than {INTERVALS_MAX:,} intervals are over: the next run goes on" if len(first) > INTERVALS_MAX else None,
    ]
    return Over(first[:INTERVALS_MAX], "; ".join(filter(None, told)) or None)


def _uncounted(counted: Sequence[Interval], whole: Interval, dag: DAG) -> Iterator[Interval]:
    """Yield the uncounted intervals of the grid within a whole, in order, up to the DAG's end date."""
    timetable, end_date = of_airflow(dag), dag.tasks[0].end_date
    for gap in _between(counted, whole):
        yield from (each for each in within(gap, timetable) if end_date is None or each.start <= end_date)


def _passed_by(
    steps: Steps, found: Iterator[Interval], mine: Sequence[Interval]
) -> tuple[list[tuple[Interval, WindowsGone]], Iterator[Interval]]:
    """Return the refused intervals with the errors, and the intervals to count. The oldest are refused, unless counted by
    the run.
    """
    refused, kept = list[tuple[Interval, WindowsGone]](), list[Interval]()
    while some := list(islice(found, _TOGETHER)):
        asked = [each for each in some if not any(own.start <= each.start and each.end <= own.end for own in mine)]
        errors = steps.ledger.refused(steps.job.topology, asked)
        gone = dict(zip(asked, errors, strict=False))
        refused += gone.items()
        kept += (each for each in some if each not in gone)
        if len(gone) < len(asked):
            break
    return refused, chain(kept, found)


def _in_gaps(found: Sequence[Interval], counted: Sequence[Interval], dag: DAG) -> str | None:
    """Describe the intervals to count before the newest counted interval, if several."""
    newest_counted = max((each.start for each in counted), default=None)
    gaps = [each for each in found if newest_counted is not None and each.start < newest_counted]
    return f"gaps are filled, {len(gaps):,} intervals from {_told(gaps[0].start, dag)} on" if len(gaps) > 1 else None


def _refused(refused: Sequence[tuple[Interval, WindowsGone]], dag: DAG) -> str | None:
    if not refused:
        return None
    many = how_many(len(refused), "interval is", "intervals are")
    (first, error), *_ = refused
    return f"{many} passed by and not counted, from {_told(first.start, dag)} on: {error.text}"


def _beyond(oldest: Interval | None, start: datetime, dag: DAG) -> str | None:
    """Describe the older intervals left by the run; None if the oldest uncounted interval is within the bound."""
    if oldest is None or oldest.start >= start:
        return None
    return f"what is not counted from {_told(oldest.start, dag)} on is older than reaches_back, and left"


def _told(moment: datetime, dag: DAG) -> str:
    zone = zone_of(timetable_of(dag))
    return f"{intervals.written(moment, zone)} ({zone})"


def nothing(context: Context, left: str | None) -> str:
    """Describe why there is nothing to count; `left` is the text about the intervals passed by or left."""
    by = _told(_moment(context).replace(second=0, microsecond=0), context["dag"])
    each = "each other" if left else "each"
    return f"nothing to count: {each} interval that was over by {by} is counted, or outside the dates of the DAG"


def _moment(context: Context) -> datetime:
    """Return the moment by which an interval must be over."""
    dag_run: Any = context["dag_run"]
    started: datetime = getattr(dag_run, "start_date", None) or datetime.now(UTC)
    by_hand = None if _kind(dag_run) == "scheduled" else getattr(dag_run, "logical_date", None)
    return min(started, by_hand or started)


def _reached(moment: datetime, dag: DAG) -> datetime | None:
    """Return the bound by `reaches_back`; None without a bound. The newest interval is always within."""
    reaches_back: timedelta | None = getattr(dag.task_dict.get(FIRST_TASK), "reaches_back", None)
    if reaches_back is None:
        return None
    return min(newest(moment, of_airflow(dag)).start, datetime.fromtimestamp(moment.timestamp(), UTC) - reaches_back)


def _start(counted: Sequence[Interval], moment: datetime, timetable: Any, dag: DAG) -> datetime:
    """Return the start of the first interval to count."""
    starts, earliest = [newest(moment, timetable).start, *(each.start for each in counted)], dag.tasks[0].start_date
    if dag.catchup and earliest is not None:
        starts.append(earliest)
    return min(starts) if earliest is None else max(min(starts), earliest)


def _counted(steps: Steps, run_name: str) -> tuple[list[Interval], list[Interval]]:
    """Return what is counted without gaps: by this run, and by all others, each in order."""
    from txbatch.wiring import reader_beside

    rows = reader_beside(steps).covered(steps.job.topology.name, f"{run_name}{OF_CALL}")
    found = [(row["by_run"], Interval(row["covered_from"], row["covered_to"])) for row in rows]
    return [each for mine, each in found if mine], [each for mine, each in found if not mine]


def _between(covered: Sequence[Interval], whole: Interval) -> Iterator[Interval]:
    """Yield what is left of a whole by intervals in order.

    >>> day = [datetime(2026, 1, each, tzinfo=UTC) for each in range(1, 9)]
    >>> left = _between([Interval(day[0], day[2]), Interval(day[4], day[5])], Interval(day[1], day[7]))
    >>> [(each.start.day, each.end.day) for each in left]
    [(3, 5), (6, 8)]
    """
    start = whole.start
    for each in takewhile(lambda each: each.start < whole.end, covered):
        if start < each.start:
            yield Interval(start, each.start)
        start = max(start, each.end)
    if start < whole.end:
        yield Interval(start, whole.end)
