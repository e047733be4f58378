"""States as sources of other topologies, in memory. Compare `postgres.upstream.upstream`: equal decisions, on dictionaries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from txbatch.core.aggregates.merge import Partial
from txbatch.core.aggregates.merger import Merger
from txbatch.core.batch.transaction import BatchKind, BatchStatus, Metadata
from txbatch.core.records.fields import free_name
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.state.append import BATCH
from txbatch.core.state.fold import Contribution, fold, last_changed
from txbatch.core.state.new_values import changed
from txbatch.core.state.pruned import has_gone
from txbatch.core.state.state import changes_columns
from txbatch.core.topology.kept_windows import may_count_in
from txbatch.core.topology.persistent_aggregate import finished
from txbatch.core.topology.sessions import join_pieces
from txbatch.core.upstream.closed_windows import (
    asked_before,
    asked_next,
    asked_since,
    closed_columns,
    closings_of_range,
)
from txbatch.core.upstream.ranges import (
    CLOSED_BY,
    Closing,
    Replaced,
    UpstreamState,
    check_gone,
    check_kept,
    check_same,
    left_between,
    pruned_between,
    replaced_with,
    within_generation,
)
from txbatch.core.upstream.upstream import (
    FINAL,
    STATE_SPOUT,
    UpstreamReader,
    check_asked,
    check_dated,
    check_keys,
    check_merged,
    unknown_state,
)
from txbatch.memory.closed_sessions import closed_since

if TYPE_CHECKING:
    from txbatch.core.definition.job_rules import Jobs
    from txbatch.core.topology.persistent_aggregate import PersistentAggregate
    from txbatch.memory.stored import StoredState
    from txbatch.memory.tables import Tables


class Ledger(Protocol):
    """The part of the ledger in memory needed here; `memory.ledger` implements the protocol."""

    uuid: str
    jobs: Jobs

    def transaction(self) -> AbstractContextManager[Tables]:
        """Context manager. Yield the tables under the lock."""


@dataclass(frozen=True, slots=True)
class MemoryUpstream:
    """`core.upstream.upstream.Upstream` on a ledger in memory."""

    ledger: Ledger

    def known(self, state: str) -> UpstreamState:
        """Return how far a state is. Raise UnknownName if the state is missing, TerminalError if the state's past is not
        kept.
        """
        with self.ledger.transaction() as tables:
            return self._known(tables, state)

    def facts(self, states: Collection[str]) -> Mapping[str, UpstreamState]:
        """Return how far several states are, at one moment; missing states are left out. Raise as `known` does."""
        with self.ledger.transaction() as tables:
            return {state: self._known(tables, state) for state in states if state in tables.states}

    def _known(self, tables: Tables, state: str) -> UpstreamState:
        found = known(tables, state, self.ledger.uuid)
        check_merged(state, found.topology, found.defined, self.ledger.jobs)
        return found

    def readers(self) -> Sequence[UpstreamReader]:
        """Return all streams from states."""
        with self.ledger.transaction() as tables:
            return readers(tables)

    def changes(self, state: str, range_: Metadata, columns: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        """Return the columns of changes in a range of cuts, a row per key. Raise RecordsGone for a cut no longer kept."""
        with self.ledger.transaction() as tables:
            found = known(tables, state, self.ledger.uuid)
            check_same(found, range_)
            check_kept(found, range_)
            check_gone(found, range_)
            check_asked(state, columns, _changes_columns(tables, found, range_))
            changed = _changed(tables, found, range_)
            return [tuple(row[name] for name in columns) for row in changed]

    def closings(self, state: str, range_: Metadata) -> Sequence[Closing]:
        """Return the batches of a range that closed windows of a state, by txid."""
        with self.ledger.transaction() as tables:
            found = known(tables, state, self.ledger.uuid)
            return [closing for closing, _ in closings_of_range(found, range_, _closings(tables, found))]

    def closed(self, state: str, range_: Metadata, columns: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        """Return columns of the windows closed in a range of cuts, as of the closing."""
        with self.ledger.transaction() as tables:
            found = known(tables, state, self.ledger.uuid)
            check_same(found, range_)
            check_kept(found, range_)
            check_gone(found, range_)
            check_asked(state, columns, found.closed)
            return [tuple(row[name] for name in columns) for row in _closed(tables, found, range_, columns)]

    def reopened(self, state: str, range_: Metadata) -> int | None:
        """Return the first cut with something closed in a session still open at the range's end; None if there is none."""
        with self.ledger.transaction() as tables:
            return _reopened(tables, known(tables, state, self.ledger.uuid), range_)

    def rows(self, state: str, txid: int, columns: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        """Return columns of a state as of a cut, a row per key."""
        with self.ledger.transaction() as tables:
            stored, found = _generation(tables, known(tables, state, self.ledger.uuid), txid)
            keys = _shown(stored)[0] if stored else ()
            named = [
                {**dict(zip(keys, key, strict=True)), **values, "txid": changed}
                for key, (values, changed) in found.items()
                if values is not None
            ]
            return [tuple(row[name] for name in columns) for row in named]

    def positions(self, state: str, after: int) -> Sequence[tuple[int, int]]:
        """Return the positions counted, or counted again, after a txid, each with the last counting txid; sorted by txid."""
        with self.ledger.transaction() as tables:
            found = {
                each.position: each.txid
                for each in sorted(tables.batches_of(tables.states[state].topology), key=lambda each: each.txid)
                if each.status is BatchStatus.COMMITTED and each.kind is not BatchKind.SKIP and each.txid > after
            }
            return sorted(found.items(), key=lambda each: each[1])

    def counted_in_left(self, state: str, range_: Metadata) -> int | None:
        """Return the first txid of a range that may have counted in windows brought back by a rebuild; None if there is none."""
        with self.ledger.transaction() as tables:
            replaced = replaced_with(known(tables, state, self.ledger.uuid), range_["start"])
            left = replaced and tables.rebuilds[replaced.rebuild].past[state].left
            since = (
                each
                for each in tables.batches_of(tables.states[state].topology)
                if replaced and replaced.last < each.txid <= range_["end"]
                if each.status is BatchStatus.COMMITTED and each.kind is not BatchKind.SKIP
            )
            return next((each.txid for each in since if left and may_count_in(each.plan, left)), None)

    def records(self, state: str, position: int, columns: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        """Return columns of the records kept by a state for a position, as of now."""
        with self.ledger.transaction() as tables:
            stored = tables.states[state]
            at = [_shown(stored)[1].index(name) for name in columns]
            kept = sorted((key, row.value) for key, row in stored.rows.items() if key[0] == position and row.value)
            return [tuple(value[n] for n in at) for _, value in kept]


def known(tables: Tables, state: str, made: str) -> UpstreamState:
    """Return how far a state is. Raise UnknownName if the state is missing, TerminalError if the state's past is not kept."""
    stored = tables.states.get(state)
    if stored is None:
        raise unknown_state(state)
    check_dated(state, stored.database, contributions=stored.definition.contributions)
    replaced = []
    for number, each in tables.rebuilds.items():
        if each.rebuild.topology == stored.topology and each.swapped is not None:
            past = each.past.get(state)
            gone = each.dropped or (past is not None and not past.definition.contributions)
            horizon = None if past is None else past.horizon
            left, pruned = (None, ()) if past is None else (_left(past), past.pruned)
            defined = None if past is None else past.definition.columns
            replaced.append(Replaced(number, each.swapped, horizon, gone, left, pruned, defined))
    replaced.sort(key=lambda each: (each.last, each.rebuild))
    columns = changes_columns(*_shown(stored))
    return UpstreamState(
        state,
        stored.topology,
        (made, stored.definition.joined),
        tables.newest_cut(stored.topology),
        stored.horizon,
        tuple(replaced),
        tuple(columns),
        _columns_of_closed(stored),
        _left(stored),
        stored.pruned if stored.pruned or "prune" in stored.definition.columns else None,
        stored.definition.columns,
    )


def _left(stored: StoredState) -> tuple[str, int] | None:
    return None if stored.left is None else (stored.left.kept.by, stored.left.before)


def readers(tables: Tables) -> list[UpstreamReader]:
    """Return all streams from states, with the cuts each stream needs."""
    found = []
    for topology, stored in tables.topologies.items():
        for stream, identity in stored.source.items():
            if identity.get("spout") != STATE_SPOUT:
                continue
            state = identity["state"]
            owner = tables.states[state].topology if state in tables.states else None
            needs = frozenset(_needs(tables, topology, stream))
            opened = frozenset(range_["start"] for range_ in _open_ranges(tables, topology, stream))
            found.append(UpstreamReader(topology, state, owner, needs, identity.get("emit") == FINAL, opened))
    return found


def _needs(tables: Tables, topology: str, stream: str) -> Iterator[int]:
    """Yield the place of a stream, and the ranges of the stream's open batches."""
    yield from (asked_next(range_) for range_ in tables.offsets(topology).get(stream, {}).values())
    for range_ in _open_ranges(tables, topology, stream):
        yield from (asked_since(range_), asked_next(range_), range_["start"], range_["end"])


def _open_ranges(tables: Tables, topology: str, stream: str) -> Iterator[Metadata]:
    """Yield the ranges open batches read of a stream."""
    for batch in tables.batches_of(topology):
        if not batch.status.final and stream in batch.plan.streams:
            yield from batch.plan.streams[stream].ranges.values()


def _shown(stored: StoredState) -> tuple[list[str], list[str]]:
    columns = stored.definition.columns
    return [name for name, _ in columns["keys"]], [*columns["aggregates"]]


def _changed(tables: Tables, of: UpstreamState, range_: Metadata) -> Iterator[dict[str, Any]]:
    """Yield the changes between the two cuts of a range, each cut taken from the cut's generation."""
    start, end = range_["start"], range_["end"]
    (earlier, old), (later, new) = (_generation(tables, of, txid) for txid in (start, end))
    keys, values = _shown(later or tables.states[of.state])
    if earlier and later:
        check_keys(of.state, keys, _shown(earlier)[0])
    names, told = changes_columns(keys, values), within_generation(of, start, end)
    left, pruned = left_between(of, start, end), pruned_between(of, range_)
    for key in {**old, **new}:
        was, _ = old.get(key, (None, None))
        now, txid = new.get(key, (None, None))
        shown = {**dict(zip(keys, key, strict=True)), **(was or {}), **(now or {})}
        if any(by in shown and micros_of(shown[by]) < before for by, before in left):
            continue
        if pruned and has_gone(pruned, shown[BATCH.name]):
            continue
        before, after = (None if each is None else [each.get(value) for value in values] for each in (was, now))
        row = changed(key, before, after, txid if txid and (now or told) else end)
        if row is not None:
            yield dict(zip(names, row, strict=True))


def _changes_columns(tables: Tables, of: UpstreamState, range_: Metadata) -> list[str]:
    later = _stored(tables, of, range_["end"]) if range_["end"] else None
    return changes_columns(*_shown(later or tables.states[of.state]))


def _closings(tables: Tables, of: UpstreamState) -> list[Closing]:
    """Return all batches that closed windows of a state, by txid."""
    found = (
        Closing(txid, *times.closed[of.state], (times.closed_to or {})[of.state])
        for (topology, txid), times in tables.times.items()
        if topology == of.topology and of.state in times.closed
    )
    return sorted(found, key=lambda each: each.txid)


def _closed(tables: Tables, of: UpstreamState, range_: Metadata, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the windows closed in a range, each as of the cut after the closing. Raise SchemaMismatch for an unknown column."""
    for closing, cut in closings_of_range(of, range_, _closings(tables, of)):
        stored, found = _generation(tables, of, cut)
        if stored is None:
            continue
        check_asked(of.state, columns, closed_columns(of, replaced_with(of, cut)))
        keys, aggregate = _shown(stored)[0], cast("PersistentAggregate", stored.aggregate)
        for key, (values, txid) in found.items():
            if values is None:
                continue
            named = dict(zip(keys, key, strict=True))
            if aggregate.window is not None:
                named |= aggregate.window.derived(named[aggregate.window.name])
            shown = {**named, **values, "txid": txid, of.closed[-1]: closing.txid}
            if not closing.first <= micros_of(shown[closing.key]) < closing.end:
                continue
            session = key, shown[closing.key]
            if aggregate.sessions is None or (
                closed_since(tables, of.state, stored, closing.gap, cut, range_, session, asked_before(of, range_, cut))
                is None
            ):
                yield shown


def _reopened(tables: Tables, of: UpstreamState, range_: Metadata) -> int | None:
    """Return the first cut, from a range's start, with something closed in a session still open at the range's end."""
    (*_, (closing, _)), end = closings_of_range(of, range_, _closings(tables, of)), range_["end"]
    stored, found = _generation(tables, of, end)
    if stored is None or cast("PersistentAggregate", stored.aggregate).sessions is None:
        return None
    ends = ((key, values[closing.key]) for key, (values, _) in found.items() if values is not None)
    closed = (
        closed_since(tables, of.state, stored, closing.gap, end, range_, session, asked_before(of, range_, end))
        for session in ends
        if micros_of(session[1]) >= closing.end
    )
    return min((each for each in closed if each is not None), default=None)


def _columns_of_closed(stored: StoredState) -> tuple[str, ...]:
    """Return the columns of a state's closed windows; none if no window closes."""
    aggregate = cast("PersistentAggregate", stored.aggregate)
    if aggregate.window is None or not aggregate.closes:
        return ()
    keys, values = _shown(stored)
    shown = [*keys, *aggregate.window.derived_said, *values, "txid"]
    return (*shown, free_name(CLOSED_BY, shown))


def _generation(
    tables: Tables, of: UpstreamState, txid: int
) -> tuple[StoredState | None, dict[Any, tuple[dict[str, Any] | None, int]]]:
    """Return the state that has a cut, and, by key, the values shown at the cut, None for a missing key, and the txid."""
    stored = _stored(tables, of, txid) if txid else None
    return (None, {}) if stored is None else (stored, dict(_as_of(tables, stored, txid)))


def _stored(tables: Tables, of: UpstreamState, txid: int) -> StoredState | None:
    """Return the state in a cut's generation; None if the generation did not have the state."""
    replaced = replaced_with(of, txid)
    return (tables.states if replaced is None else tables.rebuilds[replaced.rebuild].past).get(of.state)


def _as_of(tables: Tables, stored: StoredState, txid: int) -> Iterator[tuple[Any, tuple[dict[str, Any] | None, int]]]:
    aggregate = cast("PersistentAggregate", stored.aggregate)
    found: dict[Any, list[Contribution]] = {key: [] for key in stored.base}
    for (key, position, at), partial in stored.contributions.items():
        if at <= txid:
            replaced_by = tables.batches[stored.topology, at].replaced_by
            found.setdefault(key, []).append(Contribution(position, at, aggregate.change(partial), replaced_by))
    combine = Merger(aggregate.merges)
    folded = dict[Any, tuple[Partial | None, int]]()
    for key, each in found.items():
        based = stored.base[key].txid if key in stored.base else 0
        folded[key] = fold(stored.based(key), each, combine, txid), max(based, last_changed(each, txid) or 0)
    if aggregate.sessions:
        pieces = {key: (value, at) for key, (value, at) in folded.items() if value is not None}
        folded = {**join_pieces(aggregate, pieces)}
    for key, (value, at) in folded.items():
        shown = finished(aggregate, value)
        yield key, (None if shown is None else dict(zip(aggregate.aggregates, shown, strict=True)), at)
