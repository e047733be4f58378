"""How long closed windows stay in a state, as a job says it, and which may leave now (R30).

A window leaves where nothing counts in it ever again: all batches up to the horizon are folded and it was closed as of then (R22,
R26); each plan above it, also one that is counted again, leaves its records out as late (R25); and so will each that comes.

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

# As many rows leave by one transaction, and all others of the last window.
STEP_ROWS = 10_000


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
class WindowFacts:
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
    """What lets windows leave states. `postgres.corrections.window_retention` is the real one, its twin is in tests/twin/."""

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


def decided(state: str, kept: KeptWindows, left: Left | None, known: WindowFacts) -> Leaving:
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
