"""How long closed windows stay in a state, as a job says it, and which may leave now (R30).

A window leaves where nothing counts in it ever again: all batches up to the horizon are folded and it was closed as of then (R22,
R26); each plan above it, also one that is counted again, leaves its records out as late (R25); and so will each that comes.

>>> leaves_by(10, closed_then=80, closed_now=95, marks=[90, 99])
80
>>> leaves_by(30, closed_then=80, closed_now=95, marks=[90, 99]), leaves_by(10, closed_then=80, closed_now=95, marks=[90, None])
(65, None)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from txbatch.core.aggregates.aggregator import Count
from txbatch.core.batch.transaction import Batch, Interval, Metadata
from txbatch.core.errors import DefinitionError, TerminalError
from txbatch.core.records.cuts import Cut, Days, Instants, LocalDates, Months, time_of
from txbatch.core.state.keep import Keep, told
from txbatch.core.topology.watermarked import watermarks
from txbatch.core.windows.session_window import SessionWindow
from txbatch.core.windows.watermark import MERGE
from txbatch.core.windows.window import Window, lasting

if TYPE_CHECKING:
    from txbatch.core.batch.plan import BatchPlan
    from txbatch.core.topology.persistent_aggregate import PersistentAggregate
    from txbatch.core.topology.topology import Topology

# As many rows leave by one transaction, and all others of the last window.
STEP_ROWS = 10_000
_CUTS: Mapping[str, Callable[[str], Cut]] = {"instants": lambda _: Instants(), "days": Days, "months": Months}


@dataclass(frozen=True, slots=True)
class KeptWindows:
    """The windows of a state that stay for `keep` microseconds after they have ended, as the ledger knows it without the job.

    `streams` are those whose watermarks close them, each with whether it is of processing time. `records` is the value that
    counts what they are made of; None: none does.
    """

    keep: int
    window: Window | SessionWindow
    streams: Mapping[str, bool]
    records: str | None = None

    def __str__(self) -> str:
        return lasting(self.keep)

    @classmethod
    def of(cls, aggregate: PersistentAggregate, keep: int) -> KeptWindows:
        """Return those of a state as it is defined."""
        values = aggregate.aggregates.items()
        counted = (name for name, each in values if isinstance(each, Count) and each.where is None and not each.since)
        streams = {name: says.planned for name, says in sorted(watermarks(aggregate.stream).items())}
        return cls(keep, cast("Window | SessionWindow", aggregate.window), streams, next(counted, None))

    @property
    def by(self) -> str:
        """The column by which they leave: that of the starts of windows, or of the last times of sessions."""
        return self.window.closes_by

    @property
    def gap(self) -> int | None:
        """How far the records of a session are apart at most; None: it is of windows."""
        return self.window.gap if isinstance(self.window, SessionWindow) else None

    def mark(self, marks: Mapping[str, int]) -> int | None:
        """Return up to when records are taken to be there by these watermarks; None while a stream has none."""
        return min(marks[name] for name in self.streams) if self.streams.keys() <= marks.keys() else None

    def plan_marks(self, plan: BatchPlan) -> Mapping[str, int]:
        """Return the watermarks of a plan: of processing time when that was."""
        known = {name: mark for name, mark in plan.watermark.items() if not self.streams.get(name)}
        timed = [name for name, planned in self.streams.items() if planned]
        return known if plan.planned_at is None else known | dict.fromkeys(timed, plan.planned_at)

    def to_json(self) -> dict[str, Any]:
        """Return what the ledger stores of it."""
        window = self.window
        cut: dict[str, Any] = {"start": window.name}
        if isinstance(window, SessionWindow):
            cut["gap"] = window.gap
        else:
            zone = {"zone": window.cut.zone} if isinstance(window.cut, LocalDates) else {}
            kind = type(window.cut).__name__.lower()
            cut |= {"cut": kind, **zone, "size": window.size, "slide": window.slide, "origin": window.origin}
        records = {} if self.records is None else {"records": self.records}
        return {"keep": self.keep, "window": cut, "streams": dict(self.streams), **records}

    @classmethod
    def from_json(cls, stored: Metadata) -> KeptWindows:
        """Return what was stored."""
        cut, window = stored["window"], cast("Window | SessionWindow | None", None)
        if "gap" in cut:
            window = SessionWindow("", cut["start"], cut["gap"])
        else:
            by = _CUTS[cut["cut"]](cut.get("zone", ""))
            window = Window("", cut["start"], by, cut["size"], cut["slide"], cut["origin"], "")
        return cls(stored["keep"], window, stored["streams"], stored.get("records"))


@dataclass(frozen=True, slots=True)
class Left:
    """What has left a state: all windows that begin `before` a time, and all sessions whose last record is before it.

    So many `windows`, made of so many `records`, None where that is not known; `txid` was the newest committed one when the last
    of them left. Of a call it is what that let go.
    """

    kept: KeptWindows
    before: int
    txid: int
    windows: int = 0
    records: int | None = None

    @classmethod
    def from_json(cls, stored: Metadata) -> Left:
        """Return what a rebuild kept of the generation that it replaced."""
        return cls(KeptWindows.from_json(stored["kept"]), stored["before"], stored["txid"])

    def renamed(self, name: Callable[[str], str]) -> Left:
        """Return the same where streams are called otherwise: `name` returns what each is."""
        streams = {name(stream): planned for stream, planned in self.kept.streams.items()}
        return replace(self, kept=replace(self.kept, streams=streams))

    def told(self, state: str) -> str:
        """Return which windows of a state have left it."""
        return f"the windows of state {state!r} {which(self.kept, self.before)} have left it by retention"


@dataclass(frozen=True, slots=True)
class Leaving:
    """How the windows of a state stand: which have `left`, before which time they may leave now, and what others wait for."""

    state: str
    kept: KeptWindows
    left: Left | None = None
    before: int | None = None
    waits_for: str | None = None

    @property
    def since(self) -> int | None:
        """Before which time all have left; None: none has."""
        return None if self.left is None else self.left.before

    @property
    def some(self) -> bool:
        """True if windows may leave now, if there are any."""
        return self.before is not None and (self.since is None or self.since < self.before)


@dataclass(frozen=True, slots=True)
class Known:
    """What a ledger knows of a state when windows are to leave it: by it `decided` says which may.

    `closed_then` is up to when windows were closed as of the `horizon`, `closed_now` since the last commit; `marks` are those of
    all plans above the horizon that are not aborted, and of the next. `readers` are the open batches that read all of the state,
    `topology` and txid, and topologies that have not read it since a rebuild, with None. `rebuild` is one that runs.
    """

    horizon: int
    closed_then: int | None
    closed_now: int | None
    marks: Collection[int | None] = ()
    readers: Collection[tuple[str, int | None]] = ()
    rebuild: int | None = None


class Windows(Protocol):
    """What lets windows leave states. `postgres.corrections.keep_windows` is the real one, `memory.keep_windows` its twin."""

    def leaving(self, topology: str, horizon: int | None = None) -> list[Leaving]:
        """Return how the windows of each state that keeps them for a time stand, as if all up to a `horizon` was folded."""

    def outlook(self, topology: str, leaving: Leaving) -> Left | None:
        """Return what would leave now; None: nothing. Changes nothing."""

    def leave(self, topology: str) -> Iterator[tuple[str, Left]]:
        """Let go of what may leave, and yield each step with its state as it is committed."""


def leaves_by(keep: int, closed_then: int | None, closed_now: int | None, marks: Iterable[int | None]) -> int | None:
    """Return the time by which windows have to have ended in order to leave; None: none may."""
    found = [closed_then, None if closed_now is None else closed_now - keep, *marks]
    known = [each for each in found if each is not None]
    return min(known) if len(known) == len(found) else None


def decided(state: str, kept: KeptWindows, left: Left | None, known: Known) -> Leaving:
    """Return which windows of a state may leave now, and what those wait for that are old enough and may not."""
    old = None if known.closed_now is None else kept.window.first_open(known.closed_now - kept.keep)
    end = leaves_by(kept.keep, known.closed_then, known.closed_now, known.marks)
    before, waits_for = None if end is None else kept.window.first_open(end), None
    if known.rebuild is not None:
        before, waits_for = None, f"rebuild {known.rebuild} to be swapped or cancelled"
    elif known.readers:
        first = min(known.readers, key=lambda each: (each[1] is None, each[0], each[1] or 0))
        before, waits_for = None, _reading(*first)
    elif old is not None and (before is None or before < old):
        waits_for = (
            f"the batches behind txid {known.horizon} to be folded, from which on they may still be counted again"
        )
    return Leaving(
        state, kept, left, before, waits_for if old is not None and (left is None or left.before < old) else None
    )


def _reading(topology: str, txid: int | None) -> str:
    if txid is None:
        return f"topology {topology!r}, which has not read the state since a rebuild, to run"
    return f"topology {topology!r}, whose open txid {txid} reads all of the state"


def which(kept: KeptWindows, before: int) -> str:
    """Tell which windows are before a time."""
    time = told_time(before)
    return f"that begin before {time}" if kept.gap is None else f"(its sessions) that end before {time}"


def told_time(micros: int) -> str:
    """Return a time for people; beyond the years that Python has, its number."""
    try:
        return f"{time_of(micros).replace(tzinfo=None).isoformat(' ', 'seconds')} UTC".replace(":00 UTC", " UTC")
    except OverflowError:
        return f"{micros} microseconds since 1970"


def check_keeps_windows(aggregate: PersistentAggregate) -> None:
    """DefinitionError where windows are to leave a state, and none closes there, or late records would begin them anew."""
    state = aggregate.state
    if state.keep_windows is None:
        return
    of = f"state {state.name!r}: keep_windows={lasting(state.keep_windows)!r}"
    if aggregate.window is None:
        raise DefinitionError(
            f"{of} is of windows, and it is grouped by none: group_by(window(...)) or session_window(...)"
        )
    says = watermarks(aggregate.stream).values()
    if not says:
        raise DefinitionError(
            f"{of}: none of its windows closes, as its stream has no watermark; say with_watermark(..., late='drop') before it"
        )
    if aggregate.late == MERGE and not all(each.planned for each in says):
        raise DefinitionError(
            f"{of}: a late record would begin a window anew that has left, as late='merge' counts it; say "
            "with_watermark(..., late='drop'), or late='side', which keeps late records as rows"
        )
    if not state.contributions:
        raise DefinitionError(
            f"{of}: without contributions nobody knows what is folded, and what may still be counted again; keep them, or delete "
            "rows that are old yourself"
        )


def check_folds(topology: str, aggregates: Iterable[PersistentAggregate], keep: Keep | None) -> None:
    """DefinitionError where windows are to leave, and nothing of what they are made of is folded."""
    for state in (each.state for each in aggregates):
        if state.keep_windows is not None and keep is None:
            raise DefinitionError(
                f"state {state.name!r}: keep_windows={lasting(state.keep_windows)!r}, but its topology keeps all batches for "
                f"restates, and so their windows: say Topology({topology!r}, keep=Keep(days=90)) as well"
            )


def kept_windows(topology: Topology) -> dict[str, KeptWindows]:
    """Return how long windows stay in the states of a topology, of those that say it."""
    states = {each.state.name: each for each in topology.aggregates if each.state.keep_windows is not None}
    return {name: KeptWindows.of(each, each.state.keep_windows or 0) for name, each in states.items()}


def policy(topology: Topology) -> dict[str, Any] | None:
    """Return what the ledger stores of how much of its past a topology keeps; None: all of it."""
    windows = {name: each.to_json() for name, each in kept_windows(topology).items()}
    found = {**(topology.keep.to_json() if topology.keep else {}), **({"windows": windows} if windows else {})}
    return found or None


def stored_windows(stored: Metadata | None) -> dict[str, KeptWindows]:
    """Return the part of a stored policy that is of windows, by state."""
    return {name: KeptWindows.from_json(each) for name, each in (stored or {}).get("windows", {}).items()}


def told_policy(keep: Keep | None, windows: Mapping[str, KeptWindows]) -> str:
    """Return how much of its past a topology keeps, in words.

    >>> told_policy(Keep(days=90), {})
    'the last 90 days'
    """
    more = "".join(f"; windows of state {state!r} for {each}" for state, each in sorted(windows.items()))
    return f"{told(keep)}{more}"


def check_not_left(asked: Batch, left: Mapping[str, Left]) -> None:
    """TerminalError where a batch that is to be counted again may count in windows that have left a state."""
    for gone in _gone(asked.plan, left):
        raise TerminalError(
            f"{asked.topology}: txid {asked.txid} may count in windows that are gone: {gone}, and were planned "
            f'later than it; count its records as new ones, or all again: `txbatch rebuild {asked.topology} --why "..."`'
        )


def check_interval_not_left(topology: str, interval: Interval, plan: BatchPlan, left: Mapping[str, Left]) -> None:
    """TerminalError where an interval that comes after later ones may count in windows that have left a state."""
    for gone in _gone(plan, left):
        raise TerminalError(
            f"{topology}: interval {interval} may count in windows that are gone: {gone}; count all again, "
            f'`txbatch rebuild {topology} --why "..."`, which brings them back, and run it before the next `txbatch gc`'
        )


def may_count_in(plan: BatchPlan, left: Left) -> bool:
    """True if a plan's records in time may be of windows that have left a state."""
    mark = left.kept.mark(left.kept.plan_marks(plan))
    return mark is None or left.kept.window.first_open(mark) < left.before


def _gone(plan: BatchPlan, left: Mapping[str, Left]) -> Iterator[str]:
    """Yield which windows have left a state, of those states where a plan's records in time may be of such ones."""
    return (each.told(state) for state, each in left.items() if may_count_in(plan, each))
