"""Aggregates that count records, or test whether a condition holds: CountIf, BoolAnd, BoolOr, Histogram."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context, Decimal, InvalidOperation
from itertools import pairwise
from typing import Any

from txbatch.core.aggregates.aggregator import CombinerAggregator, Count, Max, Min, PartialColumn, required
from txbatch.core.aggregates.merge import ADD, DECIMAL_DIGITS_MAX, Partial
from txbatch.core.errors import InvalidArgument, MissingPart, WrongType
from txbatch.core.records.fields import FLOATING_TYPES, INTEGER_TYPES, Field, decimal_scale
from txbatch.core.records.sql import spark_name
from txbatch.core.records.where import Condition

BINS_MAX = 64
_DIGITS = Context(prec=DECIMAL_DIGITS_MAX)


class CountIf(Count):
    """Number of records for which a condition holds, for example the name of a boolean field; null does not count."""

    def __init__(self, condition: Condition, *, was: str | None = None, since: str | None = None) -> None:
        if condition is None:
            raise MissingPart("CountIf needs a condition; give SQL that is true or false, or a function of a record")
        super().__init__(where=condition, was=was, since=since)


class BoolAnd(Min):
    """True if all values that are not null are true; null without values."""

    aggregate, _any_type = "bool_and", "boolean"

    def columns(self, input: Field | None) -> tuple[PartialColumn, ...]:
        return super().columns(_boolean(self, input))


class BoolOr(Max):
    """True if any value is true; null values are left out, and the result is null without values."""

    aggregate, _any_type = "bool_or", "boolean"

    def columns(self, input: Field | None) -> tuple[PartialColumn, ...]:
        return super().columns(_boolean(self, input))


class Histogram(CombinerAggregator):
    """Numbers of values below the first edge, from each edge to the next, and from the last edge on. Null is left out.

    n edges make n + 1 numbers. A value equal to an edge counts above the edge; NaN counts above all numbers.
    """

    def __init__(
        self,
        input: str,
        edges: Sequence[int | float | Decimal | str],
        *,
        where: Condition | None = None,
        was: str | None = None,
        since: str | None = None,
    ) -> None:
        super().__init__(input, where=where, was=was, since=since)
        self.edges = _checked_edges(input, edges)

    @property
    def details(self) -> str:
        return f" by {', '.join(format(edge, 'f') for edge in self.edges)}"

    def columns(self, input: Field | None) -> tuple[PartialColumn, ...]:
        field = required(self, input)
        scale = decimal_scale(field.type)
        if field.type not in INTEGER_TYPES | FLOATING_TYPES and scale is None:
            raise WrongType(f"Histogram of {field.name!r}, a {field.type}: edges are numbers; give a field of numbers")
        name, edges = spark_name(field.name), [_literal(edge, field) for edge in self.edges]
        above = [f"{name} >= {edge}" for edge in edges]
        below = [f"{name} < {edge}" for edge in edges]
        within = [" and ".join(each) for each in zip(above, below[1:], strict=False)]
        return tuple(
            PartialColumn(f"_{n}", "bigint", ADD, f"count_if({condition})")
            for n, condition in enumerate([below[0], *within, above[-1]])
        )

    def init(self, value: Any) -> Partial:
        counts = [0] * (len(self.edges) + 1)
        if value is not None:
            counts[self._bin(value)] = 1
        return tuple(counts)

    def zero(self) -> Partial:
        return (0,) * (len(self.edges) + 1)

    def finish(self, partial: Partial) -> Any:
        return None if partial[0] is None else list(partial)

    def finish_sql(self, columns: Sequence[str]) -> str:
        return f"CASE WHEN {columns[0]} IS NOT NULL THEN ARRAY[{', '.join(columns)}] END"

    def _bin(self, value: Any) -> int:
        edges: list[Any] = [float(edge) for edge in self.edges] if isinstance(value, float) else list(self.edges)
        return len(edges) if value != value else bisect_right(edges, value)


def _boolean(aggregator: CombinerAggregator, input: Field | None) -> Field:
    field = required(aggregator, input)
    if field.type != "boolean":
        told = f"{type(aggregator).__name__} of {field.name!r}, a {field.type}"
        raise WrongType(f"{told}: it is not true or false; make a boolean field of it by each()")
    return field


def _checked_edges(input: str, edges: Sequence[int | float | Decimal | str]) -> tuple[Decimal, ...]:
    """Return the edges in decimals; DefinitionError unless the edges are rising numbers, and not too many."""
    what = f"Histogram of {input!r}"
    try:
        found = tuple(Decimal(str(edge)) for edge in edges)
    except (ArithmeticError, TypeError):
        raise InvalidArgument(f"{what}: edges are {edges!r}; give a list of numbers that rise") from None
    if not all(edge.is_finite() for edge in found):
        raise InvalidArgument(
            f"{what}: edges are {edges!r}; leave out NaN and infinity, above the last edge is a bin of its own"
        )
    if not 1 <= len(found) < BINS_MAX:
        raise InvalidArgument(f"{what}: {len(found)} edges; give 1 to {BINS_MAX - 1}")
    if any(low >= high for low, high in pairwise(found)):
        raise InvalidArgument(f"{what}: edges are {edges!r}; each must be greater than the one before")
    return found


def _literal(edge: Decimal, field: Field) -> str:
    """Return an edge in Spark SQL: for doubles the nearest double; for other types the least number of the type from the edge
    on.

    No comparison therefore needs more digits than Spark has.
    """
    if field.type in FLOATING_TYPES:
        return f"double('{edge:f}')"
    scale = decimal_scale(field.type) or 0
    try:
        least = edge.quantize(Decimal(1).scaleb(-scale), ROUND_CEILING, _DIGITS)
    except InvalidOperation:
        told = f"Histogram of {field.name!r}, a {field.type}: edge {edge:f}"
        raise InvalidArgument(f"{told} has more digits than such a number can have; leave it out") from None
    return f"cast('{least:f}' as decimal(38,{scale}))"
