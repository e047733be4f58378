"""The SQL that joins pieces of sessions when a state is read (R27). `core.topology.sessions` does the same in Python.

Conditions on keys other than the start reach the index: only sessions of the requested keys are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from txbatch.core.aggregates.merge import ADD, BIGINT_MAX, BIGINT_MIN
from txbatch.core.aggregates.merger import hashed
from txbatch.core.records.fields import EXACT, decimal_digits
from txbatch.core.topology.persistent_aggregate import PersistentAggregate, ValueColumn
from txbatch.core.windows.session_window import SessionWindow
from txbatch.postgres.database.expressions import listed, pg_name, pg_text, sql_type
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
    own = [f"i.{key}" for key in others]
    merges = hashed(
        aggregate.merges, [f"i.{value}" for value in values], [each.partial.type for each in aggregate.columns]
    )
    session = f"concat_ws(', ', {listed([*own, f'min(i.{start})'])})"
    merged = [
        f"{_fitting(aggregate, column, merge, session)} AS {value}"
        for merge, column, value in zip(merges, aggregate.columns, values, strict=True)
    ]
    of_key = f"PARTITION BY {listed(f'p.{key}' for key in others)} " if others else ""
    over = f"OVER ({of_key}ORDER BY p.{start}"
    last = f"max(p.{values[0]}) {over} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    begins = f"p.{start} > {last} + interval '{sessions.gap:d} microseconds'"
    begun = f"SELECT p.*, CASE WHEN {begins} IS NOT FALSE THEN 1 END AS begins FROM ({pieces}) p"
    islands = f"SELECT p.*, count(p.begins) {over}) AS island FROM ({begun}) p"
    return (
        f"SELECT {listed([*own, f'min(i.{start}) AS {start}', *merged, 'max(i.txid) AS txid'])} "
        f"FROM ({islands}) i GROUP BY {listed([*own, 'i.island'])}"
    )


def _fitting(aggregate: PersistentAggregate, column: ValueColumn, merge: str, session: str) -> str:
    """Return the SQL of a merged value in the column's type; a sum that does not fit raises an error that names the session.

    Each piece fits, but a commit does not join pieces. SQL has no expression that raises an error: the cast of a text raises one.
    """
    type_ = sql_type(column.partial.type)
    if column.partial.merge is not ADD or (limits := _limits(column.partial.type)) is None:
        return f"CAST({merge} AS {type_})"
    before, after = (
        f"TX305 (no retry helps): state {aggregate.state.name!r}, session (",
        f" of {column.value!r} is out of range for {type_}: ask for other keys, or without this value; restate a batch of the "
        "session, or sum decimals and rebuild",
    )
    told = listed([pg_text(before), session, pg_text("): the total "), merge, pg_text(after)])
    return (
        f"CASE WHEN {merge} NOT BETWEEN {limits} THEN CAST(concat({told}) AS {type_}) ELSE CAST({merge} AS {type_}) END"
    )


def _limits(type_: str) -> str | None:
    """Return the least and the greatest value of an exact type, in SQL; None for every other type.

    >>> _limits("decimal(3,1)"), _limits("double")
    ('-99.9 AND 99.9', None)
    """
    if type_ == "bigint":
        return f"{BIGINT_MIN} AND {BIGINT_MAX}"
    if (digits := decimal_digits(type_)) is None:
        return None
    greatest = Decimal(10 ** digits[0] - 1).scaleb(-digits[1], EXACT)
    return f"{-greatest:f} AND {greatest:f}"


def _rows(aggregate: PersistentAggregate, sessions: SessionWindow, moment: Moment) -> str:
    keys = [f"k{n}" for n in range(len(aggregate.keys))]
    values = [f"p0_{n}" for n in range(len(aggregate.columns))]
    pieces = f"SELECT {listed([*keys, *values, 'txid'])} FROM ({OnePass(aggregate, [moment], moment).folds()}) f"
    return join_pieces(aggregate, sessions, pieces, keys, values)
