"""TopNBy: texts are in the order of the values, and rows are those of the sorted records."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ordered_values import VALUES
from refusals import refused

from txbatch import OpaqueState, TopNBy
from txbatch.core.aggregates.top_n_by import ROW_BYTES_MAX
from txbatch.core.errors import DefinitionError
from txbatch.core.records.ordered_texts import BETWEEN, decode, ordered_text

# No state holds U+0000: PostgreSQL has no text with it, and the batch is refused.
HELD = st.characters(exclude_characters="\0", exclude_categories=["Cs"])


def in_order(one: Any, other: Any) -> None:
    """Also where another field stands behind, whose text may begin with anything."""
    assert (one < other) == (ordered_text(one) + BETWEEN + "\U0010ffff" < ordered_text(other) + BETWEEN)
    assert (one == other) == (ordered_text(one) == ordered_text(other))


@pytest.mark.parametrize("type_", VALUES)
def test_texts_are_in_the_order_of_the_values(type_: str) -> None:
    texts = [ordered_text(value) for value in VALUES[type_]]
    assert all(one + BETWEEN + "\U0010ffff" < other + BETWEEN for one, other in pairwise(texts))


@given(st.decimals(-(10**20), 10**20, places=4), st.decimals(-10, 10, places=2))
def test_decimals_are(one: Decimal, other: Decimal) -> None:
    in_order(one, other)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-100, 100))
def test_integers_are(one: int, other: int) -> None:
    in_order(one, other)


@given(st.floats(allow_nan=False), st.floats(-10, 10))
def test_doubles_are(one: float, other: float) -> None:
    in_order(one, other)


@given(st.text(st.sampled_from("\x01\x02\x03\x04a\U0001f600")), st.text(HELD))
def test_strings_are_and_come_back(one: str, other: str) -> None:
    in_order(one, other)
    assert decode(ordered_text(one)) == one


def test_what_is_shown_is_what_json_reads() -> None:
    assert [decode(ordered_text(each)) for each in (None, True, -7, Decimal("12.00"), Decimal("0.10"), 1e22, -0.0)] == [
        *(None, True, -7, 12, 0.1, 10**22, 0)
    ]
    assert [decode(ordered_text(each)) for each in VALUES["double"][-2:]] == ["Infinity", "NaN"]
    assert decode(ordered_text(float("-inf"))) == "-Infinity"
    most = Decimal("-0." + "9" * 38)
    assert (decode(ordered_text(-(10**37) - 1)), ordered_text(most)) == (-(10**37) - 1, f"n0989.{'0' * 38}~")
    assert decode(ordered_text(VALUES["timestamp"][2])) == "1969-12-31T23:59:59.999999+00:00"
    assert decode(ordered_text(VALUES["date"][1])) == "0001-01-01"
    assert decode(ordered_text(b"\x00a")) == "\\x0061"


RECORDS = st.tuples(
    st.none() | st.integers(0, 2), st.none() | st.text(HELD, max_size=2), st.none() | st.integers(8, 11)
)


@given(found=st.lists(RECORDS, max_size=8))
def test_rows_are_those_of_the_sorted_records(found: list[tuple[int | None, str | None, int | None]]) -> None:
    aggregator = TopNBy(2, ("name", "id"), by="at")
    partials = [aggregator.init_of({"at": at, "name": name, "id": id_}) for at, name, id_ in found]
    known = [each for each in found if each[0] is not None]
    known.sort(key=lambda each: [(part is not None, part if part is not None else 0) for part in each], reverse=True)
    expected = [{"id": id_, "name": name} for _, name, id_ in known[:2]]
    assert aggregator.finish(reduce(aggregator.combine, partials, aggregator.zero())) == (expected or None)


def test_a_row_has_its_fields_in_the_order_of_jsonb() -> None:
    rows = TopNBy(1, ("price", "b", "a\u00e9"), by="price")
    (row,) = rows.finish(rows.init_of({"price": 1, "b": 2, "a\u00e9": 3}))
    assert list(row) == ["b", "a\u00e9", "price"]


def test_how_it_is_told_and_asked_in_sql() -> None:
    rows = TopNBy(5, ("it's", "price"), by="sold_at", where="price > 1")
    assert rows.described == "TopNBy of it's, price, the 5 greatest by sold_at where price > 1"
    assert rows.inputs == ("sold_at", "it's", "price")
    assert rows.finish_sql(['s."top"']) == "report.top_rows(s.\"top\", ARRAY[NULL, 'it''s', 'price']::text[])"


def test_a_row_that_is_too_long_is_refused() -> None:
    """R24: as in Spark."""
    rows = TopNBy(5, ("id", "note"), by="id")
    (kept,) = rows.init_of({"id": 1, "note": "x" * (ROW_BYTES_MAX - 7)})
    assert len(kept[0]) == ROW_BYTES_MAX
    with refused("TX301", "'id'", "'note'", "65537", "65536"):
        rows.init_of({"id": 1, "note": "x" * (ROW_BYTES_MAX - 6)})


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: TopNBy(0, "v", by="v"), ("TX105", "1,000")),
        (lambda: TopNBy(1001, "v", by="v"), ("TX105", "1001")),
        (lambda: TopNBy(5, (), by="v"), ("TX105", "TopNBy", "fields")),
        (lambda: TopNBy(5, ("v", 3), by="v"), ("TX105", "fields", "names")),  # type: ignore[arg-type]
        (lambda: TopNBy(5, ("v", "v"), by="v"), ("TX102", "twice")),
        (lambda: TopNBy(5, ("v",), by=None), ("TX105", "field")),  # type: ignore[arg-type]
        (lambda: TopNBy(5, by="v"), ("TX105", "5", "TopN")),
        (lambda: TopNBy(5, ("v",)), ("TX105", "''")),
    ],
)
def test_bounds_are_told_where_it_is_defined(made: Callable[[], Any], says: tuple[str, ...]) -> None:
    with refused(*says):
        made()


def test_within_a_batch_it_is_refused() -> None:
    from every_aggregate import every_aggregate

    stream = every_aggregate().streams["in"]
    with pytest.raises(DefinitionError, match="TopNBy cannot be finished within a batch"):
        stream.group_by("k").aggregate(top=TopNBy(2, ("word",), by="n"))
    stream.group_by("k").persistent_aggregate(OpaqueState("kept"), top=TopNBy(2, ("word",), by="n"))
