"""Merge by the job's Python, if PostgreSQL cannot: rows come in key order by a cursor, and go back by COPY."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain, groupby
from typing import Any

from sqlalchemy import Connection

from txbatch.core import garbage
from txbatch.core.aggregates.merger import Merger
from txbatch.core.aggregates.python_combiner import ByPython, OwnCombiner
from txbatch.core.topology.persistent_aggregate import ValueColumn
from txbatch.postgres.database.engine import execute
from txbatch.postgres.database.expressions import listed, pg_name
from txbatch.postgres.state.folds import Folds
from txbatch.postgres.state.statements import StateStatements

# So many rows are in memory at a time; each goes there and back.
ROWS_PER_CHUNK = 20_000


def merge_staged(connection: Connection, statements: StateStatements, *, walk: bool = False) -> str:
    """Return a table like the staged table, with the staged values merged with the values in the state's rows (R9).

    Each row also has the txid of the state's row at the time. `walk` as for `upsert`.
    """
    table = statements.beside_staged("merged")
    execute(connection, f"DROP TABLE IF EXISTS {table}; {statements.create_like_staged(table, 'txid bigint')}")
    own = _own(statements.aggregate.columns)
    made = [pg_name(column.name) for columns in own.values() for column in columns]
    texts = [each for each in (*statements.keys, *statements.partials) if each not in made]
    # What PostgreSQL merges goes through as it is; what `finish` made is made anew.
    partials = [column for combiner, columns in own.items() for column in columns[: len(combiner.fields)]]
    kept = [pg_name(column.name) for column in partials]
    read = [*(f"e.{name}::text" for name in texts), "s.txid::text", *(f"e.{name}" for name in kept)]
    query = f"SELECT {listed([*read, *map(statements.unless_removed, kept)])} FROM {statements.staged_with_state(walk=walk)}"
    made_columns = list(chain.from_iterable(own.values()))
    with garbage.without_gc():
        for columns in _chunks(connection, query):
            of_texts, values = columns[: len(texts) + 1], _plain(partials * 2, columns[len(texts) + 1 :])
            merged = _merged(own, values[len(kept) :], values[: len(kept)])
            _copy(connection, table, [*texts, "txid"], of_texts, made_columns, merged)
    return table


def once(connection: Connection, statements: StateStatements) -> str:
    """Return the query of the staged rows, with several rows of one key merged."""
    if not statements.aggregate.by_python:
        return statements.once()
    return _folded(connection, statements, statements.staged, statements.aggregate.partial_columns, "once")


def fold_in_python(connection: Connection, statements: StateStatements, folds: Folds, keys: str | None = None) -> str:
    """Return the query of the present keys and values, of the keys in `keys`: see `Folds.now`."""
    if not statements.aggregate.by_python:
        return folds.now(keys)
    return _folded(connection, statements, f"({folds.counting(keys)}) r", statements.aggregate.columns, "folded")


def dated(connection: Connection, statements: StateStatements) -> str:
    """Return the query of all present keys and values, with the txid that last changed the key."""
    folds = Folds.of(statements.aggregate, statements.generation)
    return folds.dated(fold_in_python(connection, statements, folds))


def amounts(connection: Connection, statements: StateStatements, versions: str, suffix: str) -> str:
    """Return the query of the versions' total by key: values, the last `txid`, and whether a version `stands`.

    `versions` is a query of keys, values (null if the version does not stand), `txid` and `stands`.
    """
    keys, rows = listed(statements.keys), f"({versions}) r"
    merged = _folded(connection, statements, rows, statements.aggregate.columns, suffix)
    dated = f"SELECT {keys}, max(txid) AS txid, bool_or(stands) AS stands FROM {rows} GROUP BY {keys}"
    return f"SELECT m.*, d.txid, d.stands FROM ({merged}) m JOIN ({dated}) d USING ({keys})"


def _folded(
    connection: Connection, statements: StateStatements, rows: str, columns: Sequence[ValueColumn], suffix: str
) -> str:
    table, keys, values = statements.beside_staged(suffix), statements.keys, [pg_name(each.name) for each in columns]
    made = statements.create_like_staged(table, marks=len(columns) > len(statements.columns))
    execute(connection, f"DROP TABLE IF EXISTS {table}; {made}")
    query = f"SELECT {listed([*(f'{key}::text' for key in keys), *values])} FROM {rows} ORDER BY {listed(keys)}"
    combine = Merger([each.partial.merge for each in columns])
    found = (
        row
        for chunk in _chunks(connection, query)
        for row in zip(*chunk[: len(keys)], *_plain(columns, chunk[len(keys) :]), strict=True)
    )
    merged = (
        (*key, *combine.whole(row[len(keys) :] for row in same))
        for key, same in groupby(found, lambda row: row[: len(keys)])
    )
    with garbage.without_gc():
        for chunk in _in_chunks(merged):
            both = [*zip(*chunk, strict=True)]
            _copy(connection, table, keys, both[: len(keys)], columns, both[len(keys) :])
    return f"SELECT {listed([*keys, *values])} FROM {table}"


def _own(columns: Sequence[ValueColumn]) -> dict[OwnCombiner, list[ValueColumn]]:
    """Return the columns merged by Python, by combiner."""
    found: dict[OwnCombiner, list[ValueColumn]] = {}
    for column in columns:
        if isinstance(column.partial.merge, ByPython):
            found.setdefault(column.partial.merge.of, []).append(column)
    return found


def _merged(
    own: Mapping[OwnCombiner, Sequence[ValueColumn]], before: Sequence[Sequence[Any]], staged: Sequence[Sequence[Any]]
) -> list[Sequence[Any]]:
    """Return the columns of a chunk after the batch, given the columns of partials in the state and in the staged rows."""
    after: list[Sequence[Any]] = []
    at = 0
    for combiner in own:
        here = slice(at, at + len(combiner.fields))
        partials = (list(zip(*columns[here], strict=True)) for columns in (before, staged))
        after += combiner.all_rows(combiner.all_combined(*partials))
        at = here.stop
    return after


def _plain(columns: Sequence[ValueColumn], values: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Return the values of columns with the same Python types as from Spark."""
    return [
        [bytes(value) if isinstance(value, memoryview) else value for value in each]
        if "binary" in column.partial.type
        else each
        for column, each in zip(columns, values, strict=True)
    ]


