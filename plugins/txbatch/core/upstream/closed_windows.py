"""Closed windows of a state as the source of another topology: each window once, as reported when closed (R26).

A range has the cuts after the last range up to the newest cut, with the windows closed by the cuts' batches. The first range
also has the windows closed earlier, all as of the oldest cut from which on everything asked for is kept.

>>> known = UpstreamState("hours", "visits", ("2026-11-23", 1), 9, 4)
>>> [cut_of(known, {"start": 4, "end": 9}, txid) for txid in (2, 4, 7)]
[4, 4, 7]
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from txbatch.core.batch.transaction import Metadata
from txbatch.core.definition.value_columns import columns_by_value
from txbatch.core.errors import CannotAsk, RecordsGone
from txbatch.core.upstream.ranges import (
    ALL,
    ANEW,
    NEW,
    Closing,
    Replaced,
    UpstreamState,
    check_kept,
    check_newest,
    defined_by,
    marked_gone,
    next_range,
    replaced_with,
)


def check_closes(known: UpstreamState) -> None:
    """Raise TerminalError if no window of a state closes."""
    if not known.closed:
        raise CannotAsk(
            f"state {known.state!r} has no windows that close: they are those of a stream with a watermark; group it by "
            "window(...) or session_window(...) after with_watermark(...) or with_processing_time(), or read what changes in it, "
            "emit='changes'"
        )


def next_closed(known: UpstreamState, last: Metadata | None, asked: Collection[str] = ()) -> dict[str, Any] | None:
    """Return the range from the last cut to the newest cut; None if both are the same. `asked` are the columns to read.

    Raise RecordsGone if a cut of the range is not kept.
    """
    if last is not None:
        found = next_range(known, last)
        if found:
            found |= {"windows": NEW, "touching": True}
            if (since := asked_next(last)) < found["start"]:
                found["since"] = since
            check_kept(known, found)
        return found
    check_newest(known)
    start = oldest(known, asked)
    if known.txid <= start:
        return None
    found = {"start": start, "end": known.txid, "of": list(known.made), "windows": ALL, "touching": True, "over": True}
    return marked_gone(known, found)


def asks_touching(range_: Metadata) -> bool:
    """True if a range leaves out each session that touches a session closed before, even with a rebuild in between.

    False for a range from an earlier version: every reading gives the same records as the first attempt.
    """
    return bool(range_.get("touching"))


def asked_before(known: UpstreamState, range_: Metadata, cut: int) -> list[Replaced]:
    """Return the generations to be asked for sessions closed before a range: replaced ones, before the cut's generation."""
    since = asked_since(range_)
    return [each for each in known.replaced if asks_touching(range_) and since <= each.last < cut]


def oldest(known: UpstreamState, asked: Collection[str] = ()) -> int:
    """Return the oldest cut from which on a state has all columns asked for, by the present keys and definitions.

    The result is 0 if nothing was folded or dropped.

    >>> from txbatch.core.upstream.ranges import Replaced
    >>> oldest(UpstreamState("hours", "visits", ("2026-11-23", 1), 9, 4))
    4
    >>> oldest(UpstreamState("hours", "visits", ("2026-11-23", 1), 9, 4, (Replaced(1, 6, 2),)))
    2
    >>> oldest(UpstreamState("hours", "visits", ("2026-11-23", 1), 9, 4, (Replaced(1, 3, 2), Replaced(2, 6, 2, gone=True))))
    7
    """
    found = known.horizon
    for each in reversed(known.replaced):
        if found > each.last + 1:
            break
        ends = each.gone or lacking(known, each, asked) or _redefined(known, each, asked)
        found = each.last + 1 if ends else each.horizon or 0
        if ends:
            break
    return found


def closed_columns(known: UpstreamState, replaced: Replaced | None) -> list[str]:
    """Return the columns of a state's closed windows that a generation has, too."""
    now, then = known.defined, defined_by(known, replaced) or known.defined
    there, here = ({*_keys(each), *each["aggregates"]} for each in (then, now))
    return [name for name in known.closed if name in there or name not in here]


