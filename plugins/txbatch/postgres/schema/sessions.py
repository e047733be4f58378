"""The SQL that joins pieces of sessions when a state is read (R27). `core.topology.sessions` does the same in Python.

Conditions on keys other than the start reach the index: only sessions of the requested keys are made.
"""

from __future__ import annotations

from collections.abc import Sequence

from txbatch.core.aggregates.merger import hashed
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.windows.session_window import SessionWindow
from txbatch.postgres.database.expressions import listed, pg_name, sql_type
from txbatch.postgres.schema.one_pass import Moment, OnePass
from txbatch.postgres.schema.versions import REPLACED, Versions


def report_rows(aggregate: PersistentAggregate, sessions: SessionWindow) -> str:
    """Return the query of a state's present sessions: keys, partials and the last txid, by the names of the state's columns."""
    keys, values = Versions(aggregate).keys, [pg_name(column.name) for column in aggregate.columns]
    pieces = f"SELECT {listed([*keys, *values, 'txid'])} FROM state.{pg_name(aggregate.state.name)}"
    return join_pieces(aggregate, sessions, pieces, keys, values)


def rows_at(aggregate: PersistentAggregate, sessions: SessionWindow, txid: str) -> str:
    """Return the query of the sessions when a txid, an expression, was the newest final txid, by the names of `OnePass`."""
    return _rows(aggregate, sessions, Moment(f"v.txid <= {txid}", f"<= {txid}"))


def rows_corrected(aggregate: PersistentAggregate, sessions: SessionWindow, txid: str) -> str:
    """Return the query of the sessions of all positions up to a txid, in the current versions."""
    return _rows(aggregate, sessions, Moment(f"v.position <= {txid}", REPLACED))


def join_pieces(
    aggregate: PersistentAggregate, sessions: SessionWindow, pieces: str, keys: Sequence[str], values: Sequence[str]
) -> str:
    """Return the query that joins pieces to sessions; `pieces` is a query of keys, values and `txid`, as is the result."""
    *others, start = keys
    types = [column.partial.type for column in aggregate.columns]
    merges = hashed(aggregate.merges, [f"i.{value}" for value in values], types)
    merged = [
        f"CAST({merge} AS {sql_type(type_)}) AS {value}"
        for merge, type_, value in zip(merges, types, values, strict=True)
    ]
    of_key = f"PARTITION BY {listed(f'p.{key}' for key in others)} " if others else ""
    over = f"OVER ({of_key}ORDER BY p.{start}"
    last = f"max(p.{values[0]}) {over} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    begins = f"p.{start} > {last} + interval '{sessions.gap:d} microseconds'"
    begun = f"SELECT p.*, CASE WHEN {begins} IS NOT FALSE THEN 1 END AS begins FROM ({pieces}) p"
    islands = f"SELECT p.*, count(p.begins) {over}) AS island FROM ({begun}) p"
    own = [f"i.{key}" for key in others]
    return (
        f"SELECT {listed([*own, f'min(i.{start}) AS {start}', *merged, 'max(i.txid) AS txid'])} "
        f"FROM ({islands}) i GROUP BY {listed([*own, 'i.island'])}"
    )


def _rows(aggregate: PersistentAggregate, sessions: SessionWindow, moment: Moment) -> str:
    keys = [f"k{n}" for n in range(len(aggregate.keys))]
    values = [f"p0_{n}" for n in range(len(aggregate.columns))]
    pieces = f"SELECT {listed([*keys, *values, 'txid'])} FROM ({OnePass(aggregate, [moment], moment).folds()}) f"
    return join_pieces(aggregate, sessions, pieces, keys, values)
