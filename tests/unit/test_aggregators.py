"""The laws of CombinerAggregator: what PostgreSQL, Spark and memory rely on when they combine in any order."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from refusals import refused

from txbatch import (
    ApproxQuantile,
    Avg,
    BoolAnd,
    BoolOr,
    CollectSet,
    CombinerAggregator,
    Count,
    CountIf,
    Histogram,
    Max,
    Min,
    StdDev,
    Sum,
    TopN,
    Variance,
)
from txbatch.core.aggregates.merge import ADD, BIGINT_MAX, BIGINT_MIN, LEAST
from txbatch.core.aggregates.merger import Merger
from txbatch.core.errors import BadRecord, DefinitionError
from txbatch.core.records.fields import EXACT, Field
from txbatch.core.records.sql import spark_name
from txbatch.core.records.where import check_where
from txbatch.core.state.fold import Contribution, fold
from txbatch.core.state.update import Change

COMBINE = Merger([ADD])
integers = st.none() | st.integers(-(2**40), 2**40)
decimals = st.none() | st.decimals(-(10**20), 10**20, places=2)
strings = st.none() | st.text()
floats = st.none() | st.floats(allow_nan=True).map(lambda value: value + 0.0)  # one zero
booleans = st.none() | st.booleans()
dates = st.none() | st.dates()


def _cut(value: Decimal | None) -> Decimal | None:
    """With so few digits that its square can be summed."""
    return None if value is None else value % 10**14


AGGREGATORS: list[tuple[CombinerAggregator, st.SearchStrategy[Any]]] = [
    (Count(), integers),
    (Count("v"), strings),
    (Sum("v"), integers),
    (Sum("v"), decimals),
    (Sum("v", scale=2), decimals),
    (Avg("v"), integers),
    (Avg("v"), decimals),
    *((kind("v"), values) for kind in (Variance, StdDev) for values in (integers, decimals.map(_cut))),
    (BoolAnd("v"), booleans),
    (BoolOr("v"), booleans),
    (Histogram("v", [-5, 0, "0.5", 1000]), integers),
    (Histogram("v", [-5, 0, 0.5, 1000]), floats),
    *((kind("v"), values) for kind in (Min, Max) for values in (integers, decimals, strings, floats, booleans, dates)),
]
laws = pytest.mark.parametrize(("aggregator", "values"), AGGREGATORS, ids=lambda each: type(each).__name__)


def same(left: Any, right: Any) -> bool:
    """Equal, with NaN equal to itself."""
    return all(a == b or (a != a and b != b) for a, b in zip(left, right, strict=True))


@laws
@given(st.data())
def test_combine_is_associative_and_commutative_and_zero_is_neutral(
    aggregator: CombinerAggregator, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    a, b, c = (aggregator.init(data.draw(values)) for _ in range(3))
    assert same(aggregator.combine(a, b), aggregator.combine(b, a))
    left, right = aggregator.combine(aggregator.combine(a, b), c), aggregator.combine(a, aggregator.combine(b, c))
    assert same(left, right)
    assert same(aggregator.combine(a, aggregator.zero()), a)
    assert same(aggregator.combine(aggregator.zero(), a), a)


@laws
@given(st.data())
def test_however_records_are_split_into_batches_the_result_is_that_of_all(
    aggregator: CombinerAggregator, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    records = data.draw(st.lists(values, max_size=12))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=3)))
    batches = [records[start:end] for start, end in zip([0, *cuts], [*cuts, len(records)], strict=True)]

    def fold(partials: Any) -> Any:
        return reduce(aggregator.combine, partials, aggregator.zero())

    split = fold(fold(map(aggregator.init, batch)) for batch in batches)
    assert same([aggregator.finish(split)], [expected(aggregator, records)])


def expected(aggregator: CombinerAggregator, records: list[Any]) -> Any:
    """What SQL says, reckoned over all records at once."""
    present = [value for value in records if value is not None]
    if isinstance(aggregator, Count):
        return len(records if aggregator.input is None else present)
    if isinstance(aggregator, Histogram):
        edges = [-math.inf, *map(float, aggregator.edges)]
        above = [sum(math.isnan(value) or value >= edge for value in present) for edge in edges]
        return [n - later for n, later in zip(above, [*above[1:], 0], strict=True)]
    if not present:
        return None
    if isinstance(aggregator, BoolAnd | BoolOr):
        return all(present) if isinstance(aggregator, BoolAnd) else any(present)
    if isinstance(aggregator, Variance):
        return _spread(aggregator, [Fraction(value) for value in present])
    if isinstance(aggregator, Avg):
        total = (
            sum((Decimal(value) for value in present), Decimal(0))
            if isinstance(present[0], Decimal)
            else Decimal(sum(present))
        )
        from decimal import localcontext

        with localcontext(prec=80):
            return total / len(present)
    if isinstance(aggregator, Sum):
        return sum(present)
    key: Callable[[Any], Any] = (
        (lambda value: (math.isnan(value), value)) if isinstance(present[0], float) else lambda value: value
    )
    return (max if isinstance(aggregator, Max) else min)(present, key=key)


def _spread(aggregator: Variance, values: list[Fraction]) -> Decimal | None:
    """As the books define it: how far from the mean."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    exact = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    variance = EXACT.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return EXACT.sqrt(variance) if isinstance(aggregator, StdDev) else variance


