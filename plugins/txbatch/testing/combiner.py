"""Checks whether an aggregator combines well: any batches in any order give the same result as all records at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import reduce
from math import isclose
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn

from txbatch.arrow import arrow_array
from txbatch.core.aggregates.aggregator import CombinerAggregator, PartialColumn
from txbatch.core.aggregates.merge import Partial
from txbatch.core.aggregates.python_combiner import own_combiners
from txbatch.core.errors import BadFunction, BadRecord, BrokenCombiner, DefinitionError, MissingPart, UnknownField
from txbatch.core.records.comparing import key_of
from txbatch.core.records.declared import fields_ddl, values_of
from txbatch.core.records.fields import Field, array_of, parse_fields
from txbatch.core.records.python_types import fitted, misfit
from txbatch.core.text import describe_record
from txbatch.direct.functions import init_of
from txbatch.testing.values import some_value

if TYPE_CHECKING:
    from txbatch.core.records.declared import Fields

Record = Mapping[str, Any]
RECORDS_MAX = 6
# How near two sums of doubles are that were added in another order.
NEAR = 1e-9


def check_combiner(
    aggregator: CombinerAggregator, fields: Fields, *, records: Sequence[Any] | None = None, examples: int = 100
) -> None:
    """Check an aggregator's `zero`, `combine`, `finish` and declared partial columns on random records with the given fields.

    If hypothesis is installed, hypothesis looks for a small counterexample; without hypothesis, random numbers have fixed
    seeds. If `records` are given, records are drawn from `records`. Raise DefinitionError with a counterexample unless
    `combine` is associative and commutative, leaves the arguments unchanged, has `zero` as the neutral element, and makes the
    same of any batches in any order as of all records at once. Raise DefinitionError also unless partials return unchanged
    from columns of the declared types. Records refused by the aggregator with BadRecord are left out.
    """
    check = _Check(aggregator, parse_fields(fields_ddl(fields)), records)
    _for_random_numbers(check.once, examples)
    if not check.taken:
        raise MissingPart(
            f"{aggregator.described} refused every record that was tried; give some that it takes, records=[...]"
        )


class _Check:
    """Tries an aggregator on records chosen by random numbers."""

    def __init__(self, aggregator: CombinerAggregator, fields: Sequence[Field], given: Sequence[Any] | None) -> None:
        self.aggregator: CombinerAggregator = own_combiners({"tried": aggregator})["tried"]
        self.fields = fields
        self.columns = self.aggregator.columns_of(self._field)
        self.result = self._result()
        names = [field.name for field in fields]
        self.given = [_named(record, names) for record in given or ()]
        self.taken = 0

    def once(self, random: Random) -> None:
        """Check some records, cut into three batches; raise DefinitionError with a counterexample."""
        try:
            self._check(random)
        except BadRecord as error:
            self._fail(error.text)

    def _check(self, random: Random) -> None:
        tried = [self._init(random) for _ in range(random.randint(0, RECORDS_MAX))]
        inits = [self._partial("init", init) for init in tried if init is not None]
        zero = self._partial("zero()", self.aggregator.zero())
        for init in inits:
            self._check_same(f"zero is not neutral: combine({zero!r}, {init!r})", self._combine(zero, init), init)
            self._check_same(f"zero is not neutral: combine({init!r}, {zero!r})", self._combine(init, zero), init)
        self._check_laws(*self._batches(inits, zero, random))
        once = self._partial("combine", reduce(self._combine, inits, zero))
        others = random.sample(inits, len(inits))
        self._check_same(f"combine depends on order: of {others!r} it", reduce(self._combine, others, zero), once)
        self._check_finish(once)

    def _check_finish(self, partial: Partial) -> None:
        finished = self.aggregator.finish(partial)
        if self.result is not None and (why := misfit(fitted(finished, self.result), self.result)):
            self._fail(f"finish of {partial!r} made {finished!r}, declared {self.result}: {why}")

    def _result(self) -> str | None:
        """Return the type of `finish`'s result; None if undeclared, or no field's type."""
        with suppress(DefinitionError):
            return self.aggregator.result_type(self._field)
        return None

    def _batches(self, inits: Sequence[Partial], zero: Partial, random: Random) -> list[Partial]:
        """Return the partials of three batches with the records in order."""
        first, second = sorted(random.randint(0, len(inits)) for _ in range(2))
        return [reduce(self._combine, part, zero) for part in (inits[:first], inits[first:second], inits[second:])]

    def _check_laws(self, one: Partial, two: Partial, three: Partial) -> None:
        both, turned = self._combine(one, two), self._combine(two, one)
        self._check_same(f"combine is not commutative: combine({two!r}, {one!r})", turned, both)
        left, right = self._combine(both, three), self._combine(one, self._combine(two, three))
        self._check_same(f"combine is not associative: combine({one!r}, combine({two!r}, {three!r}))", right, left)

    def _field(self, name: str) -> Field:
        for field in self.fields:
            if field.name == name:
                return field
        known = ", ".join(field.name for field in self.fields)
        raise UnknownField(f"{self.aggregator.described} reads {name!r}, which is not among the fields {known}")

    def _init(self, random: Random) -> Partial | None:
        """Return the partial of some record; None if the aggregator refuses the record."""
        some = {field.name: some_value(field.type, random) for field in self.fields}
        record = random.choice(self.given) if self.given else some
        try:
            made = init_of(self.aggregator, record)
        except BadFunction as error:
            self._fail(f"for the record {describe_record(record)}, {error.text}")
        except BadRecord:
            return None
        self.taken += 1
        return made

    def _combine(self, left: Partial, right: Partial) -> Partial:
        given = deepcopy((left, right))
        made = self.aggregator.combine(left, right)
        if repr(given) != repr((left, right)):
            self._fail(f"combine changes its arguments: {given!r} became {(left, right)!r}")
        return made

    def _partial(self, what: str, partial: Any) -> Partial:
        """Return a partial that returns unchanged from the partial's columns."""
        if not isinstance(partial, tuple) or len(partial) != len(self.columns):
            types = ", ".join(column.type for column in self.columns)
            self._fail(f"{what} made {partial!r}; a partial is a tuple of the columns {types}")
        for value, column in zip(partial, self.columns, strict=True):
            try:
                back = _stored(value, column)
            except BadRecord as error:
                self._fail(f"{what} made {partial!r}: {error.text}")
            if not _same(value, back, column):
                self._fail(f"{what} made {partial!r}, which comes back from a {column.type} as {back!r}")
        return partial

    def _check_same(self, what: str, found: Partial, expected: Partial) -> None:
        if len(found) != len(expected) or not all(map(_same, found, expected, self.columns)):
            self._fail(f"{what} is {found!r}, not {expected!r}")

    def _fail(self, why: str) -> NoReturn:
        raise BrokenCombiner(f"{self.aggregator.described}: {why}")


