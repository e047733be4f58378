"""A state as the source of another topology: how far the state is, and the changes from one txid to another.

A *cut* is a txid, and stands for the reports while the txid was the newest committed one, whatever happens later. A cut is the
same for everybody at any time, until retention folds the cut, or somebody drops the replaced generation.

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

# The windows of a range: all closed windows, or the windows closed by the range's batches.
ALL, NEW = "all", "new"
# The column of a closed window beside the columns of reports: the txid of the closing batch.
CLOSED_BY = "closed_by"
ANEW = (
    "`txbatch drop` the reading topology and run that topology again: the first batch then reads all rows of the state"
)
AS_READ = (
    "if the batch is not committed, `txbatch abort` the batch, and the next run reads the rows that are left; a committed batch "
    "cannot be counted again, and stays unchanged"
)


@dataclass(frozen=True, slots=True)
class Replaced:
    """A generation replaced by a rebuild, with the cuts from `horizon` up to `last`.

    If the generation did not have the state, `horizon` and `defined` are None. If the generation was dropped, or has no
    contributions, `gone` is True: the generation cannot be asked any more. `left` are the windows that had left, `pruned`
    the positions of pruned rows. `defined` are the stored keys and values of the generation.
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
    """A state as readers find the state: `txid` is the newest cut, `horizon` the oldest cut of the present generation.

    `made` is when the topology was made, and the first txid of the state: with another `made`, the state is another state.
    `columns` are the columns of changes. `closed` are the columns of closed windows; empty if no window closes. `left`
    describes the windows gone from the state: a column, in microseconds, and the time before which windows have left (R30).
    `pruned` are the positions of rows pruned by retention; None if rows stay (R22). `defined` are the stored keys and values.
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
    """Return the range from the last cut to the newest; None if both are the same. Raise RecordsGone if the last is not kept."""
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
    """Raise RecordsGone if a range is from a dropped state of the same name, or if the ledger was set back since."""
    made, first = range_["of"]
    again = known.made[0] != made or (known.made[1] != first and replaced_with(known, range_["start"]) is None)
    if again or known.txid < range_["end"]:
        why = "was dropped and made anew" if again else f"is at txid {known.txid}: its ledger was set back"
        raise RecordsGone(f"state {known.state!r} {why}, since it was read up to txid {range_['end']}; {way_out}")


def check_kept(known: UpstreamState, range_: Metadata, way_out: str = ANEW) -> None:
    """Raise RecordsGone if a cut of a range cannot be asked any more. Cut 0, before all batches, is empty and never gone."""
    for txid in filter(None, (range_["start"], range_["end"], *_lowest_between(known, range_))):
        replaced = replaced_with(known, txid)
        horizon = known.horizon if replaced is None else replaced.horizon
        why = f"retention has folded batches before txid {horizon}" if txid < (horizon or 0) else None
        if replaced is not None and replaced.gone:
            why = f"the generation replaced by rebuild {replaced.rebuild} is deleted"
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
    """Return the lowest cut in each generation that a range asks for sessions closed before the beginning."""
    if "since" not in range_:
        return []
    since, start = range_["since"], range_["start"]
    return [since, *(each.last + 1 for each in known.replaced if since <= each.last <= start)]


def _lowest_between(known: UpstreamState, range_: Metadata) -> list[int]:
    """Return the lowest cut in each generation read by a range of closed windows."""
    if "windows" not in range_:
        return []
    first = range_["start"] + 1
    return [first, *(each.last + 1 for each in known.replaced if first <= each.last < range_["end"])]


def marked_gone(known: UpstreamState, range_: dict[str, Any]) -> dict[str, Any]:
    """Return a new range; if all of a state is read, with marks of the windows and rows removed by retention."""
    return range_ | _gone(known, range_)


def check_gone(known: UpstreamState, range_: Metadata, way_out: str = AS_READ, *, again: bool = False) -> None:
    """Raise RecordsGone if a range reads all of a state, and retention removed windows or rows since the plan (R22, R30).

    A plan from an earlier version has no mark of removed rows. Rows are then compared only for a batch read `again`: for an
    open batch rows stay.
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
    """Return which windows have left a state in the generations of two cuts: leaving is no change."""
    found = {_left(known, txid) for txid in (start, end)} if start else set()
    return sorted(each for each in found if each is not None)