def lacking(known: UpstreamState, replaced: Replaced | None, asked: Iterable[str]) -> str:
    """Return in words which asked columns the closed windows of a generation lack, or "other keys"; empty if none."""
    then = defined_by(known, replaced)
    if then is None:
        return ""
    if _keys(then) != _keys(known.defined):
        return "other keys"
    there = closed_columns(known, replaced)
    return ", ".join(f"no {name!r}" for name in asked if name not in there)


def _redefined(known: UpstreamState, replaced: Replaced, asked: Iterable[str]) -> bool:
    """True if an asked column was another aggregate, or of another type, in a generation than now."""
    then = defined_by(known, replaced)
    return then is not None and any(_value(then, name) != _value(known.defined, name) for name in asked)


def _value(defined: Metadata, name: str) -> tuple[str | None, list[Any]]:
    """Return the aggregate of a value, and the stored columns of the value; for any other column, nothing."""
    aggregates = defined["aggregates"]
    return aggregates.get(name), columns_by_value(defined["values"], aggregates).get(name, [])


def check_told(known: UpstreamState, range_: Metadata, closings: Iterable[Closing], asked: Collection[str]) -> None:
    """Raise RecordsGone if windows closed before a rebuild lack an asked column, and cannot be handed on."""
    for closing, cut in closings_of_range(known, range_, list(closings)):
        replaced = replaced_with(known, cut)
        if replaced and (lacks := lacking(known, replaced, asked)):
            raise RecordsGone(
                f"state {known.state!r} had {lacks} before rebuild {replaced.rebuild}, and so the windows that txid "
                f"{closing.txid} closed cannot be handed on; {ANEW}"
            )


def _keys(defined: Metadata) -> list[str]:
    return [name for name, _ in defined["keys"]]


def first_closed(range_: Metadata) -> int:
    """Return the txid after which batches closed the windows of a range."""
    return 0 if range_["windows"] == ALL else int(range_["start"])


def asked_since(range_: Metadata) -> int:
    """Return the cut from which on a range asks for sessions closed before: the beginning of the range, or an earlier cut.

    The cut is earlier if a part of a session was closed then, and the session was open at the beginning of the range.
    """
    return int(range_.get("since", range_["start"]))


def asked_next(range_: Metadata) -> int:
    """Return the cut from which on the next range asks for sessions closed before."""
    return int(range_.get("next_since", range_["end"]))


def closings_of_range(known: UpstreamState, range_: Metadata, closings: Sequence[Closing]) -> list[tuple[Closing, int]]:
    """Return the closings in a range, each with the cut as of which the closed windows are read."""
    of_range = (each for each in closings if first_closed(range_) < each.txid <= range_["end"])
    cuts = ((each, cut_of(known, range_, each.txid)) for each in of_range)
    return [(each, cut) for each, cut in cuts if cut is not None]


def cut_of(known: UpstreamState, range_: Metadata, txid: int) -> int | None:
    """Return as of which cut to read the windows closed by a txid; None if nothing from then is kept.

    If the txid came before the range, the cut is the beginning of the range, else the txid. Over a rebuild, the windows must
    be the same. If the windows differ, the result is None if the past was dropped; if not dropped, raise RecordsGone. A range
    from an earlier version, without `over`, has the windows of one generation alone.
    """
    if txid > range_["start"]:
        return txid
    start: int = range_["start"]
    then, now = replaced_with(known, txid), replaced_with(known, start)
    if then is None or then == now:
        return start
    if not range_.get("over"):
        return None
    if _windows(defined_by(known, then)) == _windows(defined_by(known, now)):
        return start
    if then.gone:
        return None
    raise RecordsGone(
        f"state {known.state!r} has other windows since rebuild {then.rebuild}, and those that txid {txid} closed cannot be "
        f"handed on: all that is read of the state is there from txid {start} on. `txbatch rebuild {known.topology} --drop-past` "
        "gives them up; then a new reader begins with what was closed since"
    )


def _windows(defined: Metadata | None) -> list[Any]:
    return [] if defined is None else [defined.get("windows"), defined.get("sessions")]
