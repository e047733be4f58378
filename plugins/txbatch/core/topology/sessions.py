"""Sessions of a state, joined from pieces, in Python. `postgres.schema.sessions` does the same in SQL (R27)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from txbatch.core.aggregates.aggregator import CombinerAggregator, Max
from txbatch.core.aggregates.merge import Partial
from txbatch.core.aggregates.merger import Merger
from txbatch.core.errors import NameTaken, OutOfPlace
from txbatch.core.naming import naming

if TYPE_CHECKING:
    from txbatch.core.state.state import State
    from txbatch.core.topology.persistent_aggregate import PersistentAggregate
    from txbatch.core.windows.session_window import SessionWindow

Key = tuple[Any, ...]


def with_last(
    state: State, sessions: SessionWindow | None, aggregates: Mapping[str, CombinerAggregator]
) -> dict[str, CombinerAggregator]:
    """Return the values of a state by sessions: the time of a session's last record, then the given values.

    DefinitionError for a value with the same name, and for a value that Python of the job merges.
    """
    if sessions is None:
        return {**aggregates}
    end, of = sessions.end_name, f"state {state.name!r}"
    if end in aggregates:
        raise NameTaken(f"{of}: {end!r} is when the last record of a session was; give the value another name")
    for name, aggregator in aggregates.items():
        if getattr(aggregator, "partial", None) is not None:
            raise OutOfPlace(
                f"{of}: {name} is {type(aggregator).__name__}, which Python combines, and PostgreSQL brings sessions together; "
                "give an aggregator such as Count(), or count by window"
            )
    return {end: Max(sessions.time), **aggregates}


def join_pieces(
    aggregate: PersistentAggregate, rows: Mapping[Key, tuple[Partial, int]]
) -> dict[Key, tuple[Partial, int]]:
    """Return partial and txid of each session, joined from pieces by key. Without sessions, return the rows by key unchanged."""
    sessions = aggregate.sessions
    if sessions is None:
        return dict(rows)
    found: dict[Key, dict[Key, tuple[Partial, int]]] = {}
    for key, row in rows.items():
        found.setdefault(key[:-1], {})[key] = row
    return {key: row for pieces in found.values() for key, row in _joined(aggregate, sessions, pieces)}


def _joined(
    aggregate: PersistentAggregate, sessions: SessionWindow, pieces: Mapping[Key, tuple[Partial, int]]
) -> Iterator[tuple[Key, tuple[Partial, int]]]:
    """Yield the sessions of pieces that are equal in all other keys."""
    combine = Merger(aggregate.merges)
    for session in sessions.together(pieces, of=lambda key: (key[-1], pieces[key][0][0])):
        partials, txids = zip(*(pieces[key] for key in session), strict=True)
        with naming(f"state {aggregate.state.name!r}, session {session[0]}"):
            whole = combine.whole(partials)
        yield session[0], (whole, max(txids))