def _chunks(connection: Connection, query: str) -> Iterator[list[Sequence[Any]]]:
    """Yield the columns of some rows of a query at a time; between two chunks, other statements may run."""
    with closing(connection.connection.cursor(name="txbatch_by_python")) as cursor:
        cursor.execute(query)
        while rows := cursor.fetchmany(ROWS_PER_CHUNK):
            yield [*zip(*rows, strict=True)]


def _in_chunks(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    chunk: list[tuple[Any, ...]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == ROWS_PER_CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _copy(
    connection: Connection,
    table: str,
    texts: Sequence[str],
    of_texts: Sequence[Sequence[str | None]],
    columns: Sequence[ValueColumn],
    values: Sequence[Sequence[Any]],
) -> None:
    """COPY a chunk: columns that PostgreSQL returned as texts, and values."""
    import pyarrow as pa

    from txbatch.arrow import arrow_type
    from txbatch.postgres.state.copy_in import copy_in

    arrays = [pa.array(each, pa.string()) for each in of_texts]
    arrays += [pa.array(each, arrow_type(column.partial.type)) for each, column in zip(values, columns, strict=True)]
    numbered = [str(number) for number in range(len(arrays))]
    names = listed([*texts, *(pg_name(column.name) for column in columns)])
    statement = f"COPY {table} ({names}) FROM STDIN (FORMAT csv)"
    copy_in(connection, statement, [pa.record_batch(arrays, names=numbered)], [], numbered)