def pruned_between(known: UpstreamState, range_: Metadata) -> Spans:
    """Return the positions of pruned rows in the generations of a range's cuts: pruning is no change.

    A range from an earlier version has no marks: every reading gives the same records as the first attempt.
    """
    cuts = (range_["start"], range_["end"]) if range_["start"] and "pruned" in range_ else ()
    spans = (_pruned(known, txid) or () for txid in cuts)
    return tuple(sorted({(after, last) for each in spans for after, last in each if after < last}))


def _gone(known: UpstreamState, range_: Metadata) -> dict[str, int]:
    """Return marks of the windows and rows removed by retention until now, if a range reads all of a state."""
    if not _reads_all(known, range_):
        return {}
    left, pruned = _left(known, range_["end"]), _pruned(known, range_["end"])
    if pruned is None and range_["start"] and _pruned(known, range_["start"]):
        pruned = ()  # rows gone before a swap come back with the swap, if the state's rows stay by now
    marks = {"left": None if left is None else left[1], "pruned": None if pruned is None else pruned_to(pruned)}
    return {name: mark for name, mark in marks.items() if mark is not None}


def _left(known: UpstreamState, cut: int) -> tuple[str, int] | None:
    replaced = replaced_with(known, cut)
    return known.left if replaced is None else replaced.left


def _pruned(known: UpstreamState, cut: int) -> Spans | None:
    replaced = replaced_with(known, cut)
    return known.pruned if replaced is None else replaced.pruned or None


def _reads_all(known: UpstreamState, range_: Metadata) -> bool:
    """True if a range reads more than the changes within a generation."""
    return range_.get("windows") == ALL or not within_generation(known, range_["start"], range_["end"])


def check_newest(known: UpstreamState) -> None:
    """Raise RecordsGone if a state cannot be read as of the newest txid, since a rebuild has replaced the generation."""
    check_kept(known, {"start": 0, "end": known.txid}, once_committed(known))


def once_committed(known: UpstreamState) -> str:
    """Return the way out if nothing was committed since a rebuild."""
    return (
        f"nothing was committed since: run topology {known.topology!r}, or restate a batch of it, then it can be read"
    )


def check_there(known: UpstreamState, txid: int, way_out: str) -> None:
    """Raise RecordsGone if a rebuild began a state after a txid: as of the txid the state was missing, or another one."""
    replaced = replaced_with(known, txid)
    if replaced is not None and replaced.defined is None:
        raise RecordsGone(
            f"state {known.state!r} was begun by rebuild {replaced.rebuild}, and is not there as of txid {txid}; {way_out}"
        )


def replaced_with(known: UpstreamState, txid: int) -> Replaced | None:
    """Return the replaced generation with a cut; None if the present generation has the cut."""
    return next((each for each in known.replaced if txid <= each.last), None)


def defined_by(known: UpstreamState, replaced: Replaced | None) -> Metadata | None:
    """Return the stored keys and values of a state in a generation; None if the generation did not have the state."""
    return known.defined if replaced is None else replaced.defined


def within_generation(known: UpstreamState, start: int, end: int) -> bool:
    """True if one generation has both cuts of a range, and so the txid of each removed key; across generations only the end."""
    return start > 0 and replaced_with(known, start) == replaced_with(known, end)


@dataclass(frozen=True, slots=True)
class Closing:
    """A batch that closed windows of a state: the windows with the key `key`, in microseconds, from `first` to before `end`.

    For sessions, `key` has the last time. Since the batch, all windows ended by `closed_to` are closed.
    """

    txid: int
    key: str
    first: int
    end: int
    closed_to: int

    @property
    def gap(self) -> int:
        """How long after the last record a session is closed."""
        return self.closed_to - self.end