def test_of_nothing() -> None:
    assert [each.finish(each.zero()) for each in (Count(), Sum("v"), Avg("v"), Min("v"), Max("v"))] == [
        0,
        None,
        None,
        None,
        None,
    ]


def test_of_nulls_alone() -> None:
    found = [
        each.finish(each.combine(each.init(None), each.init(None)))
        for each in (Count(), Count("v"), Sum("v"), Avg("v"), Min("v"))
    ]
    assert found == [2, 0, None, None, None]


def test_average_of_what_has_an_exact_one() -> None:
    partial = reduce(Avg("v").combine, map(Avg("v").init, [1, 2, None, 4, 3]))
    assert (partial, Avg("v").finish(partial)) == ((10, 4), Decimal("2.5"))


@pytest.mark.parametrize(
    ("value", "cast"),
    [
        (0.1, "0.10"),
        (1.005, "1.01"),
        (-1.005, "-1.01"),
        (2, "2.00"),
        (Decimal("0.125"), "0.13"),
        (1e20, "100000000000000000000.00"),
    ],
)
def test_a_scale_casts_before_summing_as_spark_does(value: Any, cast: str) -> None:
    assert str(Sum("v", scale=2).init(value)[0]) == cast
    assert str(Avg("v", scale=2).init(value)[0]) == cast
    assert Sum("v", scale=2).init(None) == (None,)


@given(st.integers(BIGINT_MIN, BIGINT_MAX), st.integers(BIGINT_MIN, BIGINT_MAX))
def test_bigint_overflow_is_an_error_never_a_wrap(left: int, right: int) -> None:
    if BIGINT_MIN <= left + right <= BIGINT_MAX:
        assert COMBINE((left,), (right,)) == (left + right,)
    else:
        with pytest.raises(BadRecord, match="out of range"):
            COMBINE((left,), (right,))


@given(st.permutations([BIGINT_MAX, BIGINT_MAX, BIGINT_MIN, 1, -2, None]))
def test_only_a_total_that_does_not_fit_is_an_overflow(numbers: list[int | None]) -> None:
    assert COMBINE.whole([(number,) for number in numbers]) == (BIGINT_MAX - 2,)
    folded = fold(None, [Contribution(n, n, Change((each,))) for n, each in enumerate(numbers)], COMBINE)
    assert folded == (BIGINT_MAX - 2,)
    with refused("TX305", "9223372036854775808"):
        COMBINE.whole([(number,) for number in (*numbers, 3)])


def test_decimal_overflow_is_an_error() -> None:
    most = Decimal("9" * 38)
    assert COMBINE((most,), (Decimal(0),)) == (most,)
    assert COMBINE.whole([(most,), (Decimal(1),), (Decimal(-1),)]) == (most,)
    with pytest.raises(BadRecord, match="out of range"):
        COMBINE((most,), (Decimal(1),))


@given(st.text(), st.text())
def test_strings_compare_by_their_bytes(left: str, right: str) -> None:
    assume("\ud800" not in left + right)
    least = LEAST.merge(left, right)
    assert least.encode("utf-8", "surrogatepass") == min(
        left.encode("utf-8", "surrogatepass"), right.encode("utf-8", "surrogatepass")
    )


CAST = Sum("v", scale=1)._finite(Field("v", "double"))


