"""How long closed windows stay in a state, as set by a job, and which windows have left the state (R30)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from txbatch.core.aggregates.aggregator import Count
from txbatch.core.errors import InvalidRetention, WindowsGone
from txbatch.core.records.time_buckets import time_of
from txbatch.core.state.keep import Keep
from txbatch.core.topology.watermarked import watermarks
from txbatch.core.windows.session_window import SessionWindow
from txbatch.core.windows.timed import Timed
from txbatch.core.windows.watermark import MERGE
from txbatch.core.windows.window import Window, lasting

if TYPE_CHECKING:
    from txbatch.core.batch.plan import BatchPlan
    from txbatch.core.batch.transaction import Batch, Interval, Metadata
    from txbatch.core.topology.persistent_aggregate import PersistentAggregate

# How a kind of window is told from other kinds as it is stored: by what it alone has.
_KINDS: Mapping[str, type[Window | SessionWindow]] = {"cut": Window, "gap": SessionWindow}


@dataclass(frozen=True, slots=True)
class KeptWindows:
    """The windows of a state that stay for `keep` microseconds after their end, as stored in the ledger, without the job.

    `streams` has each stream whose watermark closes the windows, with True for processing time. `records` is the value that
    counts the records of the windows; None if no value counts the records.
    """

    keep: int
    window: Timed
    streams: Mapping[str, bool]
    records: str | None = None

    def __str__(self) -> str:
        return lasting(self.keep)

    @classmethod
    def of(cls, aggregate: PersistentAggregate, keep: int) -> KeptWindows:
        """Return the kept windows of a state from its definition."""
        values = aggregate.aggregates.items()
        counted = (name for name, each in values if isinstance(each, Count) and each.where is None and not each.since)
        streams = {name: says.planned for name, says in sorted(watermarks(aggregate.stream).items())}
        return cls(keep, cast("Timed", aggregate.window), streams, next(counted, None))

    @property
    def by(self) -> str:
        """The column by which windows leave: the column of the windows' starts, or of the sessions' last times."""
        return self.window.closes_by

    @property
    def gap(self) -> int | None:
        """The largest time between two records of a session; None for windows."""
        return self.window.gap if isinstance(self.window, SessionWindow) else None

    def watermark_of(self, marks: Mapping[str, int]) -> int | None:
        """Return the time up to which records are taken to have come, by these watermarks; None while a stream has none."""
        return min(marks[name] for name in self.streams) if self.streams.keys() <= marks.keys() else None

    def plan_marks(self, plan: BatchPlan) -> Mapping[str, int]:
        """Return the watermarks of a plan; for processing time, the time of planning."""
        known = {name: mark for name, mark in plan.watermark.items() if not self.streams.get(name)}
        timed = [name for name, planned in self.streams.items() if planned]
        return known if plan.planned_at is None else known | dict.fromkeys(timed, plan.planned_at)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON stored in the ledger."""
        records = {} if self.records is None else {"records": self.records}
        return {"keep": self.keep, "window": self.window.to_json(), "streams": dict(self.streams), **records}

    @classmethod
    def from_json(cls, stored: Metadata) -> KeptWindows:
        """Return the kept windows from the stored JSON."""
        kind = next(of for mark, of in _KINDS.items() if mark in stored["window"])
        return cls(stored["keep"], kind.from_json(stored["window"]), stored["streams"], stored.get("records"))


@dataclass(frozen=True, slots=True)
class Left:
    """The windows that have left a state: windows with a start, and sessions with a last record, `before` a time.

    `windows` and `records` are the numbers of windows, and of records in the windows; None if unknown. `txid` was the newest
    committed txid when the last window left. The result of a call has only the windows removed by the call.
    """

    kept: KeptWindows
    before: int
    txid: int
    windows: int = 0
    records: int | None = None

    @classmethod
    def from_json(cls, stored: Metadata) -> Left:
        """Return the windows that had left the generation replaced by a rebuild, from the JSON that the rebuild kept."""
        return cls(KeptWindows.from_json(stored["kept"]), stored["before"], stored["txid"])

    def renamed(self, name: Callable[[str], str]) -> Left:
        """Return the same windows with other names of streams: `name` returns the new name of a stream."""
        streams = {name(stream): planned for stream, planned in self.kept.streams.items()}
        return replace(self, kept=replace(self.kept, streams=streams))

    def describe(self, state: str) -> str:
        """Return which windows of a state have left the state, in words."""
        return f"the windows of state {state!r} {which(self.kept, self.before)} have left it by retention"


