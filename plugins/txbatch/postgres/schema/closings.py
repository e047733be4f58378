"""The function for closed windows or sessions of a state: `report.closed_<state>` (R26)."""

from __future__ import annotations

from collections.abc import Mapping

from txbatch.core.records.fields import free_name
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.upstream.ranges import CLOSED_BY
from txbatch.core.windows.session_window import SessionWindow
from txbatch.core.windows.timed import Timed
from txbatch.postgres.database.expressions import listed, pg_name, pg_text
from txbatch.postgres.database.functions import Function
from txbatch.postgres.schema.versions import Versions


def closings(aggregate: PersistentAggregate, window: Timed, types: Mapping[str, str]) -> Function:
    """Return the function for the windows closed by batches after a txid, up to another txid.

    `types` are the PostgreSQL types of the report's columns.
    """
    state, key, end = aggregate.state.name, pg_name(window.closes_by), pg_name(window.end_name)
    returns = {**types, free_name(CLOSED_BY, types): "bigint"}
    takes = {free_name(name, returns): "bigint" for name in ("from_txid", "to_txid")}
    of_state = f"k.topology = {pg_text(aggregate.topology)} AND k.state = {pg_text(state)}"
    between = "k.txid > LEAST($1, $2) AND k.txid <= GREATEST($1, $2)"
    # By the key they are found in the index; the end says that it is these, whatever windows were before a rebuild.
    theirs = f"r.{key} >= k.first_start AND r.{key} < k.before_start AND r.{end} <= k.closed_to"
    selected = listed([*(f"r.{pg_name(name)}" for name in types), "k.txid"])
    body = f"SELECT {selected} FROM report.closings k JOIN report.{pg_name(state)} r ON {theirs} WHERE {of_state} AND {between}"
    said = (
        f"The windows of state {state!r} that batches after a txid, up to another, have closed, with their values as "
        f"report.{state} has them, and which batch it was"
    )
    return Function(closings_name(state), takes, returns, body, said)


def closings_name(state: str) -> str:
    """Return the name of a state's function."""
    return f"closed_{state}"


def closed_sessions(aggregate: PersistentAggregate, sessions: SessionWindow, types: Mapping[str, str]) -> Function:
    """Return the function for closed sessions: the keys of closed sessions are found by the last times of pieces (R27)."""
    state, end = aggregate.state.name, pg_name(sessions.closes_by)
    returns = {**types, free_name(CLOSED_BY, types): "bigint"}
    takes = {free_name(name, returns): "bigint" for name in ("from_txid", "to_txid")}
    of_batches = (
        "SELECT k.txid, k.first_start, k.before_start, k.closed_to FROM report.closings k WHERE k.topology = "
        f"{pg_text(aggregate.topology)} AND k.state = {pg_text(state)} AND k.window_key = {pg_text(sessions.closes_by)} "
        "AND k.txid > LEAST($1, $2) AND k.txid <= GREATEST($1, $2)"
    )
    read, others = f"report.{pg_name(state)} r", Versions(aggregate).keys[:-1]
    if others and aggregate.state.contributions:
        pieces = f"({of_batches}) k JOIN {Versions(aggregate).view} p ON {_within(f'p.{end}')}"
        same = " AND ".join(f"a.{name} = e.{name}" for name in others)
        # OFFSET 0: each key by a search of its own, for which the planner must not make one join of all.
        of_key = f"SELECT a.* FROM report.{pg_name(state)} a WHERE {same} OFFSET 0"
        ended = f"SELECT DISTINCT {listed(f'p.{name}' for name in others)} FROM {pieces}"
        read = f"({ended}) e CROSS JOIN LATERAL ({of_key}) r"
    # The gap of today says that it is these, whatever sessions were before a rebuild.
    theirs = f"{_within(f'r.{end}')} AND r.{end} + interval '{sessions.gap:d} microseconds' < k.closed_to"
    selected = listed([*(f"r.{pg_name(name)}" for name in types), "k.txid"])
    said = (
        f"The sessions of state {state!r} that batches after a txid, up to another, have closed, with their values as "
        f"report.{state} has them, and which batch it was"
    )
    body = f"SELECT {selected} FROM {read} JOIN ({of_batches}) k ON {theirs}"
    return Function(closings_name(state), takes, returns, body, said)


def _within(end: str) -> str:
    return f"{end} >= k.first_start AND {end} < k.before_start"
