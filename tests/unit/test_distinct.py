"""ApproxCountDistinct and DistinctSketch: exact while there are few, near while there are many, the same in whatever batches."""

from __future__ import annotations

import random
from decimal import Decimal
from functools import reduce
from typing import Any

import pytest
from refusals import refused

from txbatch import ApproxCountDistinct, DistinctSketch
from txbatch.core.records.fields import Field


def counted(values: list[Any], lg_k: int = 11) -> tuple[Any, list[int]]:
    aggregator = ApproxCountDistinct("v", lg_k=lg_k)
    (hashes,) = reduce(aggregator.combine, map(aggregator.init, values), aggregator.zero())
    return aggregator.finish((hashes,)), hashes


def test_few_are_counted_exactly() -> None:
    assert counted([])[0] == counted([None])[0] == 0
    assert counted(["a", "b", "a", "", None])[0] == 3
    assert counted([f"user {n}" for n in range(15)], 4)[0] == 15


def test_many_are_counted_about() -> None:
    """Twice the standard error; texts, numbers and times have hashes as good as another's."""
    for number in (20, 500, 5_000):
        found, hashes = counted([f"user {n % number}" for n in range(2 * number)], 8)
        assert abs(found / number - 1) < 2 / 16
        assert len(hashes) == min(number, 256)


def test_batches_come_in_any_way() -> None:
    chosen, values = random.Random(3), list(range(300))
    aggregator, once = ApproxCountDistinct("v", lg_k=5), counted(list(range(300)), 5)
    chosen.shuffle(values)
    halves = (reduce(aggregator.combine, map(aggregator.init, part)) for part in (values[:100], values[70:]))
    assert reduce(aggregator.combine, halves) == (once[1],)


def test_equal_values_have_one_hash() -> None:
    assert (
        counted([Decimal("1.50"), Decimal("1.5"), Decimal("-0.00"), Decimal(0), Decimal("1E+1"), Decimal(10)])[0] == 3
    )
    assert counted([0.0, -0.0, float("nan"), float("nan"), 1.0])[0] == 3
    assert counted([Decimal("1." + "1" * 37), Decimal("1." + "1" * 36 + "2")])[0] == 2


@pytest.mark.parametrize("lg_k", [3, 15, 11.0, True, "11"])
def test_how_many_hashes_are_kept(lg_k: Any) -> None:
    with refused("TX105", "lg_k", "14", "11", "2,048", "key"):
        ApproxCountDistinct("v", lg_k=lg_k)


def test_a_sketch_says_below_what_it_has_all() -> None:
    sketch, (_, hashes) = DistinctSketch("v", lg_k=4), counted([*range(16)], 4)
    assert sketch.finish(sketch.zero()) == [2**60]
    assert sketch.finish((hashes[:15],)) == [*hashes[:15], 2**60]
    assert sketch.finish((hashes,)) == hashes
    assert sketch.described == "DistinctSketch of v by 16 hashes"


def test_its_column() -> None:
    (column,) = ApproxCountDistinct("v", lg_k=4).columns(Field("v", "decimal(9,2)"))
    assert (column.suffix, column.type, str(column.merge)) == ("_hashes", "array<bigint>", "smallest(16)")
    assert "trim(trailing '0' from cast(`v` as string))" in str(column.each)
