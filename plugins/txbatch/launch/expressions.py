"""Checks the Spark SQL of a job against the fields of streams before Spark starts; names a missing field.

Spark finds the same fault later, after a batch was planned and an application started. SQL unreadable for the parser is left
to Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from txbatch.core.aggregates.aggregator import CombinerAggregator
from txbatch.core.errors import UnknownField
from txbatch.core.records.fields import Field
from txbatch.core.topology.nodes import (
    Aggregate,
    Arguments,
    Each,
    Failed,
    Filter,
    FlatMap,
    Function,
    Join,
    LiveLookup,
    Lookup,
    Map,
    Merged,
    Node,
    Peek,
    Repartition,
    Source,
    Transform,
    Watermarked,
    Windowed,
)
from txbatch.core.topology.topology import Topology

# Names that Spark takes for a function without parentheses, where no field is called so.
_FUNCTIONS = frozenset(
    [
        "current_date",
        "current_time",
        "current_timestamp",
        "current_user",
        "localtime",
        "localtimestamp",
        "session_user",
        "user",
    ]
)


class Expression(NamedTuple):
    """An expression of a job: the SQL, the operation, the stream, and the fields within reach."""

    sql: str
    operation: str
    stream: str
    fields: Sequence[Field]


def check_expressions(topology: Topology) -> None:
    """Raise DefinitionError with the first expression that reads a field missing in the stream."""
    for expression in _expressions(topology):
        known = {field.name.lower() for field in expression.fields}
        unknown = [name for name in names(expression.sql) if name.lower() not in known]
        if unknown:
            raise _unknown(expression, unknown[0])


def names(sql: str) -> list[str]:
    """Return the fields an expression reads, of a struct the first part; none if the parser fails.

    >>> names("transform(prices, price -> price * tax)"), names("`unit price` * amount.net")
    (['prices', 'tax'], ['unit price', 'amount'])
    """
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        select = parse_one(f"SELECT {sql}", dialect="spark")
    except SqlglotError:
        return []
    if not isinstance(select, exp.Select) or select.find(exp.Subquery, exp.From):
        return []
    columns = (column.parts[0] for column in select.find_all(exp.Column, bfs=False) if not column.is_star)
    return [part.name for part in columns if part.name.lower() not in _FUNCTIONS]


def _unknown(expression: Expression, name: str) -> UnknownField:
    known = [field.name for field in expression.fields]
    near = get_close_matches(name.lower(), {each.lower(): each for each in known}, 1)
    meant = next((f"; did you mean {each!r}?" for each in known if each.lower() in near), "")
    return UnknownField(
        f"stream {expression.stream!r}: {expression.operation} {expression.sql!r} reads {name!r}, which is no field there; "
        f"it has {', '.join(known)}{meant}"
    )


def _expressions(topology: Topology) -> Iterator[Expression]:
    seen: set[int] = set()
    for aggregate in topology.aggregates:
        yield from _of(aggregate.stream, seen)
        if isinstance(aggregate.remove, str):
            yield Expression(aggregate.remove, "remove", aggregate.stream.name, aggregate.stream.fields)
        yield from _wheres(aggregate.aggregates, aggregate.stream)


def _wheres(aggregates: Mapping[str, CombinerAggregator], of: Node) -> Iterator[Expression]:
    """Yield the `where` expressions of values, each with exactly the fields of a node."""
    for aggregate in aggregates.values():
        if isinstance(aggregate.where, str):
            yield Expression(aggregate.where, "where", of.name, of.fields)


def _of(node: Node, seen: set[int]) -> Iterator[Expression]:
    """Yield the expressions of a node and of the nodes before, the first first; each node's once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    match node:
        case Source() | Arguments() | Failed():
            return
        case Merged(inputs=inputs):
            for each in inputs:
                yield from _of(each, seen)
        case Join(left=left, right=right):
            yield from _of(left, seen)
            yield from _of(right, seen)
        case step:
            yield from _of(step.before, seen)
            if _is_known(step.before):
                yield from _own(step)


def _own(step: Node) -> Iterator[Expression]:
    match step:
        case Filter(condition=str(sql)):
            yield Expression(sql, "filter", step.name, step.before.fields)
        case Each(function=function):
            yield from _one_by_one(function, "each", step, step.appended)
        case Map(function=function):
            yield from _one_by_one(function, "map", step, step.fields)
        case FlatMap(function=function):
            for sql in _listed(function):
                yield Expression(sql, "flat_map", step.name, step.before.fields)
        case Aggregate(aggregates=aggregates):
            yield from _wheres(aggregates, step.before)


def _is_known(node: Node) -> bool:
    """Return whether a node has no undeclared fields: Spark code of the job may leave more fields."""
    match node:
        case Transform():
            return False
        case Filter() | Each() | Lookup() | LiveLookup() | Peek() | Repartition() | Windowed() | Watermarked():
            return _is_known(node.before)
        case _:
            return True


def _one_by_one(function: Function, operation: str, step: Each | Map, made: Sequence[Field]) -> Iterator[Expression]:
    """Yield the expressions of an operation. An expression can name the results of earlier expressions: Spark allows the
    names.
    """
    for number, sql in enumerate(_listed(function)):
        yield Expression(sql, operation, step.name, (*step.before.fields, *made[:number]))


def _listed(function: Function) -> Sequence[str]:
    """Return the expressions of an operation; none for a Python function."""
    if callable(function):
        return ()
    return [function] if isinstance(function, str) else function
