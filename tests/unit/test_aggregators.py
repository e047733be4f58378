"""The laws of CombinerAggregator: what PostgreSQL, Spark and memory rely on when they combine in any order."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from txbatch import Avg, CombinerAggregator, Count, Max, Min, Sum
from txbatch.core.errors import BadRecord, DefinitionError
from txbatch.core.fields import Field
from txbatch.core.merge import ADD, BIGINT_MAX, BIGINT_MIN, LEAST
from txbatch.core.spark_sql import spark_name

integers = st.none() | st.integers(-(2**40), 2**40)
decimals = st.none() | st.decimals(-(10**20), 10**20, places=2)
strings = st.none() | st.text()
floats = st.none() | st.floats(allow_nan=True).map(lambda value: value + 0.0)  # one zero
booleans = st.none() | st.booleans()
dates = st.none() | st.dates()

AGGREGATORS: list[tuple[CombinerAggregator, st.SearchStrategy[Any]]] = [
    (Count(), integers),
    (Count("v"), strings),
    (Sum("v"), integers),
    (Sum("v"), decimals),
    (Sum("v", scale=2), decimals),
    (Avg("v"), integers),
    (Avg("v"), decimals),
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
    if not present:
        return None
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
        assert ADD.merge(left, right) == left + right
    else:
        with pytest.raises(BadRecord, match="out of range"):
            ADD.merge(left, right)


def test_decimal_overflow_is_an_error() -> None:
    most = Decimal("9" * 38)
    assert ADD.merge(most, Decimal(0)) == most
    with pytest.raises(BadRecord, match="out of range"):
        ADD.merge(most, Decimal(1))


@given(st.text(), st.text())
def test_strings_compare_by_their_bytes(left: str, right: str) -> None:
    assume("\ud800" not in left + right)
    least = LEAST.merge(left, right)
    assert least.encode("utf-8", "surrogatepass") == min(
        left.encode("utf-8", "surrogatepass"), right.encode("utf-8", "surrogatepass")
    )


@pytest.mark.parametrize(
    ("aggregator", "field", "types", "sql"),
    [
        (Count(), None, ["bigint"], ["count(1)"]),
        (Count("v"), "string", ["bigint"], ["count(`v`)"]),
        (Sum("v"), "int", ["bigint"], ["sum(cast(`v` as bigint))"]),
        (Sum("v"), "decimal(10,2)", ["decimal(38,2)"], ["sum(cast(`v` as decimal(38,2)))"]),
        (Sum("v", scale=4), "decimal(10,5)", ["decimal(38,4)"], ["sum(cast(`v` as decimal(38,4)))"]),
        (Sum("v", approximate=True), "double", ["double"], ["sum(cast(`v` as double))"]),
        (Avg("v"), "bigint", ["bigint", "bigint"], ["sum(cast(`v` as bigint))", "count(`v`)"]),
        (Min("v"), "timestamp", ["timestamp"], ["min(`v`)"]),
        (Max("v"), "binary", ["binary"], ["max(`v`)"]),
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
    with pytest.raises(BadRecord, match=rf"^field 'v' is {re.escape(str(value))}, .*(filter such|smaller scale)"):
        kind("v", scale=2).init(value)


@pytest.mark.parametrize(
    ("aggregator", "type_", "says"),
    [
        (Sum("v"), "double", "Sum of 'v', a double, is not exact: give scale=digits or approximate=True"),
        (Avg("v"), "float", "Avg of 'v', a float, is not exact: give scale=digits or approximate=True"),
        (Sum("v"), "string", "Sum of 'v', a string, is not exact: sum a number"),
        (Sum("v"), "timestamp", "sum a number"),
    ],
)
def test_no_exact_sum(aggregator: CombinerAggregator, type_: str, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        aggregator.columns(Field("v", type_))


@pytest.mark.parametrize("aggregator", [Sum("v"), Avg("v"), Min("v"), Max("v")])
def test_an_input_is_needed(aggregator: CombinerAggregator) -> None:
    with pytest.raises(DefinitionError, match="needs the name of a field"):
        aggregator.columns(None)


def test_an_aggregator_of_ones_own_must_be_whole() -> None:
    class Mine(CombinerAggregator):
        pass

    for call in (lambda: Mine().columns(None), lambda: Mine().init(1)):
        with pytest.raises(DefinitionError, match="Mine defines no"):
            call()


def test_spark_names() -> None:
    assert spark_name("a`b") == "`a``b`"
