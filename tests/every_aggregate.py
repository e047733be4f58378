"""Every aggregate in one state, with records of all that each may meet: nulls, ties, NaN, infinity, empty strings."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from txbatch import (
    ApproxCountDistinct,
    ApproxQuantile,
    Avg,
    BoolAnd,
    BoolOr,
    CollectSet,
    CombinerAggregator,
    Count,
    CountIf,
    DistinctSketch,
    First,
    FixedBatchSpout,
    Histogram,
    Last,
    Max,
    MaxBy,
    Min,
    MinBy,
    OpaqueState,
    StdDev,
    Sum,
    TopN,
    TopNBy,
    Topology,
    Variance,
)
from txbatch.core.sources.spout import Spout
from txbatch.core.state.state import State

FIELDS = "k string, n bigint, price decimal(10,2), x double, flag boolean, word string"
NAMES = [each.split()[0] for each in FIELDS.split(", ")]
INFINITE = float("inf")
KEYS = "ab"
# Of each field, what it may be.
VALUES: list[list[Any]] = [
    list(KEYS),
    [None, *range(-3, 4)],
    [None, *map(Decimal, ("-1.50", "0.00", "0.25", "9.99"))],
    [None, float("nan"), INFINITE, -INFINITE, 0.0, 0.1, -2.5, 1e300, 3.0],
    [None, True, False],
    [None, "", "a", "B", "\u00e9", "\U0001f600", 'a"b', "{1,\\2}", "NULL"],
]
records = st.tuples(*map(st.sampled_from, VALUES)).map(lambda values: dict(zip(NAMES, values, strict=True)))


def some_records(number: int, seed: int = 1) -> list[dict[str, Any]]:
    """Random ones."""
    chosen = random.Random(seed)
    return [dict(zip(NAMES, map(chosen.choice, VALUES), strict=True)) for _ in range(number)]


class Span(CombinerAggregator):
    """One of a user's own: how far the numbers lie apart, of those that are finite."""

    partial, result = "low decimal(12,2), high decimal(12,2)", "decimal(12,2)"

    def init(self, value: Any) -> Any:
        return None if value is None else (value, value)

    def combine(self, left: Any, right: Any) -> Any:
        return min(left[0], right[0]), max(left[1], right[1])

    def finish(self, partial: Any) -> Any:
        return partial[1] - partial[0]


class Words(CombinerAggregator):
    """Another, which is its partial: the different words, the longest first."""

    partial = "words array<string>"

    def init(self, value: Any) -> Any:
        return ([value],) if value else None

    def combine(self, left: Any, right: Any) -> Any:
        return (sorted({*left[0], *right[0]}, key=lambda word: (-len(word), word)),)


class Weighted(CombinerAggregator):
    """One of two fields, whose zero is not null."""

    partial, result = "number bigint, total bigint, known boolean", "string"

    @property
    def inputs(self) -> tuple[str, ...]:
        return ("n", "word")

    def init_of(self, record: Any) -> Any:
        return 1, (record["n"] or 0) * len(record["word"] or ""), record["word"] is not None

    def zero(self) -> Any:
        return 0, 0, False

    def combine(self, left: Any, right: Any) -> Any:
        return left[0] + right[0], left[1] + right[1], left[2] or right[2]

    def finish(self, partial: Any) -> Any:
        return f"{partial[1]} of {partial[0]}"


def own_aggregates() -> dict[str, CombinerAggregator]:
    """Those that Python merges, beside one that PostgreSQL merges."""
    return {
        "records": Count(),
        "apart": Span("price"),
        "some_apart": Span("price", where=lambda record: (record["n"] or 0) > 0),
        "mean": Avg("price"),
        "own_words": Words("word"),
        "weighted": Weighted(),
    }


def aggregates() -> dict[str, CombinerAggregator]:
    """One of each, and some of them where a condition holds."""

    def holds(record: dict[str, Any]) -> bool:
        return (record["n"] or 0) > 0

    return {
        "records": Count(),
        "some": CountIf(holds),
        "total": Sum("n"),
        "some_total": Sum("n", where=holds),
        "mean": Avg("price"),
        "low": Min("x"),
        "high": Max("word"),
        "variance": Variance("price"),
        "spread": StdDev("n", where=holds),
        "every": BoolAnd("flag"),
        "any": BoolOr("flag"),
        "bins": Histogram("x", [-2.5, 0.1, 3]),
        "price_bins": Histogram("price", ["0.001", 9]),
        "first": First("word", by="n"),
        "last": Last("x", by="price"),
        "least": MinBy("price", by="x"),
        "most": MaxBy("flag", by="word"),
        "last_of_some": Last("word", by="n", where=holds),
        "top": TopN(2, "x"),
        "top_words": TopN(3, "word", where=holds),
        "top_rows": TopNBy(2, ("word", "x", "flag"), by="x"),
        "some_rows": TopNBy(3, ("price", "n"), by="word", where=holds),
        "words": CollectSet("word", 3),
        "prices": CollectSet("price", 2, where=holds),
        "different": ApproxCountDistinct("x", lg_k=4),
        "sketch": DistinctSketch("price", where=holds),
        "median": ApproxQuantile("x", 0.5),
        "high_price": ApproxQuantile("price", 0.9, error=0.1, where=holds),
    }


def every_aggregate(
    spout: Spout | None = None,
    state: State | None = None,
    values: dict[str, Any] | None = None,
    *,
    name: str = "every",
    **more: Any,
) -> Topology:
    """A topology of one state with all of them, or others, by the field `k`."""
    topology = Topology(name)
    stream = topology.new_stream("in", spout or FixedBatchSpout(FIELDS, 1, (None,) * len(NAMES)))
    stream.group_by("k").persistent_aggregate(state or OpaqueState("s"), **more, **(values or aggregates()))
    return topology


def shown(value: Any) -> Any:
    """Roots and quotients have other digits in PostgreSQL; NaN is not equal to itself."""
    if isinstance(value, memoryview):
        value = bytes(value)
    if isinstance(value, float):
        return f"{value:.9g}"
    try:
        return f"{round(value, 9).normalize():f}"
    except (AttributeError, TypeError):
        return repr(value)
