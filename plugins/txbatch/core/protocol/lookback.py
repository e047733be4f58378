"""Late records met by committed batches: a run counts positions within the lookback again, and tells all others (R17).

The ledger keeps the late records of each batch, so a killed run loses nothing: the counting plans decide what is outstanding.

>>> from datetime import UTC
>>> from dataclasses import replace
>>> first, second = (Interval(datetime(2026, 1, day, tzinfo=UTC), datetime(2026, 1, day + 1, tzinfo=UTC)) for day in (1, 2))
>>> found = FoundLate(7, "in", 1, first, 1, BatchStatus.COMMITTED, None, {"x.csv": Late(12, 0)}, {"x.csv": [90, 5]}, {})
>>> (late,) = outstanding([found])
>>> late.why, Counting([second]).within(late.interval, 86_400_000_000)
('lookback: 12 records in x.csv', True)
>>> outstanding([replace(found, counted={"x.csv": [90, 5]})])
[]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from txbatch.core.batch.came_late import Counted, Late, Look
from txbatch.core.batch.plan import BatchPlan, OfInterval
from txbatch.core.batch.planned_files import Entry, other_ending, planned_size
from txbatch.core.batch.transaction import Batch, BatchKind, BatchStatus, Interval, Metadata, Restate
from txbatch.core.errors import CannotRestate, TxbatchError
from txbatch.core.protocol.restate import restate_command
from txbatch.core.sources.looking_back import LateRows, LooksBack, LooksBackInFiles, LooksBackInTable
from txbatch.core.text import how_many, list_first
from txbatch.core.topology.topology import Topology

# For people: the reasons of restates by a look back begin so.
REASON = "lookback: "
# How many files a reason or a note names.
FILES_SHOWN = 3
# So many of the newest intervals are looked at, however far they are back; and so many at most within a lookback.
NEWEST, INTERVALS_MAX = 1_000, 20_000
# So many of the newest intervals of a table are compared by a run without a lookback, and so many at most within a lookback.
TABLE_NEWEST, TABLE_MAX = 10, 1_000
# So many late positions of a topology are told, or counted again by one run.
FOUND_MAX = 1_000


@dataclass(frozen=True, slots=True)
class LookFacts:
    """The ledger's facts for the look of an attempt: the plan of the last look, and the intervals of earlier batches."""

    before: BatchPlan | None = None
    intervals: tuple[Counted, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundLate:
    """Late records of a position in a stream, met by the committed batch `found_by`.

    `version` is the newest version of the position, without aborted versions, with the version's status and run. By file,
    `seen` has the entries of the plan of `found_by`, `counted` the entries of the plan of the version.
    """

    found_by: int
    stream: str
    position: int
    interval: Interval
    version: int
    status: BatchStatus
    run: str | None
    files: Mapping[str, Late]
    seen: Mapping[str, Entry]
    counted: Mapping[str, Entry]

    @property
    def is_counted(self) -> bool:
        """True if the version has read all these files as far as `found_by` has."""
        return all(name in self.counted and not self._grew(name) for name in self.files)

    @property
    def is_rough(self) -> bool:
        """True if the counting version may have read some of the records: the version's plan goes beyond the last look."""
        if self.status is not BatchStatus.COMMITTED:
            return False
        return any(
            name in self.counted and late.since < planned_size(self.counted[name]) for name, late in self.files.items()
        )

    def _grew(self, name: str) -> bool:
        return name in self.seen and planned_size(self.seen[name]) > planned_size(self.counted[name])


@dataclass(frozen=True, slots=True)
class CountedPlan:
    """A committed position with an interval: the counting version, and the plan of the version."""

    position: int
    version: int
    interval: Interval
    plan: BatchPlan


@dataclass(frozen=True, slots=True)
class LatePosition:
    """A position with uncounted late records: the number by file, or by table. `why_not` is the reason to leave the position.

    If `is_rough`, some of the records may be counted: the numbers are the most. `changed` is the number of changed or replaced
    rows of a table. If `unread`, files came or grew in folders of the interval alone: nobody has read the files, and the numbers
    are 0.
    """

    position: int
    interval: Interval
    streams: frozenset[str]
    files: Mapping[str, int]
    found_by: int
    why_not: str | None = None
    is_rough: bool = False
    changed: int = 0
    unread: bool = False

    @property
    def records(self) -> int:
        """The number of late records."""
        return sum(self.files.values())

    @property
    def what(self) -> str:
        """The number of late records, with the files."""
        if self.unread:
            return f"new records in {list_first(list(self.files), FILES_SHOWN)}"
        return f"{'up to ' * self.is_rough}{how_many(self.records, 'record')} in {list_first(list(self.files), FILES_SHOWN)}"

    @property
    def why(self) -> str:
        """The reason for counting the position again."""
        return f"{REASON}{self.what}"

    def told(self, topology: str) -> str:
        """Return the text for people about uncounted records."""
        again = f"`{restate_command(topology, self.position)}` counts them"
        if self.changed and not self.records:
            rows = f"{how_many(self.changed, 'row')} in {', '.join(self.files)}"
            return f"changed for txid {self.position}: {rows}; {again} as they are now"
        return f"late for txid {self.position}: {self.what}; {self.why_not or again}"

    def as_restate(self) -> Restate:
        """Return the request to count the position again, unless a later txid does."""
        return Restate(self.position, self.why, found_by=self.found_by)


@dataclass(slots=True)
class Counting:
    """The intervals counted by a run, with adjacent intervals as one, and the txids."""

    intervals: list[Interval] = field(default_factory=list)
    txids: set[int] = field(default_factory=set)

    def add(self, batch: Batch) -> None:
        """Add a batch, unless the batch is a restate."""
        interval = None if batch.kind is BatchKind.RESTATE else interval_of(batch.plan)
        if interval is None:
            return
        if self.intervals and self.intervals[-1].end == interval.start:
            interval = Interval(self.intervals.pop().start, interval.end)
        self.intervals.append(interval)
        self.txids.add(batch.txid)

    @property
    def whole(self) -> Interval | None:
        """The time from the first interval to the last; None without intervals."""
        if not self.intervals:
            return None
        return Interval(min(each.start for each in self.intervals), max(each.end for each in self.intervals))

    def since(self, lookback: int | None) -> datetime | None:
        """Return the beginning of the lookback, in microseconds, before the time of the run; None without a lookback."""
        whole = self.whole
        return None if whole is None or lookback is None else whole.start - _length(lookback, whole.start)

    def within(self, interval: Interval, lookback: int) -> bool:
        """True if an interval is within the lookback, in microseconds, of any interval of the run."""
        return any(
            interval.start < each.end and each.start - _length(lookback, each.start) < interval.end
            for each in self.intervals
        )


def _length(lookback: int, start: datetime) -> timedelta:
    """Return the length of a lookback, cut at the first year of dates."""
    return min(timedelta(microseconds=lookback), start - datetime.min.replace(tzinfo=start.tzinfo))


def interval_of(plan: BatchPlan) -> Interval | None:
    """Return the interval of the streams by time; None without such streams."""
    for planned in plan.streams.values():
        if isinstance(planned, OfInterval):
            return Interval(*map(datetime.fromisoformat, planned.interval))
    return None


def in_files(topology: Topology) -> dict[str, LooksBackInFiles]:
    """Return the spouts with late records in files, by stream."""
    spouts = {name: stream.spout for name, stream in topology.streams.items()}
    return {name: spout for name, spout in spouts.items() if isinstance(spout, LooksBackInFiles)}


def in_tables(topology: Topology) -> dict[str, LooksBackInTable]:
    """Return the spouts with late rows in tables, by stream."""
    spouts = {name: stream.spout for name, stream in topology.streams.items()}
    return {name: spout for name, spout in spouts.items() if isinstance(spout, LooksBackInTable)}


def lookbacks(topology: Topology) -> dict[str, int]:
    """Return the lookback of each stream with a lookback, in microseconds."""
    spouts = {name: stream.spout for name, stream in topology.streams.items()}
    found = {name: spout.lookback_micros for name, spout in spouts.items() if isinstance(spout, LooksBack)}
    return {name: length for name, length in found.items() if length is not None}


def looks_since(topology: Topology, plan: BatchPlan) -> datetime | None:
    """Return the beginning of the lookback of an attempt; None without a lookback."""
    interval, longest = interval_of(plan), max(lookbacks(topology).values(), default=None)
    return None if interval is None or longest is None else interval.start - _length(longest, interval.start)


def look_of(topology: Topology, plan: BatchPlan, facts: LookFacts) -> Look | None:
    """Return the look of an attempt: records of earlier intervals, in files new or grown since the last look.

    Return None if the attempt cannot look: no earlier batch is committed, or a spout cannot compare files. A later attempt
    compares with an older plan, and meets the same files.
    """
    if not facts.intervals:
        return Look()
    if facts.before is None:
        return None
    arrived = {}
    for name, spout in in_files(topology).items():
        before, now = facts.before.streams.get(name), plan.streams.get(name)
        if not isinstance(before, OfInterval) or not isinstance(now, OfInterval):
            continue
        try:
            came = spout.arrived(before.plan, now.plan)
        except TxbatchError:
            return None
        if came:
            arrived[name] = came
    return Look(facts.intervals if arrived else (), arrived)


def outstanding(found: Iterable[FoundLate], mine: Callable[[str], bool] = lambda run: False) -> list[LatePosition]:
    """Return the positions with late records, unless a version counts, or is counting, the records; oldest first.

    If a run of the caller (`mine`) is counting a position, the position is outstanding until the commit.
    """
    positions: dict[int, list[FoundLate]] = {}
    for each in found:
        begun = each.version != each.position and not each.status.final
        counts = not begun and each.status is BatchStatus.COMMITTED and not each.is_counted
        if counts or (begun and (mine(each.run or "") or not _may_count(each))):
            positions.setdefault(each.position, []).append(each)
    return [_together(positions[position]) for position in sorted(positions)]


def _may_count(found: FoundLate) -> bool:
    return found.version > found.found_by or found.is_counted


def _together(found: Sequence[FoundLate]) -> LatePosition:
    files: dict[str, list[tuple[Late, int]]] = {}
    for each in found:
        for name, late in each.files.items():
            to = planned_size(each.seen[name]) if name in each.seen else late.since + 1
            files.setdefault(name, []).append((late, to))
    records = {name: _records(parts) for name, parts in sorted(files.items())}
    streams, last = frozenset(each.stream for each in found), max(each.found_by for each in found)
    rough = any(each.is_rough for each in found)
    return LatePosition(found[0].position, found[0].interval, streams, records, last, is_rough=rough)


def _records(parts: Iterable[tuple[Late, int]]) -> int:
    """Return the number of late records in a file, by part and end of the part. A part met by two runs counts once."""
    number, met = 0, 0
    for late, to in sorted(parts, key=lambda part: (part[0].since, -part[1])):
        if to > met:
            number, met = number + late.records, to
    return number


def in_table(stream: str, table: str, plan: CountedPlan, found: LateRows | None) -> LatePosition | None:
    """Return a position with late or changed rows; None without such rows. With missing or changed rows, the position is only
    told (R17).
    """
    if found is None or not (found.late or found.changed):
        return None
    changed = f"{how_many(found.changed, 'row was', 'rows were')} changed or replaced since" if found.changed else None
    gone = f"{how_many(found.gone, 'row is', 'rows are')} gone since" if found.gone else None
    of = frozenset({stream}), {table: found.late}, plan.version, " and ".join(filter(None, [changed, gone])) or None
    return LatePosition(plan.position, plan.interval, *of, changed=found.changed)


def in_folders(stream: str, plan: CountedPlan, came: Sequence[str]) -> LatePosition | None:
    """Return a position with files that came or grew in folders of the interval alone; None without such files."""
    of = frozenset({stream}), dict.fromkeys(sorted(came), 0), plan.version
    return LatePosition(plan.position, plan.interval, *of, unread=True) if came else None


def late_gone(file: str) -> str:
    """Return the reason to leave late records of a missing file uncounted."""
    return f"{file} is gone since"


def differing(
    counted: Mapping[str, Entry], now: Mapping[str, Entry], arrived: Collection[str], again: str
) -> str | None:
    """Return the first missing, shorter or replaced file of a plan, with the change and the way out; None without such a file.

    `arrived` has the new files, and the files grown by whole lines. `again` is the command that counts the position again.
    """
    for name, before in counted.items():
        if name not in now:
            return f"{name} is gone since; `{again} --accept-missing` counts without the file"
        was, size = planned_size(before), planned_size(now[name])
        if size < was:
            return f"{name} is shorter since; `{again}` counts the file as it is now"
        if (size > was > 0 and name not in arrived) or (size == was and other_ending(before, now[name])):
            return f"{name} was replaced since; `{again}` counts the file as it is now"
    return None


def is_by_look_back(batch: Batch) -> bool:
    """True for a restate by a look back: a person may give any reason."""
    return batch.found_by is not None


def check_files(topology: Topology, position: int, counted: BatchPlan, again: BatchPlan) -> None:
    """Refuse a restate by a look back with a file missing, shorter or replaced since the counted plan: CannotRestate.

    Nobody asked for the restate: no counted record may go.
    """
    command = restate_command(topology.name, position)
    for name, spout in in_files(topology).items():
        then, now = plan_of(counted, name), plan_of(again, name)
        if then and now and (told := differing(then["files"], now["files"], spout.arrived(then, now), command)):
            raise CannotRestate(f"{topology.name}: stream {name!r}: {told}")


def plan_of(plan: BatchPlan, stream: str) -> Metadata | None:
    """Return the plan of a stream by time; None for any other stream."""
    planned = plan.streams.get(stream)
    return planned.plan if isinstance(planned, OfInterval) else None
