"""A DAG run that catches up: bring many batches to their commits in one Spark application, just like `txbatch run`.

To the ledger each batch is a run of its own, named after the DAG run and a number: every task and every try finds the same
runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from txbatch.core.batch.holes import describe_holes
from txbatch.core.batch.transaction import BatchStatus, Interval, Run
from txbatch.core.errors import InvalidArgument, NoInterval
from txbatch.core.text import WHY_MAX, how_many, list_txids
from txbatch.core.topology.topology import Topology
from txbatch.orchestration import grid, intervals, restating, result
from txbatch.orchestration.airflow import run_of
from txbatch.orchestration.restating import RESTATE_PARAM, text_in
from txbatch.orchestration.schedules import timetable_of
from txbatch.run.run_names import OF_CALL

if TYPE_CHECKING:
    from airflow.sdk import Context

    from txbatch.core.batch.transaction import Batch
    from txbatch.run.progress import Progress, Tell
    from txbatch.run.steps import Steps

CATCH_UP_PARAM = "catch_up"
_HOW = "2013-01-03/2013-01-05"
# The maximum age of the note if somebody marks the run failed.
_NOTED_SECONDS = 1.0


def params(topology: Topology) -> dict[str, Param]:
    """Return the form's field; none if the topology has a parameter of the same name."""
    if CATCH_UP_PARAM in topology.parameters:
        return {}
    if not topology.by_interval:
        what = "Count batch after batch in this run, until nothing is new."
        return {CATCH_UP_PARAM: Param(False, type="boolean", title="Catch up", description=what)}
    what = (
        "An interval with an exclusive end, for example 2013-01-03/2013-01-05. This run counts each interval of the schedule "
        "within the given interval, if not committed yet, and nothing else. Intervals that begin outside of the DAG's start and "
        "end date are left out. Empty the logical date: the run needs none."
    )
    return {CATCH_UP_PARAM: Param(None, type=["null", "string"], maxLength=WHY_MAX, title="Catch up", description=what)}


def is_asked(topology: Topology, context: Context) -> bool:
    """True if the form asks to catch up."""
    return CATCH_UP_PARAM not in topology.parameters and bool(text_in(context, CATCH_UP_PARAM))


def asks(topology: Topology, context: Context) -> bool:
    """True if the run only catches up: the form asks for it, or the DAG has a grid, and the run no interval.

    Raise DefinitionError if the form also asks to count batches again.
    """
    again = restating.asks(topology, context)
    if not is_asked(topology, context):
        return not again and grid.catches_up(context)
    if again:
        raise InvalidArgument(
            f"a run either catches up or counts again: trigger one with {RESTATE_PARAM!r} and one without"
        )
    return True


def check_interval(topology: Topology, run: Run) -> None:
    """Raise DefinitionError if the topology reads by time, but the run neither catches up nor has an interval."""
    if topology.by_interval and run.interval is None:
        many = (
            "" if CATCH_UP_PARAM in topology.parameters else f", or to count many intervals write {_HOW} into Catch up"
        )
        raise NoInterval(
            f"{topology.name!r} reads by time, and run {run.run_id!r} has no data interval; trigger it with a logical date{many}"
        )


def run(topology: Topology, context: Context) -> Run:
    """Return the parent run of all batches."""
    return replace(run_of(topology, context), interval=None)


@dataclass(frozen=True, slots=True)
class Asked:
    """The intervals to count; None: until nothing is new. `more` is a text about the intervals, for example intervals left out,
    `nothing` a text if no interval is left, and `again` a text about how to go on.

    >>> print(Asked())
    until nothing is new
    """

    intervals: Sequence[Interval] | None = None
    more: str | None = None
    nothing: str | None = None
    again: str = "clear the run"

    def __str__(self) -> str:
        if self.nothing or not self.intervals:
            return self.with_more(self.nothing or "until nothing is new")
        many, whole = len(self.intervals), Interval(self.intervals[0].start, self.intervals[-1].end)
        return self.with_more(f"{how_many(many, 'interval')}, {whole}")

    def with_more(self, line: str) -> str:
        """Add the text about the intervals to a line."""
        return f"{line}; {self.more}" if self.more else line


