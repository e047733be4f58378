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

from dataclasses import dataclass, field
from typing import Any

from txbatch.core.batch.transaction import Metadata
from txbatch.core.errors import RecordsGone
from txbatch.core.state.pruned import Spans, pruned_to

# What of the windows a range has: all that are closed, or those that its batches closed.
ALL, NEW = "all", "new"
# What a window that is closed has beside what reports show: the txid that closed it.
CLOSED_BY = "closed_by"
ANEW = "`txbatch drop` the topology that reads it and run that again: it begins with all that the state has"
AS_READ = (
    "of a batch that is not committed, `txbatch abort` it, and the next run reads what is there; one that is cannot be counted "
    "again, and stays as it is"
)


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


def check_gone(known: UpstreamState, range_: Metadata, way_out: str = AS_READ, *, again: bool = False) -> None:
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


def replaced_with(known: UpstreamState, txid: int) -> Replaced | None:
    """Return the generation that has a cut, of those that rebuilds replaced; None: the one that counts has it."""
    return next((each for each in known.replaced if txid <= each.last), None)


def defined_by(known: UpstreamState, replaced: Replaced | None) -> Metadata | None:
    """Return the keys and values of a state, as they are stored, in a generation; None where that did not have it."""
    return known.defined if replaced is None else replaced.defined


def within_generation(known: UpstreamState, start: int, end: int) -> bool:
    """True if one generation has both cuts of a range: it knows by which txid a key went, where others know the end alone."""
    return start > 0 and replaced_with(known, start) == replaced_with(known, end)


@dataclass(frozen=True, slots=True)
class Closing:
    """A batch that closed windows of a state: those whose key `key`, in microseconds, is from `first` to before `end`.

    Of sessions that is the last time. Since the batch all is closed that has ended by `closed_to`.
    """

    txid: int
    key: str
    first: int
    end: int
    closed_to: int

    @property
    def gap(self) -> int:
        """How long after their last records sessions are closed."""
        return self.closed_to - self.end
