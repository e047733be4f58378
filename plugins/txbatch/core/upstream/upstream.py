"""A state as the source of another topology: how far it is, and what changed in it from one txid to another.

A *cut* is a txid: what reports showed while it was the newest committed one, whatever came of its records later. So it is the
same for whoever asks, and whenever, until retention has folded it, or somebody dropped what a rebuild replaced.

>>> known = UpstreamState("words", "word_count", ("2026-11-23", 1), 9, 2, (Replaced(1, 6, 0),))
>>> next_range(known, None), next_range(known, {"start": 0, "end": 9, "of": ["2026-11-23", 1]})
({'start': 0, 'end': 9, 'of': ['2026-11-23', 1]}, None)
>>> replaced_with(known, 6), replaced_with(known, 7)
(Replaced(rebuild=1, last=6, horizon=0, gone=False, left=None, pruned=()), None)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from txbatch.core.batch.transaction import Metadata
from txbatch.core.called import naming
from txbatch.core.definition.jobs import Jobs, defined, python_rule
from txbatch.core.definition.redefinition import DropState, DropValue, MoveState, RenameState, RenameValue, Step
from txbatch.core.errors import ChangeTooEarly, DefinitionError, RecordsGone, SchemaMismatch, TerminalError
from txbatch.core.sources.spout import PartitionedCoordinator, PartitionedSpout
from txbatch.core.state.pruned import Spans, has_gone, pruned_to

if TYPE_CHECKING:
    from txbatch.core.batch.plan import StreamPlan
    from txbatch.core.batch.staging import AttemptFolder
    from txbatch.core.batch.transaction import Assignment
    from txbatch.core.records.fields import Field
    from txbatch.core.topology.persistent_aggregate import PersistentAggregate
    from txbatch.core.topology.topology import Topology
    from txbatch.core.upstream.closings import Closing

# What the identity of a spout says that reads a state; its `state` says which, its `emit` that it reads closed windows.
STATE_SPOUT, CHANGES, FINAL = "StateSpout", "changes", "final"
# What of the windows a range has: all that are closed, or those that its batches closed.
ALL, NEW = "all", "new"
# What a window that is closed has beside what reports show: the txid that closed it.
CLOSED_BY = "closed_by"


@dataclass(frozen=True, slots=True)
class Replaced:
    """A generation that a rebuild replaced: it has the cuts up to `last`, from `horizon` on; None: it did not have the state.

    `gone` says that it cannot be asked any more: it was dropped, or kept no contributions. `left` are the windows that had left,
    `pruned` the positions whose rows had gone. `defined` are the keys and values that it had, as they are stored; None as above.
    """

    rebuild: int
    last: int
    horizon: int | None
    gone: bool = False
    left: tuple[str, int] | None = None
    pruned: Spans = ()
    defined: Metadata | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class UpstreamState:
    """A state, as its readers find it: `txid` is the newest cut, `horizon` the oldest of the generation that counts.

    `made` says when its topology was made, and the first txid that it can have counted: another one is another state.
    `columns` are those of its changes, `closed` those of its windows once they are closed; empty: none of them closes. `left`
    says which windows have left it: those of which a column, in microseconds, is before a time (R30). `pruned` are the positions
    whose rows retention has pruned, None of a state whose rows stay (R22). `defined` are its keys and values, as they are stored.
    """

    state: str
    topology: str
    made: tuple[str, int]
    txid: int
    horizon: int = 0
    replaced: tuple[Replaced, ...] = ()
    columns: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    left: tuple[str, int] | None = None
    pruned: Spans | None = None
    defined: Metadata = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Reader:
    """A stream of `topology` that reads a state of `owner`; `needs` are the cuts from which and to which it reads next.

    `between` says that it reads those between them, too. `opened` are the cuts from which open batches read; 0: all.
    """

    topology: str
    state: str
    owner: str | None
    needs: frozenset[int] = frozenset()
    between: bool = False
    opened: frozenset[int] = frozenset()

    def reads_all(self, swapped: int) -> bool:
        """True while an open batch reads all of the state, or one reads next what was swapped since it was read."""
        return any(0 < txid <= swapped for txid in self.needs) or any(txid <= swapped for txid in self.opened)


class Upstream(Protocol):
    """What a ledger tells of its states to topologies that read them. `postgres.upstream.upstream` is the real one."""

    def known(self, state: str) -> UpstreamState:
        """Return how far a state is. UnknownName when there is none, TerminalError for one whose past is not kept."""

    def readers(self) -> Sequence[Reader]:
        """Return all streams that read a state."""

    def changes(self, state: str, range_: Metadata, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Return these columns of what changed in a range of cuts, a row per key. RecordsGone for a cut that is not kept."""

    def closings(self, state: str, range_: Metadata) -> Sequence[Closing]:
        """Return the batches that closed windows of a state, of those of a range; by their txids."""

    def closed(self, state: str, range_: Metadata, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Return these columns of the windows that a range of cuts closed, as of their closing. RecordsGone as of `changes`."""

    def reopened(self, state: str, range_: Metadata) -> int | None:
        """Return the first cut as of which something was closed in a session that is open as of a range's end; None: in none."""

    def fields(self, state: str, txid: int) -> Mapping[str, str]:
        """Return the columns that a state shows as of a cut, each with what is aggregated, of a key nothing."""

    def rows(self, state: str, txid: int, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Return these columns of a state as of a cut, a row per key."""

    def positions(self, state: str, after: int) -> Sequence[tuple[int, int]]:
        """Return the positions that were counted, or counted again, after a txid, each with the last txid that did; by that."""

    def counted_in_left(self, state: str, range_: Metadata) -> int | None:
        """Return the first txid of a range that may have counted in windows which a rebuild brought back; None: none."""

    def records(self, state: str, position: int, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Return these columns of the records that a state keeps of a position, as they are when the first is asked for."""


class ExportedSpout(PartitionedSpout):
    """A spout of what the ledger keeps. Spark, which gets no password, reads what an attempt's submitter exported for it.

    `exported` is the URI of that file, in the attempt's folder.
    """

    exported: str | None = None

    @abstractmethod
    def next_range(self, upstream: Upstream, last: Metadata | None) -> Metadata | None:
        """Plan the next range after the last one; None for nothing new."""

    @abstractmethod
    def export(self, upstream: Upstream, ranges: Mapping[str, Metadata]) -> Iterable[tuple[Any, ...]]:
        """Return the records of these ranges."""

    def coordinator(self) -> UpstreamCoordinator:
        return UpstreamCoordinator(self)


class UpstreamCoordinator(PartitionedCoordinator):
    """Plans what is exported, of the `upstream` that the ledger is."""

    spout: ExportedSpout
    upstream: Upstream | None = None

    def ask(self, txid: int, partition: str, last: Metadata | None) -> Metadata | None:
        """Plan the next range. DefinitionError where there is no ledger to ask."""
        if self.upstream is None:
            raise DefinitionError(
                f"{type(self.spout).__name__} is planned by a ledger, which knows the state; give one"
            )
        return self.spout.next_range(self.upstream, last)


ANEW = "`txbatch drop` the topology that reads it and run that again: it begins with all that the state has"
_AS_READ = (
    "of a batch that is not committed, `txbatch abort` it, and the next run reads what is there; one that is cannot be counted "
    "again, and stays as it is"
)
_AS_COUNTED = "a batch that read it then cannot be counted again, and stays as it is"


def next_range(known: UpstreamState, last: Metadata | None) -> dict[str, Any] | None:
    """Return the range from the last cut to the newest; None when that is the same. RecordsGone when the last one is not kept."""
    if last is None:
        check_newest(known)
        return marked_gone(known, {"start": 0, "end": known.txid, "of": list(known.made)}) if known.txid else None
    start = int(last["end"])
    check_same(known, {**last, "start": start, "end": start})
    if known.txid == start:
        return None
    found = {"start": start, "end": known.txid, "of": list(known.made)}
    check_kept(known, found)
    return marked_gone(known, found)


def check_same(known: UpstreamState, range_: Metadata, way_out: str = ANEW) -> None:
    """RecordsGone when a range is of a state of the same name that was dropped, or of a ledger that was set back."""
    made, first = range_["of"]
    again = known.made[0] != made or (known.made[1] != first and replaced_with(known, range_["start"]) is None)
    if again or known.txid < range_["end"]:
        why = "was dropped and made anew" if again else f"is at txid {known.txid}: its ledger was set back"
        raise RecordsGone(f"state {known.state!r} {why}, since it was read up to txid {range_['end']}; {way_out}")


def check_kept(known: UpstreamState, range_: Metadata, way_out: str = ANEW) -> None:
    """RecordsGone when a cut of a range cannot be asked any more; what is before all of them is nothing."""
    for txid in filter(None, (range_["start"], range_["end"], *_lowest_between(known, range_))):
        replaced = replaced_with(known, txid)
        horizon = known.horizon if replaced is None else replaced.horizon
        why = f"retention has folded what it was before txid {horizon}" if txid < (horizon or 0) else None
        if replaced is not None and replaced.gone:
            why = f"of what rebuild {replaced.rebuild} replaced nothing is kept"
        if why:
            raise RecordsGone(f"state {known.state!r} cannot be read as of txid {txid}: {why}; {way_out}")
    for txid in _lowest_since(known, range_):
        replaced = replaced_with(known, txid)
        horizon = known.horizon if replaced is None else replaced.horizon or 0
        if txid < horizon or (replaced is not None and replaced.gone):
            took = f"retention has folded up to txid {horizon}" if txid < horizon else "nothing is kept of"
            raise RecordsGone(
                f"state {known.state!r}: {took} what says which of its sessions had been closed since txid {range_['since']}; "
                f"{way_out}"
            )


def _lowest_since(known: UpstreamState, range_: Metadata) -> list[int]:
    """Return the lowest cut of each generation that a range asks for what had been closed before it begins."""
    if "since" not in range_:
        return []
    since, start = range_["since"], range_["start"]
    return [since, *(each.last + 1 for each in known.replaced if since <= each.last <= start)]


def _lowest_between(known: UpstreamState, range_: Metadata) -> list[int]:
    """Return the lowest cut that a range of closed windows reads of each generation."""
    if "windows" not in range_:
        return []
    first = range_["start"] + 1
    return [first, *(each.last + 1 for each in known.replaced if first <= each.last < range_["end"])]


def marked_gone(known: UpstreamState, range_: dict[str, Any]) -> dict[str, Any]:
    """Return a new range which says, where it reads all of a state, what retention had taken away from that: windows, rows."""
    return range_ | _gone(known, range_)


def check_gone(known: UpstreamState, range_: Metadata, way_out: str = _AS_READ, *, again: bool = False) -> None:
    """RecordsGone where a range reads all of a state from which retention took something since it was planned (R22, R30).

    A plan of an earlier version does not say which rows had gone: that holds for a batch which is read `again`, and not for one
    that is open, for which rows stay.
    """
    now, known_then = _gone(known, range_), again or "pruned" in range_
    windows = _reads_all(known, range_) and now.get("left") != range_.get("left")
    rows = known_then and _reads_all(known, range_) and now.get("pruned", 0) != range_.get("pruned", 0)
    if windows or rows:
        raise RecordsGone(
            f"state {known.state!r}: retention has {'let windows go' if windows else 'pruned rows'} since it was read as of txid "
            f"{range_['end']}; {way_out}"
        )


def left_between(known: UpstreamState, start: int, end: int) -> list[tuple[str, int]]:
    """Return which windows have left a state in the generations of two cuts: what became of them is no change."""
    found = {_left(known, txid) for txid in (start, end)} if start else set()
    return sorted(each for each in found if each is not None)


def pruned_between(known: UpstreamState, range_: Metadata) -> Spans:
    """Return of which positions rows have gone in the generations of a range's cuts: that they did is no change.

    A range that an earlier version planned does not say what had gone: whoever reads it gets what its first attempt did.
    """
    cuts = (range_["start"], range_["end"]) if range_["start"] and "pruned" in range_ else ()
    spans = (_pruned(known, txid) or () for txid in cuts)
    return tuple(sorted({(after, last) for each in spans for after, last in each if after < last}))


def check_known_rows(known: UpstreamState, range_: Metadata, upstream: Upstream) -> None:
    """RecordsGone where a range has a position counted again since a rebuild brought its rows back, which had been pruned.

    A position may have been counted again once more since the range was made: that hides when it was before.
    """
    replaced = replaced_with(known, range_["start"]) if range_["start"] else None
    if replaced is None or replaced == replaced_with(known, range_["end"]) or not pruned_to(replaced.pruned):
        return
    for position, txid in upstream.positions(known.state, replaced.last):
        if has_gone(replaced.pruned, position):
            raise RecordsGone(
                f"position {position} of state {known.state!r} was counted again by txid {txid} after a rebuild, and its rows "
                f"had been pruned before that: nobody knows what changed for who had read them; {ANEW}"
            )


def check_known_windows(known: UpstreamState, range_: Metadata, upstream: Upstream) -> None:
    """RecordsGone where something was counted in windows since a rebuild brought them back, which had left before that."""
    replaced = replaced_with(known, range_["start"]) if range_["start"] else None
    if replaced is None or replaced == replaced_with(known, range_["end"]) or replaced.left is None:
        return
    if (txid := upstream.counted_in_left(known.state, range_)) is not None:
        raise RecordsGone(
            f"txid {txid} may have counted in windows of state {known.state!r} after a rebuild, which had left it before that: "
            f"nobody knows what changed for who had read them; {ANEW}"
        )


def _gone(known: UpstreamState, range_: Metadata) -> dict[str, int]:
    """Return what retention has taken away by now from a state that a range reads all of."""
    if not _reads_all(known, range_):
        return {}
    left, pruned = _left(known, range_["end"]), _pruned(known, range_["end"])
    if pruned is None and range_["start"] and _pruned(known, range_["start"]):
        pruned = ()  # what had gone before a swap comes back with it, in a state whose rows stay by now
    marks = {"left": None if left is None else left[1], "pruned": None if pruned is None else pruned_to(pruned)}
    return {name: mark for name, mark in marks.items() if mark is not None}


def _left(known: UpstreamState, cut: int) -> tuple[str, int] | None:
    replaced = replaced_with(known, cut)
    return known.left if replaced is None else replaced.left


def _pruned(known: UpstreamState, cut: int) -> Spans | None:
    replaced = replaced_with(known, cut)
    return known.pruned if replaced is None else replaced.pruned or None


def _reads_all(known: UpstreamState, range_: Metadata) -> bool:
    """True if more is read than what changed within a generation."""
    return range_.get("windows") == ALL or not within_generation(known, range_["start"], range_["end"])


def check_newest(known: UpstreamState) -> None:
    """RecordsGone where a state cannot be read as of its newest txid, for a rebuild has replaced what it was then."""
    check_kept(known, {"start": 0, "end": known.txid}, once_committed(known))


def once_committed(known: UpstreamState) -> str:
    """Return the way out where nothing was committed since a rebuild."""
    return (
        f"nothing was committed since: run topology {known.topology!r}, or restate a batch of it, then it can be read"
    )


def check_there(known: UpstreamState, txid: int, way_out: str) -> None:
    """RecordsGone where a rebuild began a state after a txid: as of the txid there was none, or another one of its name."""
    replaced = replaced_with(known, txid)
    if replaced is not None and replaced.defined is None:
        raise RecordsGone(
            f"state {known.state!r} was begun by rebuild {replaced.rebuild}, and is not there as of txid {txid}; {way_out}"
        )


def check_again(topology: Topology, upstream: Upstream, streams: Mapping[str, StreamPlan]) -> None:
    """RecordsGone for what a batch, which is to be counted again, read of states and is not kept any more."""
    for name in exported(topology).keys() & streams.keys():
        for state, range_ in streams[name].ranges.items():
            known = upstream.known(state)
            check_same(known, range_, _AS_COUNTED)
            check_kept(known, range_, _AS_COUNTED)
            check_gone(known, range_, _AS_COUNTED, again=True)


def replaced_with(known: UpstreamState, txid: int) -> Replaced | None:
    """Return the generation that has a cut, of those that rebuilds replaced; None: the one that counts has it."""
    return next((each for each in known.replaced if txid <= each.last), None)


def defined_by(known: UpstreamState, replaced: Replaced | None) -> Metadata | None:
    """Return the keys and values of a state, as they are stored, in a generation; None where that did not have it."""
    return known.defined if replaced is None else replaced.defined


def within_generation(known: UpstreamState, start: int, end: int) -> bool:
    """True if one generation has both cuts of a range: it knows by which txid a key went, where others know the end alone."""
    return start > 0 and replaced_with(known, start) == replaced_with(known, end)


def check_dated(state: str, database: str | None, *, contributions: bool) -> None:
    """TerminalError for a state whose past is not kept: nobody can say what changed in it."""
    if database is not None or not contributions:
        where = "without contributions" if database is None else f"apart, in {database!r}"
        raise TerminalError(
            f"state {state!r} is kept {where}: what changed in it is not known; keep it with contributions, here"
        )


def check_merged(state: str, topology: str, columns: Metadata, jobs: Jobs) -> PersistentAggregate | None:
    """Return the state as its job defines it, where Python of that merges values; None: none does.

    TerminalError where the job is not at hand, or defines the state otherwise: what changed in it is not known.
    """
    own = python_rule(columns)
    if own is None:
        return None
    try:
        return defined(jobs, topology, state, columns)
    except TerminalError as error:
        raise TerminalError(
            f"state {state!r} merges {own}, which is Python of its job, and so what changed in it is known with that alone: "
            f"{error}"
        ) from error


def shown_columns(columns: Metadata) -> dict[str, str]:
    """Return the columns that a state shows as of a cut, each with what is aggregated, of a key nothing."""
    return {**{name: "" for name, _ in columns["keys"]}, **columns["aggregates"], "txid": ""}


def reshaped(state: str, why: str) -> SchemaMismatch:
    """Return the error of reading a state whose columns are not what they were, as where a rebuild has given them other types."""
    return SchemaMismatch(f"state {state!r} cannot be read as it was: {why}; {_AS_READ}")


def check_keys(state: str, keys: Sequence[str], before: Sequence[str]) -> None:
    """RecordsGone when a rebuild gave a state other keys: nobody can say which of them changed."""
    if keys != before:
        raise RecordsGone(
            f"state {state!r} has the key {', '.join(keys)} since a rebuild, had {', '.join(before)}: what changed "
            f"cannot be told; {ANEW}"
        )


def check_columns(known: UpstreamState, fields: Iterable[Field], columns: Sequence[str], of: str = "changes") -> None:
    """SchemaMismatch names a field that what is read `of` a state does not have among its columns."""
    for each in fields:
        if each.name not in columns:
            raise SchemaMismatch(
                f"StateSpout: the {of} of state {known.state!r} have no {each.name!r}; they have {', '.join(columns)}"
            )


def check_asked(state: str, asked: Iterable[str], columns: Collection[str]) -> None:
    """SchemaMismatch where a batch is to read columns that a state does not have any more, as of the cuts that it reads."""
    for name in asked:
        if name not in columns:
            raise SchemaMismatch(
                f"state {state!r} has no {name!r}, which a batch reads; it has {', '.join(columns)}: a value was renamed, or is "
                f"gone, since the batch was planned, or the job reads another one now; {_AS_READ}"
            )


def check_acyclic(topology: Topology, readers: Collection[Reader]) -> None:
    """DefinitionError when a topology reads, however many others lie between, a state of its own."""
    own = {aggregate.state.name: topology.name for aggregate in topology.aggregates}
    stored = [each for each in readers if each.topology != topology.name]
    owners = {each.state: each.owner for each in readers} | own
    way: dict[str | None, list[str]] = {}
    reads = [(topology.name, each.identity["state"]) for each in exported(topology).values()]
    while reads:
        reader, state = reads.pop()
        owner = owners.get(state)
        if owner is None or owner in way:
            continue
        way[owner] = [*way.get(reader, [reader]), f"state {state!r} of {owner}"]
        if owner == topology.name:
            raise DefinitionError(
                f"topology {topology.name!r} reads what it makes itself: {' reads '.join(way[owner])}; a chain has an end: let "
                "one of them read another state"
            )
        reads += [(owner, each.state) for each in stored if each.topology == owner]


def held(
    readers: Iterable[Reader], topology: str, swapped: int, pruning: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Return, by reader, up to which txid a topology may be folded: the lowest cut that it reads next.

    Cuts up to `swapped` are those of generations that a rebuild has replaced, which nobody folds any more. `pruning` has the
    states whose rows go with what is folded, with their horizons: nothing is while somebody reads all of such a state.

    >>> held([Reader("top", "words", "word_count", frozenset({0, 2, 7}))], "word_count", swapped=2)
    {'top': 7}
    >>> held([Reader("top", "hours", "visits", frozenset({2}), between=True)], "visits", swapped=4)
    {'top': 5}
    >>> held([Reader("top", "kept", "log", frozenset({0, 7}), opened=frozenset({0}))], "log", 0, {"kept": 3})
    {'top': 3}
    """
    found: dict[str, int] = {}
    for each in (each for each in readers if each.owner == topology):
        needs = (max(txid, swapped + 1) if each.between else txid for txid in each.needs)
        lowest = [txid for txid in needs if txid > swapped]
        if pruning and each.state in pruning and each.reads_all(swapped):
            lowest.append(pruning[each.state])
        for txid in lowest:
            found[each.topology] = min(txid, found.get(each.topology, txid))
    return found


def check_changed(readers: Iterable[Reader], looked_up: Iterable[Reader], steps: Iterable[Step]) -> None:
    """TerminalError for a state that is renamed, goes or moves, and that streams of others read.

    ChangeTooEarly while an open batch looks such a state up by its name: in other plans the state gets the new one.
    So for a value that is renamed or goes while an open batch reads the state: the batch may read the value.
    """
    read, looked = list(readers), list(looked_up)
    for step in steps:
        match step:
            case RenameState(was=state) | DropState(state=state) | MoveState(state=state, database=str()):
                _check_not_known(state, read, looked)
            case RenameValue(state=state) | DropValue(state=state):
                _check_values_not_read(state, (*read, *looked))


def _check_not_known(state: str, read: Iterable[Reader], looked: Iterable[Reader]) -> None:
    for each in read:
        if each.state == state:
            raise TerminalError(
                f"state {state!r} stays what it is while topology {each.topology!r} reads it: to change it all the same, "
                f"`txbatch drop {each.topology}`, change this, and run that again"
            )
    for each in looked:
        if each.state == state:
            raise ChangeTooEarly(
                f"state {state!r} stays what it is while an open batch of topology {each.topology!r} looks it up: let that "
                f"end, or `txbatch abort` it, and try again; `txbatch batches {each.topology}` lists them"
            )


def _check_values_not_read(state: str, readers: Iterable[Reader]) -> None:
    for each in readers:
        if each.state == state and each.opened:
            raise ChangeTooEarly(
                f"the values of state {state!r} stay what they are while an open batch of topology {each.topology!r} reads the "
                f"state or looks it up: let that end, or `txbatch abort` it; `txbatch batches {each.topology}` lists them"
            )


def check_past_read(readers: Iterable[Reader], topology: str, swapped: int) -> None:
    """TerminalError while a topology stands at a cut up to `swapped`: what the swap changed it has still to read, or looks up."""
    for each in readers:
        if each.owner == topology and any(0 < max(txid, each.between) <= swapped for txid in each.needs):
            raise TerminalError(
                f"{topology}: topology {each.topology!r} has read state {each.state!r} as it was before a rebuild, and reads "
                "what that changed with the next batch, or an open one looks up in it: drop the past when it has run, or "
                "`txbatch drop` that topology"
            )


def exported(topology: Topology) -> dict[str, ExportedSpout]:
    """Return the spouts of a topology that read states, by stream."""
    spouts = {name: stream.spout for name, stream in topology.streams.items()}
    return {name: spout for name, spout in spouts.items() if isinstance(spout, ExportedSpout)}


def export(topology: Topology, upstream: Upstream, assignment: Assignment, folder: AttemptFolder) -> None:
    """Write what a batch takes from states into the folder of an attempt: a file for each of its streams."""
    planned, numbers = assignment.plan.streams, stream_numbers(topology)
    for name, spout in exported(topology).items():
        if name in planned:
            records = spout.export(upstream, planned[name].ranges)
            with naming(f"stream {name!r}"):
                folder.write_export(numbers[name], topology.streams[name].fields, records)


def stream_numbers(topology: Topology) -> dict[str, int]:
    """Return the numbers by which the files of exported streams are named."""
    return {name: number for number, name in enumerate(exported(topology))}
