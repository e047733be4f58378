"""Set operations over sketches of different values, in SQL: exact while no hash was left out, near where some were."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
from sqlalchemy import Engine, text

from txbatch import DistinctSketch
from txbatch.core.aggregates.merge import Smallest
from txbatch.postgres.database.warehouse_migrations import migrate_warehouse

COUNTS = """
SELECT report.distinct_count(:one), report.distinct_count(report.distinct_union(:one, :other)),
       report.distinct_count(report.distinct_intersection(:one, :other)),
       report.distinct_count(report.distinct_difference(:one, :other)),
       report.distinct_count((SELECT report.distinct_union(x) FROM (VALUES (:one), (NULL), (:other), (:one)) v (x)))
"""


def sketch(values: range | None, lg_k: int = 11) -> list[int] | None:
    if values is None:
        return None
    aggregator = DistinctSketch("user", lg_k=lg_k)
    found: Any = aggregator.finish(reduce(aggregator.combine, map(aggregator.init, values), aggregator.zero()))
    return list(found)


def counts(engine: Engine, one: list[int] | None, other: list[int] | None) -> list[int]:
    arrays = COUNTS.replace(":one", "CAST(:one AS bigint[])").replace(":other", "CAST(:other AS bigint[])")
    with engine.connect() as connection:
        migrate_warehouse(connection, create=True)
        return list(connection.execute(text(arrays), {"one": one, "other": other}).one())


@pytest.mark.parametrize(
    ("one", "other", "expected"),  # of one; of their union, their intersection, their difference
    [
        (range(100), range(70, 200), [100, 200, 30, 70]),
        (range(9), range(20, 30), [9, 19, 0, 9]),
        (range(9), range(9), [9, 9, 9, 0]),
        (range(5), range(0), [5, 5, 0, 5]),
        (range(5), None, [5, 5, 0, 5]),
        (None, range(5), [0, 5, 0, 0]),
        (None, None, [0, 0, 0, 0]),
    ],
)
def test_few_are_counted_exactly(engine: Engine, one: range | None, other: range | None, expected: list[int]) -> None:
    assert counts(engine, sketch(one), sketch(other)) == [*expected, expected[1]]


@pytest.mark.parametrize(("of_one", "of_other"), [(8, 8), (8, 11), (14, 8)])
def test_many_are_counted_about(engine: Engine, of_one: int, of_other: int) -> None:
    """Also of different sizes: four times the standard error, of samples that have so many of all."""
    found = counts(engine, sketch(range(3_000), of_one), sketch(range(1_000, 6_000), of_other))
    for number, expected in zip(found, (3_000, 6_000, 2_000, 1_000, 6_000), strict=True):
        near = 4 * (expected * 6_000 / 2 ** min(of_one, of_other)) ** 0.5
        assert number == pytest.approx(expected, abs=near)


@pytest.mark.parametrize("more", [[9], [9, 10], [8], [8, 9, 10], [1, 2, 9], [0, 3], [], None])
@pytest.mark.parametrize("kept", [[1, 2, 9], [1, 2], None])
def test_the_smallest_are_those_of_the_twin(engine: Engine, kept: list[int] | None, more: list[int] | None) -> None:
    expected = kept if more is None else more if kept is None else Smallest(3).both(kept, more)
    assert merged(engine, kept, more) == expected


def test_what_is_not_smaller_is_not_merged(engine: Engine) -> None:
    """What came in order a merge would have left so: an array that it would mend comes back as it is."""
    assert merged(engine, [1, 1, 9], [9, 10]) == [1, 1, 9]
    assert merged(engine, [1, 1, 9], [8, 10]) == [1, 8, 9]


def merged(engine: Engine, kept: list[int] | None, more: list[int] | None) -> list[int] | None:
    merge = "SELECT report.merge_smallest(CAST(:kept AS bigint[]), CAST(:more AS bigint[]), 3)"
    with engine.connect() as connection:
        return connection.execute(text(merge), {"kept": kept, "more": more}).scalar_one()