def asked(steps: Steps, run: Run, context: Context) -> Asked:
    """Return the request in the form, or what is over by the DAG's grid, limited to the DAG's dates. Raise DefinitionError
    for an invalid request.
    """
    topology, dag = steps.job.topology, context["dag"]
    if not topology.by_interval:
        return Asked()
    if not is_asked(topology, context):
        over = grid.over(steps, run.name, context)
        nothing = None if over.intervals else grid.nothing(context, over.told)
        return Asked(over.intervals, over.told, nothing, "clear the run, or let the next run count what is left")
    given = text_in(context, CATCH_UP_PARAM)
    try:
        whole = intervals.parse(given, result.zone_of(timetable_of(dag)))
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(
            f"catch_up {given[:200]!r} is no interval; write an interval, with an exclusive end: {_HOW}"
        ) from error
    found, left_out = intervals.between_dates(intervals.split_interval(whole, dag), whole, dag)
    return Asked(found, left_out, again="clear the run, or trigger it again with the same range")


def not_ready(steps: Steps, run: Run, asked: Sequence[Interval]) -> Run | None:
    """Return the run of the first interval without a batch, because its source is not ready."""
    owns = _batches(steps, run, asked)
    return next((replace(run, interval=each) for each, own in zip(asked, owns, strict=True) if own is None), None)


def _batches(steps: Steps, run: Run, asked: Sequence[Interval]) -> list[Batch | None]:
    """Return the batch of each interval, planned by any run; None for an interval without a batch."""
    runs = [replace(run, interval=each) for each in asked]
    return [head.own for head in steps.ledger.heads(steps.job.topology.name, runs)] if runs else []


def to_announce(steps: Steps, run: Run, asked: Sequence[Interval]) -> Sequence[Mapping[str, Any]]:
    """Return the rows of `report.batches` to announce by the run, ordered by txid.

    These are all batches committed by the run, also if planned by another run, and all batches of the run's intervals
    committed by another run and not announced yet.
    """
    from txbatch.wiring import reader_beside

    topology = steps.job.topology.name
    committed = [own for own in _batches(steps, run, asked) if own and own.status is BatchStatus.COMMITTED]
    left = {own.txid for own in committed if not own.succeeded}
    return reader_beside(steps).batches_by_txid(topology, sorted(left.union(committed_by(steps, run))))


def committed_by(steps: Steps, run: Run) -> Sequence[int]:
    """Return the txids committed by the run, ascending: its own batches, and batches adopted from dead runs."""
    return steps.ledger.committed_by_each(steps.job.topology.name, f"{run.name}{OF_CALL}")


def noted(steps: Steps, run: Run, wanted: Asked, note: Callable[[str, str], None]) -> Tell:
    """Note the progress of the run, and return a function to note later progress.

    `note` is called with the note that stays if somebody marks the run failed, and with the note until then.
    """
    from txbatch.run.progress import Progress, now_and_then

    asked, before = wanted.intervals, _committed(steps, run, wanted.intervals)

    def tell(now: Progress) -> None:
        committed = max(now.batches, before + now.batches - now.found)
        told = replace(now, batches=committed).committed
        note(f"{told}; to go on, {wanted.again}", told)

    tell(Progress(0, 0, 0.0, None if asked is None else len(asked)))
    return now_and_then(_NOTED_SECONDS, tell)


def _committed(steps: Steps, run: Run, asked: Sequence[Interval] | None) -> int:
    """Return the number of the run's committed batches: with intervals, committed by any run; without, by this run."""
    if asked is None:
        return len(committed_by(steps, run))
    return sum(own is not None and own.status is BatchStatus.COMMITTED for own in _batches(steps, run, asked))


def counted(rows: Sequence[Mapping[str, Any]], zone: str) -> str:
    """Describe rows of `report.batches`, ordered by txid, in a line. A single row is described like a single run.

    Restates are left out.
    """
    rows = [row for row in rows if row["kind"] != "restate"]
    if not rows:
        return "nothing new"
    if len(rows) == 1:
        return result.committed(rows[0], zone)
    of = {row["interval_start"] for row in rows} - {None}, {row["interval_end"] for row in rows} - {None}
    what = f", {result.interval(min(of[0]), max(of[1]), zone)}" if all(of) else ""
    records = sum(row["records"] or 0 for row in rows)
    txids = list_txids(row["txid"] for row in rows)
    return f"{txids}{what}: {len(rows):,} batches, {how_many(records, 'record')}"


def holes(steps: Steps, rows: Sequence[Mapping[str, Any]]) -> str:
    """Describe the holes of some rows of `report.batches` as the end of their line; "" for none."""
    from txbatch.wiring import reader_beside

    return describe_holes(reader_beside(steps).holes_of(steps.job.topology.name, [row["txid"] for row in rows]))
