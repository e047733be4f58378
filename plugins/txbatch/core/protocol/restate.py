"""Restate: which batches may be counted again, and the ranges of the new plan (R17). Decided on values read by a ledger.

>>> from txbatch.core.batch.manifest import ReadPartition
>>> from txbatch.core.batch.plan import Range
>>> from txbatch.core.batch.transaction import Batch
>>> hole = {"log": {"a": ReadPartition(9, "1"), "b": None}}
>>> first = Batch("hosts", 1, BatchStatus.COMMITTED, {}, "run:1")
>>> planned = Ranges({"a": Range(0, 9), "b": Range(0, 4)})
>>> ranges_again("log", planned, PositionVersion(first, first, first, hole, hole)).ranges
{'a': {'start': 0, 'end': 9}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from txbatch.core.batch.manifest import Manifest, ReadPartition
from txbatch.core.batch.plan import BatchPlan, OfInterval, Ranges
from txbatch.core.batch.transaction import Batch, BatchKind, BatchStatus, Interval, Restate
from txbatch.core.errors import BatchAborted, CannotRestate, TerminalError
from txbatch.core.sources.spout import SpoutKind
from txbatch.core.topology.kept_windows import Left, check_not_left
from txbatch.core.topology.topology import Topology

# Per stream and partition: the records read; None: nothing was read.
ReadBy = Mapping[str, Mapping[str, ReadPartition | None]]
# How many changed files a message names.
CHANGED_SHOWN = 3

_REBUILD = '`txbatch rebuild {} --why "..."`'


@dataclass(frozen=True, slots=True)
class PositionVersion:
    """The version of a position that counts now (R17); if the batch does not count, the batch itself.

    `asked` is the requested batch, perhaps a restate; `first` is the first batch of the position. By stream and partition,
    `read` is the input of the counting version, `first_read` the input of the first one: None is a hole. `horizon` is the
    highest txid with contributions folded in a state of the topology (R22). If a rebuild counted the version, `read` is
    the input of the rebuild, by the plan `rebuilt`. By state, `left` names the windows gone from the state (R30).
    """

    asked: Batch
    first: Batch
    current: Batch
    read: ReadBy
    first_read: ReadBy
    horizon: int = 0
    rebuilt: BatchPlan | None = None
    left: Mapping[str, Left] = field(default_factory=dict)

    @property
    def plan(self) -> BatchPlan:
        """The plan by which the counting version was read."""
        return self.current.plan if self.rebuilt is None else self.rebuilt


def check_topology(topology: Topology) -> None:
    """Refuse to restate if a state keeps no contributions to fold again, or if a source cannot be read twice."""
    for state in (aggregate.state for aggregate in topology.aggregates):
        if state.database is not None:
            raise CannotRestate(
                f"{topology.name}: state {state.name!r} is kept apart, in {state.database!r}, without contributions, so none of "
                "them can be replaced; mend the source and count it by another topology, with states of other names"
            )
        if not state.contributions:
            raise CannotRestate(
                f"{topology.name}: state {state.name!r} keeps no contributions, so none of them can be replaced; mend the source "
                f"and count all of it again: {_REBUILD.format(topology.name)}"
            )
    for stream in topology.streams.values():
        if stream.spout.kind is SpoutKind.NON_TRANSACTIONAL:
            raise CannotRestate(
                f"{topology.name}: stream {stream.name!r} is non-transactional: what it read cannot be read again, so no batch "
                "of it can be counted again"
            )


def check_version(version: PositionVersion, restate: Restate) -> None:
    """Refuse to restate a batch that is not committed, is itself a restate, was given up, or is folded."""
    asked, current = version.asked, version.current
    of = f"{asked.topology}: txid {asked.txid}"
    if asked.status is BatchStatus.ABORTED:
        raise BatchAborted(f"{of} was aborted and counts nothing; its records are free: the next run counts them")
    if asked.status is not BatchStatus.COMMITTED:
        raise CannotRestate(
            f"{of} is {asked.status}, not committed; abort txid {asked.txid}, and the next run plans the records again"
        )
    if asked.kind is BatchKind.RESTATE:
        raise CannotRestate(f"{of} counts txid {asked.position} again; restate txid {asked.position}")
    if current.kind is BatchKind.SKIP and not restate.skipped:
        raise CannotRestate(
            f"{of} gave its records up ({current.reason}); to count them after all, restate it with --skipped"
        )
    check_not_folded(version)
    check_not_left(version.first, version.left)


def counted_meanwhile(version: PositionVersion, pending: Iterable[Batch], asked: Restate) -> bool:
    """True if a txid above `found_by` counts the position, or is counting the position."""
    if asked.found_by is None:
        return False
    open_ = (each.txid for each in pending if each.kind is BatchKind.RESTATE and each.position == asked.position)
    return max([version.current.txid, *open_]) > asked.found_by


def check_not_folded(version: PositionVersion) -> None:
    """Refuse to replace contributions folded by retention (R22)."""
    asked, current = version.asked, version.current
    if current.txid <= version.horizon:
        by = "" if current.txid == asked.position else f", which txid {current.txid} counts,"
        raise CannotRestate(
            f"{asked.topology}: txid {asked.position}{by} is folded: contributions up to txid {version.horizon} are kept as one "
            "row per key, out of which nothing can be taken; count a correction as new records, or count all of it again: "
            f"{_REBUILD.format(asked.topology)}"
        )


def check_whole(topology: Topology, version: PositionVersion, again: BatchPlan, manifest: Manifest) -> None:
    """Refuse to count an interval again without the records of missing files: TerminalError names the files.

    `again` is the plan by which the interval is counted again: a file that was missing then is missed, though it may be back.

    If the same records were read, they are in other files now, or the missing file had no records of the interval.
    """
    for name, planned in version.plan.streams.items():
        before, now = version.read.get(name, {}), manifest.streams.get(name, {})
        if not isinstance(planned, OfInterval) or before == now:
            continue
        spout = topology.streams[name].spout
        if lacking := spout.lacking(planned.plan, again.streams[name].plan):
            position, one = version.asked.position, len(lacking) == 1
            if spout.gone(planned.plan):
                missing = f"{'is' if one else 'are'} not there any more"
            else:
                missing = f"{'was' if one else 'were'} not there when the interval was planned again"
            raise CannotRestate(
                f"{topology.name}: txid {position} is counted again whole or not at all: {list_some(lacking)} of stream {name!r} "
                f"{missing}, and the interval had {_records(before)} then, {_records(now)} now. Restore "
                "the missing files, and restate again; or count the interval without the missing files: "
                f"{restate_command(topology.name, position)} --accept-missing"
            )


def _records(read: Mapping[str, ReadPartition | None]) -> str:
    return f"{sum(each.records for each in read.values() if each):,} records"


def list_some(names: Sequence[str]) -> str:
    """Return the first names, and how many more were left out.

    >>> list_some(["a", "b", "c", "d", "e"])
    'a, b, c, 2 more'
    """
    more = [f"{len(names) - CHANGED_SHOWN:,} more"] * (len(names) > CHANGED_SHOWN)
    return ", ".join([*names[:CHANGED_SHOWN], *more])


def how_to_restate(topology: Topology, batch: Batch, changed: Sequence[Mapping[str, str]]) -> str:
    """Return a message with the changed files of a committed batch's source, and the restate command if allowed (R15).

    Every plan by time names all files, whatever the times of the records. Only verify finds out if the interval differs.
    """
    told = list_some([f"{each['file']} ({each['change']})" for each in changed])
    differs = f"; of its source differs since: {told}" if changed else ""
    try:
        check_topology(topology)
    except TerminalError:
        return differs
    skipped = batch.kind is BatchKind.SKIP
    if changed and not skipped and all(_by_time(topology, each["stream"]) for each in changed):
        return f"{differs}; its interval may have other records now: `txbatch verify {topology.name} {batch.position}` tells"
    return f"{differs}; to count it again: {restate_command(topology.name, batch.position)}{' --skipped' * skipped}"


def _by_time(topology: Topology, stream: str) -> bool:
    return topology.streams[stream].spout.by_interval


def positions_within(topology: str, asked: Interval, counted: Mapping[int, Interval]) -> list[int]:
    """Return all txids with intervals inside `asked`. Raise TerminalError if none is inside, or if one reaches beyond `asked`.

    >>> from datetime import UTC, datetime
    >>> first, second, third = (datetime(2013, 1, day, tzinfo=UTC) for day in (1, 2, 3))
    >>> positions_within("hosts", Interval(first, third), {7: Interval(second, third)})
    [7]
    """
    if not counted:
        raise CannotRestate(f"{topology}: nothing of {asked} is committed; `txbatch batches {topology}` lists what is")
    for txid, interval in counted.items():
        if interval.start < asked.start or asked.end < interval.end:
            raise CannotRestate(
                f"{topology}: txid {txid} counts {interval}, of which {asked} is only a part; a batch is counted again whole: "
                "give an interval with all of it, or name txids"
            )
    return sorted(counted)


def uncounted(asked: Interval, counted: Iterable[Interval]) -> list[Interval]:
    """Return the parts of an interval counted by no batch; `counted` has the counted intervals inside.

    >>> from datetime import UTC, datetime
    >>> first, second, third = (datetime(2013, 1, day, tzinfo=UTC) for day in (1, 2, 3))
    >>> [str(each) for each in uncounted(Interval(first, third), [Interval(second, third)])]
    ['2013-01-01T00:00:00+00:00/2013-01-02T00:00:00+00:00']
    """
    found, since = list[Interval](), asked.start
    for each in sorted(counted, key=lambda interval: interval.start):
        if since < each.start:
            found.append(Interval(since, each.start))
        since = max(since, each.end)
    return [*found, Interval(since, asked.end)] if since < asked.end else found


def ranges_again(stream: str, planned: Ranges, version: PositionVersion) -> Ranges:
    """Return the ranges of a restate: the ranges read by the position's batch, never holes, which later batches have by now.

    Ranges left out by an earlier restate are read again, and so are all ranges of a skip: no other batch has them.
    """
    ordinary = version.first.kind is BatchKind.ORDINARY
    read = version.first_read.get(stream, {})
    names = [name for name in planned.partitions if not ordinary or read.get(name) is not None]
    return Ranges({name: replace(planned.partitions[name], gone=None) for name in names}, rest=planned.rest)


def restate_command(topology: str, txid: int) -> str:
    """Return the command that counts a batch again."""
    return f'txbatch restate {topology} {txid} --why "..."'