def _named(record: Any, names: Sequence[str]) -> Record:
    if isinstance(record, Mapping):
        return record
    return dict(zip(names, values_of(record, names), strict=True))


def _stored(value: Any, column: PartialColumn) -> Any:
    """Return a value after a way through a file of partials. Raise BadRecord if the value misfits the column's type."""
    element = array_of(column.type)
    values = value if element is not None and isinstance(value, list | tuple) else [value]
    field = Field(column.suffix.strip("_") or "value", element or column.type)
    back = arrow_array(values, field, "an aggregator made").to_pylist()
    return back if values is value else back[0]


def _same(one: Any, other: Any, column: PartialColumn) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return key_of(one) == key_of(other)
    if key_of([one]) == key_of([other]):
        return True
    near = not column.exact and isinstance(one, float) and isinstance(other, float)
    return near and isclose(one, other, rel_tol=NEAR, abs_tol=NEAR)


def _for_random_numbers(check: Callable[[Random], None], examples: int) -> None:
    """Check with `examples` sources of random numbers, from hypothesis if installed."""
    try:
        from hypothesis import HealthCheck, given, settings
        from hypothesis import strategies as st
    except ImportError:
        for seed in range(examples):
            check(Random(seed))  # noqa: S311
        return

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def checked(random: Random) -> None:
        check(random)

    checked()
