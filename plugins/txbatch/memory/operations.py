"""A stream's operations on records in memory: those that are Python functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Any

from txbatch.arrow import arrow_array
from txbatch.core.errors import BadRecord, DefinitionError
from txbatch.core.fields import Field
from txbatch.core.static import StateQuery
from txbatch.core.stream import Operation, Stream

Record = dict[str, Any]


def records(stream: Stream, read: Mapping[str, Iterable[Record]]) -> Iterable[Record]:
    """The stream's records after all its operations; `read` holds those of the roots in the batch."""
    if not isinstance(stream.origin, tuple):
        return reduce(_run, stream.operations, read.get(stream.name, ()))
    names = [field.name for field in stream.origin[0].fields]
    united = (record for each in stream.origin for record in records(each, read))
    named: Iterable[Record] = (dict(zip(names, record.values(), strict=True)) for record in united)
    return reduce(_run, stream.operations, named)


def called(what: str, function: Any) -> Any:
    """The function; DefinitionError when it is SQL or Spark code."""
    if not callable(function) or what == "transform":
        raise DefinitionError(f"{what} {function!r} needs Spark; write it as a Python function to run it in memory")
    return function


def _run(records: Iterable[Record], operation: Operation) -> Iterator[Record]:
    names = [field.name for field in operation.fields]
    if operation.kind == "state_query":
        yield from _looked_up(records, operation.function)
    elif operation.kind == "project":
        yield from ({name: record[name] for name in names} for record in records)
    else:
        function = called(operation.kind, operation.function)
        for record in records:
            for value in _made(operation.kind, record, function(record)):
                made = dict(zip(names, value if isinstance(value, tuple) else (value,), strict=True))
                if operation.kind != "filter":
                    _check(made, operation.fields)
                yield made


def _check(record: Record, fields: Iterable[Field]) -> None:
    """BadRecord for a value that Spark would refuse, too."""
    for field in fields:
        arrow_array([record[field.name]], field)


def _made(kind: str, record: Record, result: Any) -> Iterable[Any]:
    """What becomes of one record: any number of others, given what the function said of it."""
    before = tuple(record.values())
    if kind == "filter":
        return [before] if result else []
    if kind == "each":
        return [(*before, *(result if isinstance(result, tuple) else (result,)))]
    return list(result) if kind == "flat_map" else [result]


def _looked_up(records: Iterable[Record], query: StateQuery) -> Iterator[Record]:
    static, keys = query.static, [key.name for key in query.keys]
    if callable(static.reader):
        raise DefinitionError(f"{static} is read by Spark; give its rows to run it in memory")
    rows: dict[Any, Record] = {}
    for row in static.reader:
        named = dict(zip((field.name for field in static.fields), row, strict=True))
        key = tuple(named[name] for name in keys)
        if key in rows:
            raise BadRecord(f"{static} has two rows with one {', '.join(keys)}; a key has one")
        rows[key] = named
    for record in records:
        key = tuple(record[name] for name in keys)
        found = {} if None in key else rows.get(key, {})
        yield {**record, **{value.name: found.get(value.name) for value in query.values}}
