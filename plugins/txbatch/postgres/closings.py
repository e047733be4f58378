"""The function by which people ask which windows of a state are closed, and since which batch: `report.closed_<state>` (R26)."""

from __future__ import annotations

from collections.abc import Mapping

from txbatch.core.fields import free_name
from txbatch.core.persistent_aggregate import PersistentAggregate
from txbatch.core.upstream import CLOSED_BY
from txbatch.core.window import Window
from txbatch.postgres.expressions import listed, pg_name, pg_text
from txbatch.postgres.functions import Function


def closings(aggregate: PersistentAggregate, window: Window, types: Mapping[str, str]) -> Function:
    """Return the function that returns the windows which batches closed, after a txid up to another.

    `types` are those of the report's columns, as PostgreSQL tells them.
    """
    state, start, end = aggregate.state.name, pg_name(window.name), pg_name(window.end_name)
    returns = {**types, free_name(CLOSED_BY, types): "bigint"}
    takes = {free_name(name, returns): "bigint" for name in ("from_txid", "to_txid")}
    of_state = f"k.topology = {pg_text(aggregate.topology)} AND k.state = {pg_text(state)}"
    between = "k.txid > LEAST($1, $2) AND k.txid <= GREATEST($1, $2)"
    # By the start they are found in the index; the end says that it is these, whatever windows were before a rebuild.
    theirs = f"r.{start} >= k.first_start AND r.{start} < k.before_start AND r.{end} <= k.closed_to"
    selected = listed([*(f"r.{pg_name(name)}" for name in types), "k.txid"])
    body = f"SELECT {selected} FROM report.closings k JOIN report.{pg_name(state)} r ON {theirs} WHERE {of_state} AND {between}"
    said = (
        f"The windows of state {state!r} that batches after a txid, up to another, have closed, with their values as "
        f"report.{state} has them, and which batch it was"
    )
    return Function(closings_name(state), takes, returns, body, said)


def closings_name(state: str) -> str:
    """Return what the function of a state is called."""
    return f"closed_{state}"
