"""A user's own combiner: what it declares, what it returns, and how it is told what does not fit."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from every_aggregate import Span, Weighted, Words, every_aggregate
from refusals import refused

from txbatch import CombinerAggregator, Count, FixedBatchSpout, OpaqueState, Topology
from txbatch.core.aggregates.merger import folded_columns
from txbatch.core.definition.stored import columns
from txbatch.core.records.python_types import misfit
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.direct.emitter import partials_of


def kept(**values: Any) -> PersistentAggregate:
    return every_aggregate(values=values).aggregates[0]


class Longest(CombinerAggregator):
    """Returns what a test says."""

    partial = "word string, size int"
    result = "int"
    made: Any = ("a", 1)
    combined: Any = ("a", 1)
    finished: Any = 1

    def __init__(self, **returns: Any) -> None:
        super().__init__("word")
        self.__dict__.update(returns)

    def init(self, value: Any) -> Any:
        return self.made

    def combine(self, left: Any, right: Any) -> Any:
        return self.combined

    def finish(self, partial: Any) -> Any:
        if self.finished is KeyError:
            raise KeyError("size")
        return self.finished


def test_its_columns_are_those_of_the_partial_and_what_it_is_finished_to() -> None:
    found = columns(kept(far=Span("price"), words=Words("word"), n=Count()))
    assert found["values"] == [
        ["far_low", "decimal(12,2)", "Span.combine"],
        ["far_high", "decimal(12,2)", "Span.combine"],
        ["far", "decimal(12,2)", "Span.combine"],
        ["words", "array<string>", "Words.combine"],
        ["n", "bigint", "add"],
    ]
    assert found["aggregates"] == {"far": "Span of price", "words": "Words of word", "n": "Count"}


def test_records_are_combined_and_nothing_is_never_seen() -> None:
    aggregate = kept(far=Span("price"), weighted=Weighted())
    records = [
        {"k": "a", "price": Decimal(3), "n": 2, "word": "abc"},
        {"k": "a", "price": None, "n": None, "word": None},
        {"k": "a", "price": Decimal(1), "n": 1, "word": "x"},
        {"k": "b", "price": None, "n": 1, "word": None},
    ]
    assert dict(partials_of(aggregate, records)) == {
        ("a",): (1, 3, 2, 3, 7, True, "7 of 3"),
        ("b",): (None, None, None, 1, 0, False, "0 of 1"),
    }


def test_within_a_batch_its_result_is_a_field() -> None:
    stream = Topology("t").new_stream("in", FixedBatchSpout("k string, price decimal(12,2)", 1, ("a", None)))
    assert [field.type for field in stream.group_by("k").aggregate(far=Span("price")).fields] == [
        "string",
        "decimal(12,2)",
    ]
    with refused("TX104", "'array<string>'"):
        stream.group_by("k").aggregate(words=Words("k"))


@pytest.mark.parametrize(
    ("returns", "says"),
    [
        ({"made": "a"}, ("TX307", "'x'", "'a'")),
        ({"made": ("a",)}, ("TX307", "'a'")),
        ({"made": ("a", 1.5)}, ("TX307", "1.5", "'size'")),
        ({"made": ("a", 2**31)}, ("TX307", "2147483648", "'size'")),
        ({"combined": (b"a", 1)}, ("TX307", "b'a'", "'word'")),
        ({"combined": ("a\0", 1)}, ("TX307", "'word'", "U+0000")),
        ({"finished": "1"}, ("TX307", "'1'")),
        ({"finished": KeyError}, ("TX307", "'a'", "1", "KeyError", "'size'")),
    ],
)
def test_what_does_not_fit_is_told(returns: Any, says: tuple[str, ...]) -> None:
    records = [{"k": "a", "word": "x"}, {"k": "a", "word": "y"}]
    with refused(*says):
        partials_of(kept(x=Longest(**returns)), records)


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ({"partial": "low float, high"}, ("TX105", "'high'")),
        ({"partial": "pair struct<a:int>"}, ("TX104", "nested")),
        ({"partial": "pair array<array<int>>"}, ("TX104", "nested")),
        (
            {"partial": "word string, size int", "result": None},
            ("TX106", "finish", "result"),
        ),
        ({"partial": "size int", "result": None}, ("TX106", "finish")),
        ({"result": "jsonb"}, ("TX104", "'jsonb'")),
        ({"zero": lambda self: 0}, ("TX120", "0")),
        ({"init": CombinerAggregator.init}, ("TX106", "'x'")),
        ({"combine": CombinerAggregator.combine}, ("TX106", "defines", "combine")),
    ],
)
def test_one_that_is_not_whole(declared: dict[str, Any], says: tuple[str, ...]) -> None:
    mine = type("Mine", (Longest,), declared)
    with refused(*says):
        kept(x=mine())


def test_postgresql_is_never_asked_to_merge() -> None:
    aggregate = kept(far=Span("price"))
    with refused("TX703", "Python", "PostgreSQL"):
        folded_columns(aggregate.merges, ["a", "b", "c"])


@pytest.mark.parametrize(
    ("value", "type_", "fits"),
    [
        (True, "bigint", False),
        (True, "boolean", True),
        (1, "boolean", False),
        (1, "double", True),
        (Decimal("1.50"), "decimal(3,2)", True),
        (Decimal("10.5"), "decimal(3,2)", False),
        (Decimal("0.005"), "decimal(3,2)", False),
        (Decimal("NaN"), "decimal(3,2)", False),
        (7, "decimal(3,2)", True),
        ([], "array<int>", True),
        ([None], "array<int>", False),
        ("ab", "array<string>", False),
        ("\ud800", "string", False),
        (None, "array<int>", True),
    ],
)
def test_which_values_a_type_takes(value: Any, type_: str, fits: bool) -> None:
    assert (misfit(value, type_) is None) is fits


def test_a_state_takes_it_beside_others() -> None:
    stream = Topology("t").new_stream("in", FixedBatchSpout("k string, price decimal(12,2)", 1, ("a", None)))
    aggregate = stream.group_by("k").persistent_aggregate(
        OpaqueState("s"), far=Span("price", where="k is null"), n=Count()
    )
    assert aggregate.by_python
    with refused("TX110", "''"):
        stream.group_by("k").persistent_aggregate(OpaqueState("r"), far=Span("price", where=""))
