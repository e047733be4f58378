"""Looks up fields in a state, in memory. Values compare by Spark's rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from txbatch.arrow import arrow_array
from txbatch.core.errors import NeedsSpark
from txbatch.core.records.comparing import key_of
from txbatch.core.topology.look_up import KEY_CHARACTERS, How, LiveState, StateQuery, Versioned
from txbatch.direct.batch_operations import Record
from txbatch.direct.functions import record_of

# The rows of live states, as an attempt is given them.
Tables = Mapping[LiveState, Sequence[tuple[Any, ...]]]
NO_TABLES: Tables = MappingProxyType({})
ByKey = dict[tuple[object, ...], list[Record]]


def state_query(records: Iterable[Record], query: StateQuery, tables: Tables, *, show: bool = True) -> Iterator[Record]:
    """Return each record with the looked-up values. If the key is missing, the values are null, or the record is left out."""
    return looked_up(records, query, by_key(query, tables, show=show))


def by_key(query: StateQuery, tables: Tables = NO_TABLES, *, show: bool = True) -> ByKey:
    """Return the state's rows by key. Raise BadRecord if a key has several rows, and the query promises a single row.

    The error shows the key if `show` is true.
    """
    keys, found = [key.name for key in query.keys], ByKey()
    for row in _rows(query, tables):
        if all(row[name] is not None for name in keys):
            found.setdefault(key_of(row[name] for name in keys), []).append(row)
    twice = None if query.many else next((rows[0] for rows in found.values() if len(rows) > 1), None)
    if twice is not None:
        raise query.twice(", ".join(str(twice[name]) for name in keys)[:KEY_CHARACTERS] if show else "")
    return found


def looked_up(records: Iterable[Record], query: StateQuery, found: ByKey) -> Iterator[Record]:
    """Yield each record with the values found for the record's key."""
    keys = [key.name for key in query.keys]
    missing: list[Record] = [{}] if query.how is How.LEFT else []
    for record in records:
        for row in found.get(key_of(record[name] for name in keys), missing):
            yield {**record, **{value.name: row.get(value.name) for value in query.values}}


def _rows(query: StateQuery, tables: Tables) -> list[Record]:
    """Return the state's rows; BadRecord for a value of another type."""
    state = query.state
    if isinstance(state, LiveState):
        rows = tables[state]
    elif isinstance(state.reader, Versioned) or callable(state.reader):
        raise NeedsSpark(f"{state} is read by Spark; give its rows to run it in memory")
    else:
        rows = state.reader
    for column, field in zip(zip(*rows, strict=True), state.fields, strict=False):
        arrow_array(column, field, f"{state} has")
    return [record_of(row, state.fields) for row in rows]
