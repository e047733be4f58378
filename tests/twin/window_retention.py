"""Windows leave states in memory (R30).

Compare `postgres.corrections.window_retention`: `core.corrections.window_retention` decides for both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from twin.asked import rebuilding
from txbatch import failpoints
from txbatch.core.batch.transaction import BatchStatus
from txbatch.core.corrections.window_retention import Leaving, WindowFacts, decided
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.topology.kept_windows import KeptWindows, Left
from txbatch.core.upstream.ranges import ALL
from txbatch.core.upstream.upstream import STATE_SPOUT
from txbatch.core.windows.session_window import SessionWindow
from txbatch.memory import event_time
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.stored import StoredState
from txbatch.memory.tables import Tables
from txbatch.memory.upstream import readers

Key = tuple[Any, ...]
# By the start of a window, or the last time of a session, the keys of its rows.
Ended = list[tuple[int, list[Key]]]


class MemoryWindows:
    """`core.corrections.window_retention.Windows` on a ledger in memory.

    Each state's windows leave by one of its transactions.
    """

    def __init__(self, ledger: MemoryLedger) -> None:
        self.ledger = ledger

    def leaving(self, topology: str, horizon: int | None = None) -> list[Leaving]:
        """Return how the windows of each state that keeps them for a time stand, as if all up to a `horizon` was folded."""
        self.ledger.tables.check_known(topology)
        return _leaving(self.ledger.tables, topology, horizon)

    def outlook(self, topology: str, leaving: Leaving) -> Left | None:
        """Return what would leave now; None: nothing. Changes nothing."""
        return _let_go(self.ledger.tables.copy(), topology, leaving) if leaving.some else None

    def leave(self, topology: str) -> Iterator[tuple[str, Left]]:
        """Let go of what may leave, and yield each step with its state as it is committed."""
        for state in [each.state for each in self.leaving(topology) if each.some]:
            with self.ledger.transaction() as tables:
                done = [
                    _let_go(tables, topology, each)
                    for each in _leaving(tables, topology)
                    if each.state == state and each.some
                ]
                failpoints.hit("gc.windows_left")
            yield from ((state, each) for each in done if each.windows)


def _leaving(tables: Tables, topology: str, horizon: int | None = None) -> list[Leaving]:
    policies = tables.topologies[topology].windows
    kept = {state: each for state, each in policies.items() if tables.states[state].definition.contributions}
    return [
        decided(state, each, stored.left, _known(tables, topology, state, each, max(stored.horizon, horizon or 0)))
        for state, each in kept.items()
        for stored in [tables.states[state]]
    ]


def _known(tables: Tables, topology: str, state: str, kept: KeptWindows, horizon: int) -> WindowFacts:
    running = rebuilding(tables, topology)
    above = [each for each in tables.batches_of(topology) if each.position > horizon]
    plans = [each.plan for each in above if each.status is not BatchStatus.ABORTED]
    next_one = kept.watermark_of(event_time.marks(tables, topology))
    return WindowFacts(
        horizon,
        _closed_then(tables, topology, horizon).get(state),
        event_time.closed_to(tables, topology).get(state),
        [next_one, *(kept.watermark_of(kept.plan_marks(each)) for each in plans)],
        [*_open_readers(tables, topology, state), *_behind(tables, topology, state)],
        None if running is None else running.rebuild.number,
    )


def _closed_then(tables: Tables, topology: str, txid: int) -> Mapping[str, int]:
    written = {
        at: of.closed_to for (name, at), of in tables.times.items() if name == topology and at <= txid and of.closed_to
    }
    return written[max(written)] if written else {}


def _swapped(tables: Tables, topology: str) -> int:
    swapped = (each.swapped or 0 for each in tables.rebuilds.values() if each.rebuild.topology == topology)
    return max(swapped, default=0)


def _open_readers(tables: Tables, topology: str, state: str) -> Iterator[tuple[str, int]]:
    """Yield the open batches that read all of a state, or look up in it."""
    swapped = _swapped(tables, topology)
    for batch in tables.batches.values():
        if batch.status.final:
            continue
        source = tables.topologies[batch.topology].source
        ranges = [
            planned.ranges[state]
            for stream, planned in batch.plan.streams.items()
            if source.get(stream, {}).get("spout") == STATE_SPOUT and state in planned.ranges
        ]
        if state in batch.plan.as_of or any(_reads_all(each, swapped) for each in ranges):
            yield batch.topology, batch.txid


def _reads_all(range_: Mapping[str, Any], swapped: int) -> bool:
    return range_["start"] <= swapped or range_.get("windows") == ALL


def _behind(tables: Tables, topology: str, state: str) -> Iterator[tuple[str, None]]:
    """Yield the topologies that have not read a state since it was rebuilt."""
    swapped = _swapped(tables, topology)
    for each in readers(tables):
        if each.state == state and any(0 < txid <= swapped for txid in each.needs):
            yield each.topology, None


def _let_go(tables: Tables, topology: str, leaving: Leaving) -> Left:
    """Take what leaves away, and return what that is."""
    state, before, stored = leaving.state, leaving.before or 0, tables.states[leaving.state]
    gone = [keys for time, keys in _ended(stored, leaving.kept) if time < before]
    keys = {key for each in gone for key in each}
    records = _records(stored, leaving.kept, keys)
    newest = max((each.txid for each in tables.batches_of(topology) if each.status is BatchStatus.COMMITTED), default=0)
    done = Left(leaving.kept, before, newest, len(gone), records)
    rows = {key: row for key, row in stored.rows.items() if key not in keys}
    base = {key: row for key, row in stored.base.items() if key not in keys}
    if gone:
        tables.states[state] = replace(stored, rows=rows, base=base, left=_all(stored.left, done))
    return done


def _all(before: Left | None, now: Left) -> Left:
    """Return what has left in all."""
    if before is None:
        return now
    records = None if before.records is None or now.records is None else before.records + now.records
    return replace(now, windows=before.windows + now.windows, records=records)


def _ended(stored: StoredState, kept: KeptWindows) -> Ended:
    """Return the rows of each window, or of each session."""
    if not isinstance(kept.window, SessionWindow):
        at = [name for name, _ in stored.definition.columns["keys"]].index(kept.by)
        return [(micros_of(key[at]), [key]) for key in stored.rows]
    found: Ended = []
    for pieces in _by_other_keys(stored.rows).values():
        for session in kept.window.together(pieces, of=lambda key: (key[-1], _last(stored, key))):
            found.append((max(micros_of(_last(stored, key)) for key in session), session))
    return found


def _last(stored: StoredState, key: Key) -> Any:
    value = stored.rows[key].value
    return None if value is None else value[0]


def _by_other_keys(keys: Collection[Key]) -> dict[Key, list[Key]]:
    found: dict[Key, list[Key]] = {}
    for key in keys:
        found.setdefault(key[:-1], []).append(key)
    return found


def _records(stored: StoredState, kept: KeptWindows, keys: Collection[Key]) -> int | None:
    if kept.records is None:
        return None
    at = [name for name, *_ in stored.definition.columns["values"]].index(kept.records)
    return sum((stored.rows[key].value or {at: 0})[at] or 0 for key in keys)
