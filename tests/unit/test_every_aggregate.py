"""However records come, in whatever batches and order, every aggregate is that of all at once (R18)."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
from every_aggregate import every_aggregate, records
from hypothesis import given, settings
from hypothesis import strategies as st

from txbatch import Avg, CollectSet, CombinerAggregator, Count, First, Histogram, Last, OpaqueState, Sum
from txbatch.core.aggregates.merge import Partial
from txbatch.core.aggregates.merger import Merger
from txbatch.core.definition.changes import column_changes
from txbatch.core.definition.stored import columns
from txbatch.direct.emitter import partials_of

(AGGREGATE,) = every_aggregate().aggregates
COMBINE = Merger(AGGREGATE.merges)
BATCHES = st.lists(st.lists(records, max_size=5), min_size=1, max_size=5)


def shown(partials: dict[Any, Partial]) -> dict[Any, str]:
    """NaN is not equal to itself, its text is."""
    return {key: repr(values) for key, values in partials.items()}


@given(batches=BATCHES, chosen=st.randoms(use_true_random=False))
@settings(deadline=None)
def test_batched_in_any_way_is_all_at_once(batches: list[list[dict[str, Any]]], chosen: Any) -> None:
    together = dict(partials_of(AGGREGATE, [record for batch in batches for record in batch]))
    parts = [partials_of(AGGREGATE, chosen.sample(batch, len(batch))) for batch in batches]
    found: dict[Any, list[Partial]] = {}
    for key, partial in [each for part in chosen.sample(parts, len(parts)) for each in part]:
        found.setdefault(key, []).append(partial)
    for waiting in found.values():
        while len(waiting) > 1:  # grouped in any way, too
            waiting.append(COMBINE(waiting.pop(chosen.randrange(len(waiting))), waiting.pop()))
    assert shown({key: each for key, (each,) in found.items()}) == shown(together)


@given(found=st.lists(st.tuples(st.none() | st.integers(0, 2), st.none() | st.text(max_size=2)), max_size=8))
def test_first_and_last_are_those_of_the_sorted_records(found: list[tuple[int | None, str | None]]) -> None:
    known = [each for each in found if each[0] is not None]
    first = min(known, key=lambda each: (each[0], each[1] is None, each[1] or ""), default=(None, None))
    last = max(known, key=lambda each: (each[0], each[1] is not None, each[1] or ""), default=(None, None))
    for aggregator, expected in ((First("v", by="at"), first), (Last("v", by="at"), last)):
        partials = [aggregator.init_of({"at": at, "v": value}) for at, value in found]
        assert reduce(aggregator.combine, partials, aggregator.zero()) == expected


def test_a_value_by_a_field_names_both_columns() -> None:
    (at, value) = Last("page", by="ts").columns_of(lambda name: AGGREGATE.stream.fields[0].__class__(name, "string"))
    assert (at.suffix, value.suffix) == ("_by", "")
    assert value.spark("counts") == (
        "(max(struct(`ts` as at, `page` as value)) FILTER (WHERE `ts` is not null AND counts)).value"
    )
    assert Last("page", by="ts").described == "Last of page by ts"


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        (
            CollectSet("word", 2),
            CollectSet("word", 9),
            "changes from CollectSet of word, at most 2, and null behind them if there are more to CollectSet of word, at most 9",
        ),
        (Histogram("n", [1]), Histogram("n", [2]), "changes from Histogram of n by 1 to Histogram of n by 2"),
        (Count(), Count(where="n > 1"), "changes from Count to Count where n > 1"),
        (First("n", by="x"), Last("n", by="x"), "changes from First of n by x to Last of n by x"),
    ],
)
def test_what_counts_otherwise_is_another_aggregate(
    before: CombinerAggregator, now: CombinerAggregator, says: str
) -> None:
    """R23: what is stored would be mixed with what is not alike."""

    def stored(aggregator: CombinerAggregator) -> Any:
        stream = every_aggregate().streams["in"]
        return columns(stream.group_by("k").persistent_aggregate(OpaqueState("other"), x=aggregator))

    assert says in "; ".join(column_changes("other", stored(before), stored(now)))
    assert not list(column_changes("other", stored(now), stored(now)))


def test_another_aggregate_of_the_same_columns_is_told() -> None:
    """R23: of a state apart no step comes before, which would take the columns away."""

    def stored(**values: CombinerAggregator) -> Any:
        stream = every_aggregate().streams["in"]
        return columns(stream.group_by("k").persistent_aggregate(OpaqueState("other"), **values))

    mean, parts = stored(n=Avg("n")), stored(n_sum=Sum("n"), n_count=Count("n"))
    value = "value {} of state 'other' is {}".format
    assert list(column_changes("other", mean, parts)) == [
        value("'n'", "gone"),
        value("'n_sum'", "new (Sum of n)"),
        value("'n_count'", "new (Count of n)"),
    ]
    assert value("'n'", "new (Avg of n)") in list(column_changes("other", parts, mean))
