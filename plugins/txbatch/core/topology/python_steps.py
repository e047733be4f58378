"""Rows that Python functions of a job make of a record, in all backends alike; and the name of a failed operation.

A row has a value for each field of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from txbatch.core.errors import BadResult
from txbatch.core.records.declared import values_of
from txbatch.core.text import one_line, repr_of
from txbatch.core.topology.nodes import Arguments, Each, Failed, Filter, FlatMap, Join, Map, Merged, Node, Peek, Source
from txbatch.core.topology.walks import on_the_way

Row = tuple[Any, ...]
# A function may change the dict that it is given: the rows are made of the record as it was.
Rows = Callable[[dict[str, Any]], list[Row]]
# What is said of a value that does not fit, where records are not shown.
MISFIT_UNSHOWN = "a function returned a value that does not fit; convert it there"
_SHOWN_MAX = 100
_CALLED: Mapping[type, str] = {Filter: "filter", Each: "each", Map: "map", FlatMap: "flat_map", Peek: "peek"}


def rows_of(step: Node) -> Rows | None:
    """Return a function that makes a step's rows of a record; None for a step without a Python function."""
    names = [field.name for field in step.fields]
    match step:
        case Filter(condition=holds) if callable(holds):
            return lambda record: _kept(record, holds)
        case Each(function=append, appended=appended) if callable(append):
            new = [field.name for field in appended]
            return lambda record: _appended(record, append, new)
        case Map(function=change) if callable(change):
            return lambda record: [as_row(change(record), names)]
        case FlatMap(function=split) if callable(split):
            return lambda record: [as_row(each, names) for each in _several(split(record))]
        case Peek(function=look):
            return lambda record: _seen(record, look)
        case _:
            return None


def operation_of(step: Node) -> str:
    """Return the name of a step for errors: the step's number after its source, and the name of its function.

    Lines of the job are left out, since lines move.
    """
    function = step.condition if isinstance(step, Filter) else getattr(step, "function", None)
    return f"{_numbered(step)} {name_of(function)}"


def expressions_of(node: Node) -> Iterator[tuple[str, str]]:
    """Yield the SQL expressions of all steps up to a node, each after the name of its operation."""
    for each in on_the_way(node):
        if isinstance(each, Filter | Each | Map | FlatMap):
            given = each.condition if isinstance(each, Filter) else each.function
            yield from (
                (_numbered(each), sql)
                for sql in ([given] if isinstance(given, str) else [] if callable(given) else given)
            )


def name_of(function: object) -> str:
    """Return the name of a function, or the class name of any other callable."""
    return getattr(function, "__name__", type(function).__name__)


def as_row(value: Any, names: Sequence[str]) -> Row:
    """Return the result of a Python function with one value per field; BadRecord for another number of values."""
    values = values_of(value, names)
    if len(values) != len(names):
        told = one_line(repr_of(value), _SHOWN_MAX)
        raise BadResult(f"a function returned {told}; expected a tuple of {len(names)} values")
    return values


def _numbered(step: Node) -> str:
    return f"{_number(step)}. {_CALLED[type(step)]}"


def _number(node: Node) -> int:
    return 0 if isinstance(node, Source | Arguments | Merged | Join | Failed) else 1 + _number(node.before)


def _kept(record: dict[str, Any], holds: Callable[[dict[str, Any]], object]) -> list[Row]:
    before = tuple(record.values())
    return [before] if holds(record) else []


def _appended(record: dict[str, Any], function: Callable[[dict[str, Any]], Any], names: Sequence[str]) -> list[Row]:
    """Return the record with the function's result appended; one row for each element if the result is a list."""
    before, made = tuple(record.values()), function(record)
    return [(*before, *as_row(each, names)) for each in (made if isinstance(made, list) else [made])]


def _several(made: Any) -> Iterable[Any]:
    """Return the records in a function's result; BadRecord for a text, bytes or a mapping: their elements are never meant."""
    if isinstance(made, str | bytes | bytearray | Mapping):
        raise BadResult(
            f"a function returned {one_line(repr_of(made), _SHOWN_MAX)}; expected a list of records, also of one"
        )
    return made  # type: ignore[no-any-return]


def _seen(record: dict[str, Any], function: Callable[[dict[str, Any]], object]) -> list[Row]:
    before = tuple(record.values())
    function(record)
    return [before]
