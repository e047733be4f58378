"""Look up a state's values by typed keys, many at once, through the state's function. Rights on `report` are enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, CursorResult

from txbatch.arrow import arrow_array
from txbatch.core.errors import BadRecord, InvalidKey, SchemaMismatch, UnknownName
from txbatch.core.records.fields import SIMPLE_TYPES, Field, encodable
from txbatch.core.text import how_many
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.postgres.database.expressions import escape_percent, listed, pg_name
from txbatch.postgres.database.queries import query
from txbatch.postgres.reading.ledger_reader import keys_listed
from txbatch.postgres.schema.getter import getter_name

# What a key is: a value, or of several columns a tuple of values.
Key = Any | Sequence[Any]
Values = dict[str, Any]
_FIELD_TYPES = {simple.postgres: type_ for type_, simple in SIMPLE_TYPES.items()} | {
    "timestamp with time zone": "timestamp"
}


def multi_get(connection: Connection, state: str, keys: Sequence[Key] = ()) -> list[Values | None]:
    """Return the values of each key, in the order asked and in one round trip (R20); None for an absent key.

    Ask a global value with the key `()`, or without keys. Raise UnknownName if the state has no report here, TerminalError if
    a key does not fit the state's types.
    """
    return _got(connection, state, _keys(connection, state), keys)


def look_up(
    connection: Connection, aggregate: PersistentAggregate, keys: Sequence[tuple[Any, ...]]
) -> list[Values | None]:
    """Return the values of each key of a state in the job's definition. Raise SchemaMismatch if the state differs here."""
    state, names = aggregate.state.name, [key.name for key in aggregate.keys]
    typed = _keys(connection, state)
    if {*typed} != {*names}:
        raise _differs(state, f"its key is {keys_listed(typed) or 'none'} here")
    places = [names.index(name) for name in typed]
    found = _got(connection, state, typed, [tuple(key[place] for place in places) for key in keys])
    for name in aggregate.aggregates:
        if any(values is not None and name not in values for values in found):
            raise _differs(state, f"it has no value {name!r} here")
    return found


def _differs(state: str, how: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"state {state!r} differs from the definition in the job, {how}: ask by the job that counts the state, or run "
        "`txbatch plan` of this job for the way to the new definition"
    )


def _got(connection: Connection, state: str, typed: Mapping[str, str], keys: Sequence[Key]) -> list[Values | None]:
    function = f"report.{escape_percent(pg_name(getter_name(state)))}"
    if not typed:
        for key in keys:
            _columns(state, key, typed)
        (value,) = _values(connection.exec_driver_sql(f"SELECT * FROM {function}()"), typed) or [None]
        return [value] * max(len(keys), 1)
    if not keys:
        return []
    asked = [_columns(state, key, typed) for key in keys]
    by_column = zip(typed.items(), zip(*asked, strict=True), strict=True)
    columns = {f"k{n}": _bound(state, each, list(values)) for n, (each, values) in enumerate(by_column)}
    names = [f"k{n}" for n in range(len(typed))]
    arrays = listed(f"%(k{n})s::{type_}[]" for n, type_ in enumerate(typed.values()))
    found = connection.exec_driver_sql(
        f"SELECT r.* FROM unnest({arrays}) WITH ORDINALITY AS a ({listed(names)}, n) "
        f"LEFT JOIN LATERAL {function}({listed(f'a.{name}' for name in names)}) r ON true ORDER BY a.n",
        columns,
    )
    return _values(found, typed)


def _keys(connection: Connection, state: str) -> dict[str, str]:
    """Return the key columns of a state with the types of its function. Raise UnknownName if the function is missing."""
    found = connection.execute(query("report_functions"), {"names": [getter_name(state)]}).mappings().first()
    if found is None:
        raise UnknownName(
            f"no state {state!r} can be asked here, because report.{getter_name(state)} is not there; `txbatch status` lists the "
            "states: ask for a state of another database there, and run the job of a state of an earlier version first"
        )
    return dict(found["columns"] or [])


def _columns(state: str, key: Key, typed: Mapping[str, str]) -> tuple[Any, ...]:
    """Return the value of each column of a key. Raise TerminalError if the key has too many or too few columns."""
    columns = tuple(key) if isinstance(key, tuple | list) else (key,)
    if not typed and columns:
        raise InvalidKey(f"state {state!r} is one global value and has no key; ask without {key!r}")
    if len(columns) != len(typed):
        number = how_many(len(columns), "part")
        raise InvalidKey(f"state {state!r} has the key {keys_listed(typed)}; {key!r} has {number}")
    return columns


def _bound(state: str, column: tuple[str, str], values: list[Any]) -> list[Any]:
    """Return a column of keys in PostgreSQL's types. Raise TerminalError for a value impossible in a key."""
    name, type_ = column
    told = f"state {state!r} has the key {name} {type_}"
    for value in values:
        if value is None:
            raise InvalidKey(f"{told}; None is no part of a key: name a value")
        if isinstance(value, str) and ("\0" in value or not encodable(value)):
            raise InvalidKey(f"{told}; {value!r} is not UTF-8, or holds U+0000, as no key does")
        if type_ == "numeric" and (isinstance(value, bool) or not isinstance(value, int | Decimal)):
            raise InvalidKey(f"{told}; {value!r} is a {type(value).__name__}: give a Decimal or an int")
    if type_ == "numeric":
        return values
    field = Field(name, _FIELD_TYPES[type_])
    try:
        return list(arrow_array(values, field, "asked is").to_pylist())
    except BadRecord as error:
        raise InvalidKey(f"{told}; {error}") from error


def _values(found: CursorResult[Any], typed: Mapping[str, str]) -> list[Values | None]:
    """Return the values in report rows; None for the row of an absent key."""
    columns = [*found.keys()]
    txid = columns.index("txid")
    places = [(n, name) for n, name in enumerate(columns) if name not in typed and n != txid]
    return [
        None if row[txid] is None else {name: _plain(row[n]) for n, name in places}
        for row in map(tuple, found.fetchall())
    ]


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value
