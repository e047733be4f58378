"""`check_combiner` finds what is wrong with an aggregator, names a counterexample, and passes all of ours."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from every_aggregate import FIELDS, aggregates, own_aggregates
from refusals import refused

from txbatch import CombinerAggregator, Count, Max, Sum
from txbatch.core.aggregates.aggregator import PartialColumn
from txbatch.core.aggregates.merge import ADD, Partial
from txbatch.core.errors import BadRecord, DefinitionError
from txbatch.core.records.fields import Field
from txbatch.testing import check_combiner

Check = Callable[..., None]


@pytest.fixture(params=["hypothesis", "random"])
def check(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Check:
    """`check_combiner` with hypothesis, and as where it is not installed."""

    def checked(*arguments: Any, **more: Any) -> None:
        with monkeypatch.context() as patch:
            if request.param == "random":
                patch.setitem(sys.modules, "hypothesis", None)
            check_combiner(*arguments, **more)

    return checked


class Own(CombinerAggregator):
    """An aggregator of a user's, whose combine is Python."""

    def columns(self, input: Field | None) -> tuple[PartialColumn, ...]:
        return (PartialColumn("", "bigint", ADD, "sum(n)"),)

    def init(self, value: Any) -> Partial:
        return (value or 0,)

    def zero(self) -> Partial:
        return (0,)

    def combine(self, left: Partial, right: Partial) -> Partial:
        return (left[0] + right[0],)


class Difference(Own):
    def combine(self, left: Partial, right: Partial) -> Partial:
        return (left[0] - right[0],)


class Newest(Own):
    """Associative, and not commutative."""

    def zero(self) -> Partial:
        return (None,)

    def combine(self, left: Partial, right: Partial) -> Partial:
        return left if right[0] is None else right


class Middle(Own):
    """Commutative, with a zero, and not associative."""

    def zero(self) -> Partial:
        return (None,)

    def combine(self, left: Partial, right: Partial) -> Partial:
        if left[0] is None or right[0] is None:
            return right if left[0] is None else left
        return ((left[0] + right[0]) // 2,)


class FromOne(Own):
    def zero(self) -> Partial:
        return (1,)


class Fraction(Own):
    def init(self, value: Any) -> Partial:
        return ((value or 0) / 2,)


class Two(Own):
    def init(self, value: Any) -> Partial:
        return (value, 1)


class Listed(Own):
    """Appends to what it is given."""

    def columns(self, input: Field | None) -> tuple[PartialColumn, ...]:
        return (PartialColumn("", "array<bigint>", ADD, "sum(n)"),)

    def init(self, value: Any) -> Partial:
        return ([value],)

    def zero(self) -> Partial:
        return ([],)

    def combine(self, left: Partial, right: Partial) -> Partial:
        left[0].extend(right[0])
        return left


@pytest.mark.parametrize("name", aggregates())
def test_all_of_ours_pass(name: str) -> None:
    check_combiner(aggregates()[name], FIELDS, examples=15)


def test_one_of_a_user_that_is_right_passes(check: Check) -> None:
    check(Own("n"), "n bigint")
    check(Sum("x", approximate=True), "x double", records=[0.1, 0.2, 0.3, 1e-9, None])


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            Difference,
            r"^TX120 \(no retry helps\): Difference of n: zero is not neutral: "
            r"combine\(\(0,\), \((-?\d+),\)\) is \((-?\d+),\), not \(",
        ),
        (Newest, r"Newest of n: (combine is not commutative: combine\(|combine depends on order: of \[)"),
        (Middle, r"Middle of n: (combine is not associative: combine\(.*, combine\(|combine depends on order: of \[)"),
        (FromOne, r"FromOne of n: zero is not neutral: combine\(\(1,\), "),
        (Fraction, r"Fraction of n: init made \(.*\.\d,\): an aggregator made .* for 'value', declared bigint"),
        (Two, r"Two of n: init made \(.*, 1\); a partial is a tuple of the columns bigint"),
        (Listed, r"Listed of n: combine changes its arguments: "),
    ],
)
def test_what_is_wrong_is_named_with_a_counterexample(check: Check, wrong: type[Own], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        check(wrong("n"), "n bigint")


@pytest.mark.parametrize(
    ("aggregator", "told"),
    [
        (Max("x"), ("TX103", "'x'")),
        (Count(where="n > 0"), ("TX113", "'n > 0'", "Spark")),
        (Sum("n", scale=37), ("TX106", "Sum")),
    ],
)
def test_what_it_cannot_check_is_refused(aggregator: CombinerAggregator, told: tuple[str, ...]) -> None:
    with refused(*told):
        check_combiner(aggregator, "n bigint", records=[10**6])


@pytest.mark.parametrize("name", own_aggregates())
def test_those_that_declare_a_partial_pass(check: Check, name: str) -> None:
    aggregator = own_aggregates()[name]
    check(aggregator, FIELDS, examples=20)


class Mean(CombinerAggregator):
    """A mean of means, which is none."""

    partial = "mean double"

    def init(self, value: Any) -> Any:
        return None if value is None else (float(value),)

    def combine(self, left: Partial, right: Partial) -> Any:
        return ((left[0] + right[0]) / 2,)


class Text(Mean):
    """Its partial does not fit its declared type once two records are combined."""

    def combine(self, left: Partial, right: Partial) -> Any:
        return (f"{left[0]} {right[0]}",)


class Later(Mean):
    """Its init gives another type than it declares, of some records alone."""

    def init(self, value: Any) -> Any:
        return (str(value) if value else 0.0,)


class Choosy(Mean):
    """It refuses some records, as it may, and partials, as it may not."""

    def init(self, value: Any) -> Any:
        if value == 9:
            raise BadRecord("9 is refused")
        return (float(value),)

    def combine(self, left: Partial, right: Partial) -> Any:
        if left[0] == right[0] == 4:
            raise BadRecord("4 is refused")
        return (max(left[0], right[0]),)


class Worded(Own):
    """Its finish makes another type than it declares; its partial is one of its own, which it merges by itself."""

    def finish(self, partial: Partial) -> Any:
        return f"{partial[0]} records"

    def result_type(self, field: Any) -> str:
        return "bigint"


class Inverse(Mean):
    """Its init raises for a nought."""

    def init(self, value: Any) -> Any:
        return (1 / value,)


@pytest.mark.parametrize(
    ("aggregator", "says"),
    [
        (
            Later("n"),
            r"^TX120 \(no retry helps\): Later of n: .*init returned '[49]' for "
            "'mean', declared double: it is of the type str; convert it",
        ),
        (Choosy("n"), r"^TX120 \(no retry helps\): Choosy of n: 4 is refused"),
        (
            Worded("n"),
            r"^TX120 \(no retry helps\): Worded of n: finish of .* made '.* records', declared bigint: it is of the type str",
        ),
        (Mean("n"), r"^TX120 \(no retry helps\): Mean of n: combine (is not associative: combine|depends on order)"),
        (Text("n"), "combine returned '.*' for 'mean', declared double: it is of the type str; convert it there"),
        (
            Inverse("n"),
            r"for the record {'n': 0}, value 'tried': Inverse: init raised ZeroDivisionError: division by zero",
        ),
    ],
)
def test_what_is_wrong_with_one_that_declares_a_partial(check: Check, aggregator: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        check(aggregator, "n int", records=[0, 4, 9])
