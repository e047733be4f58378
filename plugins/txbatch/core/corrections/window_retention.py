"""How long closed windows stay in a state by the job's definition, and which windows may leave now (R30).

A window leaves if nothing can count in the window again. All batches up to the horizon are folded, and the window was closed
as of the horizon (R22, R26). Plans above the horizon, even if counted again, and all later plans leave the window's records
out as late (R25).

>>> leaves_by(10, closed_then=80, closed_now=95, marks=[90, 99])
80
>>> leaves_by(30, closed_then=80, closed_now=95, marks=[90, 99]), leaves_by(10, closed_then=80, closed_now=95, marks=[90, None])
(65, None)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from txbatch.core.topology.kept_windows import KeptWindows, Left

# How many rows leave by one transaction, besides all further rows of the last window.
STEP_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Leaving:
    """The windows of a state: which have `left`, `before` which time windows may leave now, and what further windows wait for."""

    state: str
    kept: KeptWindows
    left: Left | None = None
    before: int | None = None
    waits_for: str | None = None

    @property
    def since(self) -> int | None:
        """The time before which all windows have left; None if none has."""
        return None if self.left is None else self.left.before

    @property
    def some(self) -> bool:
        """True if windows, if any, may leave now."""
        return self.before is not None and (self.since is None or self.since < self.before)


@dataclass(frozen=True, slots=True)
class WindowFacts:
    """A ledger's facts about a state, from which `decided` finds the windows that may leave.

    `closed_then` is up to when windows were closed as of the `horizon`, `closed_now` since the last commit. `marks` are the
    watermarks of all plans above the horizon, without aborted ones, and of the next plan. `readers` are the open batches that
    read all of the state, by topology and txid. With None for the txid, a topology has not read the state since a rebuild.
    `rebuild` is the number of a running rebuild.
    """

    horizon: int
    closed_then: int | None
    closed_now: int | None
    marks: Collection[int | None] = ()
    readers: Collection[tuple[str, int | None]] = ()
    rebuild: int | None = None


class Windows(Protocol):
    """The port that lets windows leave states: `postgres.corrections.window_retention`, with a twin in tests/twin/."""

    def leaving(self, topology: str, horizon: int | None = None) -> list[Leaving]:
        """Return the windows of each state with a time for keeping them, as if all batches up to `horizon` were folded."""

    def outlook(self, topology: str, leaving: Leaving) -> Left | None:
        """Return which windows would leave now; None if none would. Change nothing."""

    def leave(self, topology: str) -> Iterator[tuple[str, Left]]:
        """Remove the windows that may leave, and yield each step with the state at the commit."""


def leaves_by(keep: int, closed_then: int | None, closed_now: int | None, marks: Iterable[int | None]) -> int | None:
    """Return the time by which windows must have ended in order to leave; None if none may."""
    found = [closed_then, None if closed_now is None else closed_now - keep, *marks]
    known = [each for each in found if each is not None]
    return min(known) if len(known) == len(found) else None


def decided(state: str, kept: KeptWindows, left: Left | None, known: WindowFacts) -> Leaving:
    """Return which windows of a state may leave now, and what keeps back windows that are old enough."""
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