@pytest.mark.parametrize(
    ("aggregator", "field", "types", "sql"),
    [
        (Count(), None, ["bigint"], ["count(1)"]),
        (Count("v"), "string", ["bigint"], ["count(`v`)"]),
        (Sum("v"), "int", ["bigint"], ["sum(cast(`v` as bigint))"]),
        (Sum("v"), "decimal(10,2)", ["decimal(38,2)"], ["sum(cast(`v` as decimal(38,2)))"]),
        (Sum("v", scale=4), "decimal(10,5)", ["decimal(38,4)"], ["sum(cast(`v` as decimal(38,4)))"]),
        (Sum("v", approximate=True), "double", ["double"], ["sum(cast(`v` as double))"]),
        (Avg("v"), "int", ["bigint", "bigint"], ["sum(cast(`v` as bigint))", "count(`v`)"]),
        (
            Avg("v"),
            "bigint",
            ["bigint", "bigint"],
            ["sum(shiftright(`v`, 32) + (shiftright(`v`, 31) & 1L))", "count(`v`)"],
        ),
        (Min("v"), "timestamp", ["timestamp"], ["min(`v`)"]),
        (Max("v"), "binary", ["binary"], ["max(`v`)"]),
        (BoolAnd("v"), "boolean", ["boolean"], ["bool_and(`v`)"]),
        (CountIf("v > 1"), None, ["bigint"], ["count(1)"]),
        (
            Histogram("v", [1, "2.5"]),
            "int",
            ["bigint"] * 3,
            [
                "count_if(`v` < cast('1' as decimal(38,0)))",
                "count_if(`v` >= cast('1' as decimal(38,0)) and `v` < cast('3' as decimal(38,0)))",
                "count_if(`v` >= cast('3' as decimal(38,0)))",
            ],
        ),
        (
            Histogram("v", [0.1]),
            "float",
            ["bigint"] * 2,
            ["count_if(`v` < double('0.1'))", "count_if(`v` >= double('0.1'))"],
        ),
        (
            Variance("v", scale=1),
            "double",
            ["decimal(38,1)", "decimal(38,2)", "bigint"],
            [
                f"sum(cast(cast({CAST} as decimal(18,1)) as decimal(38,1)))",
                f"sum(cast(cast({CAST} as decimal(18,1)) * cast({CAST} as decimal(18,1)) as decimal(38,2)))",
                "count(`v`)",
            ],
        ),
    ],
)
def test_columns(aggregator: CombinerAggregator, field: str | None, types: list[str], sql: list[str]) -> None:
    columns = aggregator.columns(Field("v", field) if field else None)
    assert [column.type for column in columns] == types
    assert [column.aggregate for column in columns] == sql


@pytest.mark.parametrize("kind", [Sum, Avg])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, 1e37])
def test_a_double_that_is_no_decimal_is_refused(kind: type[Sum], value: float) -> None:
    """R24: Spark's cast would make null of NaN and infinity, and an average would count them as zero."""
    with pytest.raises(
        BadRecord,
        match=rf"^TX305 \(no retry helps\): field 'v' is {re.escape(str(value))}, .*(filter such|smaller scale)",
    ):
        kind("v", scale=2).init(value)


@pytest.mark.parametrize(
    ("aggregator", "type_", "says"),
    [
        (Sum("v"), "double", "Sum of 'v', a double, is not exact: give scale=digits or approximate=True"),
        (Avg("v"), "float", "Avg of 'v', a float, is not exact: give scale=digits or approximate=True"),
        (Sum("v"), "string", "Sum of 'v', a string, is not exact: sum a number"),
        (Sum("v"), "timestamp", "sum a number"),
        *((kind("v", scale=2), "string", "a string, is not exact: sum a number") for kind in (Sum, Avg)),
        *(
            (
                kind("v", scale=scale),
                "double",
                f"of 'v', a double: scale={scale!r} is no number of digits .* give one of 0 to 38",
            )
            for kind in (Sum, Avg)
            for scale in (-1, 39, 2.5, True, "2")
        ),
        (
            Avg("v", scale=38),
            "int",
            "Avg of 'v', a int: scale=38 is no number of digits after the point; give one of 0 to 37",
        ),
        (Variance("v", scale=19), "double", "Variance of 'v', a double: scale=19 is no .*; give one of 0 to 18"),
        (Variance("v"), "double", "Variance of 'v', a double, is not exact: give scale=digits$"),
        (StdDev("v"), "decimal(38,19)", "squares would have 38 digits after the point; give a scale of 0 to 18"),
        (BoolAnd("v"), "string", "BoolAnd of 'v', a string: it is not true or false; make a boolean field of it"),
        (Histogram("v", [1]), "string", "Histogram of 'v', a string: edges are numbers; give a field of numbers"),
        (Histogram("v", ["1e37"]), "decimal(10,2)", "edge 1(0){37} has more digits than such a number can have"),
    ],
)
def test_no_exact_sum(aggregator: CombinerAggregator, type_: str, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        aggregator.columns(Field("v", type_))


@pytest.mark.parametrize(
    ("edges", "says"),
    [
        ([], "0 edges; give 1 to 63"),
        (range(64), "64 edges; give 1 to 63"),
        ([1, 1], "each must be greater than the one before"),
        ([1, math.nan], "leave out NaN and infinity"),
        (["low"], "give a list of numbers that rise"),
        (3, "give a list of numbers that rise"),
    ],
)
def test_edges_that_make_no_histogram(edges: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=rf"^TX105 \(no retry helps\): Histogram of 'v': .*{says}"):
        Histogram("v", edges)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: TopN(0, "v"), ("TX105", "TopN", "'v'", "1,000")),
        (lambda: TopN("v", 3), ("TX105", "TopN", "3", "'v'")),  # type: ignore[arg-type]
        (lambda: CollectSet("v", 1001), ("TX105", "CollectSet", "'v'", "1001", "1,000")),
        (lambda: ApproxQuantile("v", 95), ("TX105", "ApproxQuantile", "'v'", "95", "0", "1")),
        (lambda: ApproxQuantile("v", math.nan), ("TX105", "quantile")),
        (lambda: ApproxQuantile("v", 0.5, error=0), ("TX105", "0.0001", "0.1")),
        (
            lambda: ApproxQuantile("v", 0.5).columns(Field("v", "date")),
            ("TX104", "'v'"),
        ),
    ],
)
def test_bounds_are_told_where_it_is_defined(made: Callable[[], Any], says: tuple[str, ...]) -> None:
    with refused(*says):
        made()