def which(kept: KeptWindows, before: int) -> str:
    """Return, in words, which windows are before a time."""
    return f"{kept.window.left} before {describe_time(before)}"


def describe_time(micros: int) -> str:
    """Return a time for people; beyond the years of Python, the number of microseconds."""
    try:
        return f"{time_of(micros).replace(tzinfo=None).isoformat(' ', 'seconds')} UTC".replace(":00 UTC", " UTC")
    except OverflowError:
        return f"{micros} microseconds since 1970"


def check_keeps_windows(aggregate: PersistentAggregate) -> None:
    """DefinitionError if windows are to leave a state but never close, or if late records would begin the windows again."""
    state = aggregate.state
    if state.keep_windows is None:
        return
    of = f"state {state.name!r}: keep_windows={lasting(state.keep_windows)!r}"
    if aggregate.window is None:
        raise InvalidRetention(
            f"{of} is of windows, and it is grouped by none: group_by(window(...)) or session_window(...)"
        )
    says = watermarks(aggregate.stream).values()
    if not says:
        raise InvalidRetention(
            f"{of}: without a watermark of the stream, no window closes; say with_watermark(..., late='drop') before the state"
        )
    if aggregate.late == MERGE and not all(each.planned for each in says):
        raise InvalidRetention(
            f"{of}: with late='merge', a late record would begin a left window again; say "
            "with_watermark(..., late='drop'), or late='side' to keep late records as rows"
        )
    if not state.contributions:
        raise InvalidRetention(
            f"{of}: without contributions, folded batches cannot be told from batches that may be counted again; keep "
            "contributions, or delete old rows yourself"
        )


def check_folds(topology: str, aggregates: Iterable[PersistentAggregate], keep: Keep | None) -> None:
    """DefinitionError if windows are to leave, but no batches of the topology are ever folded."""
    for state in (each.state for each in aggregates):
        if state.keep_windows is not None and keep is None:
            raise InvalidRetention(
                f"state {state.name!r}: keep_windows={lasting(state.keep_windows)!r}, but its topology keeps all batches for "
                f"restates, and so their windows: say Topology({topology!r}, keep=Keep(days=90)) as well"
            )


def check_not_left(asked: Batch, left: Mapping[str, Left]) -> None:
    """TerminalError if a batch to be counted again may count in windows that have left a state."""
    for gone in _gone(asked.plan, left):
        raise WindowsGone(
            f"{asked.topology}: txid {asked.txid} may count in windows that are gone: {gone}, and were planned "
            f"later than txid {asked.txid}; count the records of txid {asked.txid} as new records, or count everything again: "
            f'`txbatch rebuild {asked.topology} --why "..."`'
        )


def check_interval_not_left(topology: str, interval: Interval, plan: BatchPlan, left: Mapping[str, Left]) -> None:
    """TerminalError if an interval that comes after later intervals may count in windows that have left a state."""
    for gone in _gone(plan, left):
        raise WindowsGone(
            f"{topology}: interval {interval} may count in windows that are gone: {gone}; bring the windows back by "
            f'`txbatch rebuild {topology} --why "..."`, and count the interval before the next `txbatch gc`'
        )


def first_refused(
    topology: str, planned: Iterable[tuple[Interval, BatchPlan]], left: Mapping[str, Left]
) -> list[WindowsGone]:
    """Return the errors of `check_interval_not_left` for the first intervals in order, up to an interval without an error.

    All later intervals have later watermarks: none of them is refused.
    """
    found = list[WindowsGone]()
    for interval, plan in planned:
        try:
            check_interval_not_left(topology, interval, plan, left)
        except WindowsGone as error:
            found.append(error)
        else:
            break
    return found


def may_count_in(plan: BatchPlan, left: Left) -> bool:
    """True if a plan's records, unless late, may be of windows that have left a state."""
    mark = left.kept.watermark_of(left.kept.plan_marks(plan))
    return mark is None or left.kept.window.first_open(mark) < left.before


def _gone(plan: BatchPlan, left: Mapping[str, Left]) -> Iterator[str]:
    """Yield a text of the windows that have left a state, for each state if the plan's records may be of such windows."""
    return (each.describe(state) for state, each in left.items() if may_count_in(plan, each))