@given(
    st.lists(st.floats(min_value=-1e300, max_value=1e300), min_size=1),
    st.floats(0, 1),
    st.sampled_from([0.001, 0.01, 0.1]),
)
def test_a_quantile_is_as_near_as_it_says(values: list[float], quantile: float, error: float) -> None:
    """Near the value of that rank; where numbers end, a denormal has too few digits for it."""
    assume(all(value == 0 or abs(value) > 1e-300 for value in values))
    aggregator = ApproxQuantile("v", quantile, error=error)
    found = aggregator.finish(reduce(aggregator.combine, map(aggregator.init, values)))
    ranks = [n for n in range(1, len(values) + 1) if n >= quantile * len(values)]
    exact = sorted(values)[ranks[0] - 1]
    assert abs(found - exact) <= abs(exact) * (error + 1e-9)


def test_a_set_says_when_it_was_cut() -> None:
    kept = CollectSet("v", 2)
    sets = [reduce(kept.combine, map(kept.init, values)) for values in (["b", "a", "b"], ["c", "a", "b", None])]
    assert [kept.finish(each) for each in sets] == [["a", "b"], ["a", "b", None]]
    assert kept.finish(kept.zero()) is None


@pytest.mark.parametrize("value", [10**18, Decimal("1234567890123456.789")])
def test_what_has_no_square_that_can_be_summed(value: Any) -> None:
    """R24: as in Spark, where the cast fails."""
    with refused("TX305", "18"):
        Variance("v").init(value)


@pytest.mark.parametrize("aggregator", [Sum("v"), Avg("v"), Min("v"), Max("v"), Variance("v"), Histogram("v", [1])])
def test_an_input_is_needed(aggregator: CombinerAggregator) -> None:
    with pytest.raises(DefinitionError, match="needs the name of a field"):
        aggregator.columns(None)


def test_an_aggregator_of_ones_own_must_be_whole() -> None:
    class Mine(CombinerAggregator):
        pass

    for call in (lambda: Mine().columns(None), lambda: Mine().init(1)):
        with pytest.raises(DefinitionError, match="Mine defines no"):
            call()


def test_a_condition_leaves_records_out_of_one_value() -> None:
    column = Sum("v", where="v > 1").columns(Field("v", "int"))[0]
    assert column.spark() == "sum(cast(`v` as bigint))"
    assert column.spark("counts") == "sum(cast(`v` as bigint)) FILTER (WHERE counts)"
    of_halves = Sum("v").columns(Field("v", "bigint"))[0].spark("counts")
    assert of_halves.count(") FILTER (WHERE counts)") == of_halves.count("sum(") == 3
    said = [
        each.described for each in (Count(), Sum("v"), CountIf("v > 1"), Max("v", where=bool), Histogram("v", [1, 2]))
    ]
    assert said == [
        "Count",
        "Sum of v",
        "CountIf where v > 1",
        "Max of v where a function holds",
        "Histogram of v by 1, 2",
    ]


@pytest.mark.parametrize(
    ("where", "aggregate", "says"),
    [
        ("", "max(v)", r"^TX110 \(no retry helps\): state 's': x: where '' is no condition"),
        (lambda: True, "max(v)", "is called with one argument"),
        ("v > 1", "max(v) - min(v)", "where cannot be said of 'max.v. - min.v.', which is more than one call"),
        ("v > 1", "first(v).x", "more than one call"),
    ],
)
def test_a_condition_that_cannot_be_said(where: Any, aggregate: str, says: str) -> None:
    check_where("state 's': x", "v > 1", "sum(cast(concat(')', `a(`, \"(\") as int))")
    with pytest.raises(DefinitionError, match=says):
        check_where("state 's': x", where, aggregate)


def test_spark_names() -> None:
    assert spark_name("a`b") == "`a``b`"
