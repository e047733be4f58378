"""OwnCombiner: a user's own CombinerAggregator in columns of a state; Python combines the columns, also in the commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from txbatch.core.aggregates.aggregator import CombinerAggregator, PartialColumn
from txbatch.core.aggregates.merge import Partial, RowMerge
from txbatch.core.errors import (
    BadFunction,
    BadRecord,
    BrokenCombiner,
    CannotAsk,
    MissingPart,
    TxbatchError,
)
from txbatch.core.records.fields import FLOATING_TYPES, Field, checked_array, checked_type, parse_fields
from txbatch.core.records.functions import describe_error, is_of_record
from txbatch.core.records.python_types import all_fit, misfit
from txbatch.core.text import repr_of

_SHOWN_MAX = 100
_COMBINE = "combine"


def own_combiners(aggregates: Mapping[str, Any], *, show: bool = True) -> dict[str, Any]:
    """Return the aggregators; an aggregator with a partial of its own is replaced by its columns.

    `show`: errors may show partials. DefinitionError names the value with an incomplete aggregator.
    """
    return {name: _own(name, each, show) for name, each in aggregates.items()}


def _own(name: str, aggregator: Any, show: bool) -> Any:
    if not isinstance(aggregator, CombinerAggregator) or aggregator.partial is None:
        return aggregator
    return OwnCombiner(name, aggregator, show=show)


def by_python(rule: str) -> bool:
    """Return True if the merge stored by this name runs in Python, like the merge of each own combiner."""
    return rule.endswith(f".{_COMBINE}")


class OwnCombiner(CombinerAggregator):
    """The columns of a user's own combiner: the declared partial, and behind the partial the result of `finish`.

    Without `result` the combiner has a single column, and reports show the column unchanged. A partial of nulls alone is the
    partial of no records.
    """

    def __init__(self, value: str, given: CombinerAggregator, *, show: bool = True) -> None:
        super().__init__(given.input, where=given.where, was=given.was, since=given.since)
        self.given, self.show = given, show
        self.of = f"value {value!r}: {type(given).__name__}"
        self.fields = parse_fields(given.partial or "", arrays=True)
        self.result = self._result()
        self.nothing: Partial = (None,) * len(self.fields)
        self._check_whole()

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.given.inputs

    @property
    def described(self) -> str:
        return self.given.described

    @property
    def outputs(self) -> tuple[Field, ...]:
        """The columns by their suffixes, with their types."""
        if self.result is None:
            return (Field("", self.fields[0].type),)
        return (*(Field(f"_{each.name}", each.type) for each in self.fields), Field("", self.result))

    def columns_of(self, field: Callable[[str], Field]) -> tuple[PartialColumn, ...]:
        for name in self.inputs:
            field(name)
        merge = ByPython(self)
        return tuple(PartialColumn(each.name, each.type, merge, "") for each in self.outputs)

    def init_of(self, record: Mapping[str, Any]) -> Partial:
        return self.row(self.made(record))

    def zero(self) -> Partial:
        return self.row(self.checked("zero", self.given.zero()))

    def combine(self, left: Partial, right: Partial) -> Partial:
        return self.rows(left, right)

    def finish(self, partial: Partial) -> Any:
        return partial[-1]

    def finish_sql(self, columns: Sequence[str]) -> str:
        return columns[-1]

    def result_type(self, field: Callable[[str], Field]) -> str:
        """Return the declared type of the result of `finish`; DefinitionError if no field can have the type."""
        return checked_type(self.outputs[-1].type)

    def finish_spark(self, columns: Sequence[str], type: str) -> str:
        return columns[-1]

    def made(self, record: Mapping[str, Any]) -> Partial:
        """Return the partial that `init` returns for a record; the partial of no records if `init` returns only nulls."""
        made = self._init(record)
        return self.given.zero() if made in (None, self.nothing) else self.checked("init", made)

    def _init(self, record: Mapping[str, Any]) -> Partial | None:
        try:
            return self.given.init_of(record)
        except Exception as error:
            if not is_of_record(error) or isinstance(error, BadRecord):
                raise
            raise self._raised("init", error) from (error if self.show else None)

    def combined(self, left: Partial, right: Partial) -> Partial:
        """Return two partials combined. BadFunction if `combine` fails, or if its values do not fit the declared types."""
        if left == self.nothing or right == self.nothing:
            return right if left == self.nothing else left
        return self.checked("combine", self._called("combine", left, right))

    def row(self, partial: Partial) -> Partial:
        """Return a partial, followed by the result of `finish`; `finish` is not called for the partial of no records."""
        if self.result is None:
            return partial
        if partial == self.nothing:
            return (*partial, None)
        finished = self._called("finish", partial)
        if why := misfit(finished, self.result):
            raise self._misfit("finish", finished, f"declared {self.result}", why)
        return (*partial, finished)

    def rows(self, left: Partial, right: Partial) -> Partial:
        """Return two rows of the combiner's columns combined."""
        size = len(self.fields)
        return self.row(self.combined(left[:size], right[:size]))

    def all_combined(self, lefts: Sequence[Partial], rights: Sequence[Partial]) -> list[Partial]:
        """Return `combined` of many pairs; the values of all pairs are checked together."""
        combine, nothing = self.given.combine, self.nothing
        with suppress(Exception):  # below it is told which
            made = [
                right if left == nothing else left if right == nothing else combine(left, right)
                for left, right in zip(lefts, rights, strict=True)
            ]
            if self.all_checked(made):
                return made
        return list(map(self.combined, lefts, rights))

    def all_rows(self, partials: Sequence[Partial]) -> list[Sequence[Any]]:
        """Return the columns of `row` of many partials."""
        columns: list[Sequence[Any]] = list(zip(*partials, strict=True)) or [()] * len(self.fields)
        if self.result is None:
            return columns
        finish, nothing = self.given.finish, self.nothing
        with suppress(Exception):  # below it is told which
            finished = [None if each == nothing else finish(each) for each in partials]
            if all_fit(finished, self.result):
                return [*columns, finished]
        return [*columns, [self.row(each)[-1] for each in partials]]

    def all_checked(self, partials: Sequence[Any]) -> bool:
        """Return True if all partials have the declared types."""
        if set(map(type, partials)) - {tuple} or set(map(len, partials)) - {len(self.fields)}:
            return False
        columns = zip(*partials, strict=True)
        return all(all_fit(column, field.type) for column, field in zip(columns, self.fields, strict=False))

    def _called(self, function: str, *partials: Partial) -> Any:
        try:
            return getattr(self.given, function)(*partials)
        except TxbatchError:
            raise
        except Exception as error:
            raise self._raised(f"{function} of {' and '.join(map(self._shown, partials))}", error) from (
                error if self.show else None
            )

    def _raised(self, what: str, error: Exception) -> BadFunction:
        return BadFunction(f"{self.of}: {what} raised {describe_error(error, show=self.show)}; mend the job")

    def checked(self, function: str, partial: Any) -> Partial:
        """Return the result of a function if the result is a partial of the declared types; BadFunction if not."""
        if not isinstance(partial, tuple) or len(partial) != len(self.fields):
            names = ", ".join(each.name for each in self.fields)
            raise BadFunction(
                f"{self.of}: {function} returned {self._shown(partial)}; let it return a tuple, of {names}"
            )
        for value, field in zip(partial, self.fields, strict=True):
            if value is not None and (why := misfit(value, field.type)):
                raise self._misfit(function, value, f"for {field.name!r}, declared {field.type}", why)
        return partial

    def _misfit(self, function: str, value: Any, declared: str, why: str) -> BadFunction:
        return BadFunction(
            f"{self.of}: {function} returned {self._shown(value)} {declared}: {why}; convert it there, or declare another type"
        )

    def _shown(self, value: Any) -> str:
        text = repr_of(value) if self.show else f"a {type(value).__name__}"
        return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."

    def _result(self) -> str | None:
        given = self.given
        if given.result is not None:
            return checked_array(given.result)
        if len(self.fields) > 1 or type(given).finish is not CombinerAggregator.finish:
            raise MissingPart(f'{self.of} declares no type of the values of finish; add one, such as result = "double"')
        return None

    def _check_whole(self) -> None:
        given, base = type(self.given), CombinerAggregator
        for name in ("init", "combine"):
            if getattr(given, name) is getattr(base, name) and (name != "init" or given.init_of is base.init_of):
                raise MissingPart(f"{self.of} declares a partial and defines no {name}; define {name}")
        try:
            self.zero()
        except BadRecord as error:
            raise BrokenCombiner(error.text) from error


@dataclass(frozen=True, slots=True)
class ByPython(RowMerge):
    """The merge of a user's own combiner, in Python alone: PostgreSQL gets the merged columns."""

    of: OwnCombiner

    name = _COMBINE
    in_sql = False

    def __str__(self) -> str:
        return f"{type(self.of.given).__name__}.{self.name}"

    @property
    def width(self) -> int:
        return len(self.of.outputs)

    def rows(self, left: Partial, right: Partial) -> Partial:
        return self.of.rows(left, right)

    def merge_sql(self, state: Sequence[str], partial: Sequence[str]) -> Sequence[str]:
        """Return the staged columns: Python has already combined the staged columns with the state's row."""
        return partial

    def exact(self, type: str) -> bool:
        return type not in FLOATING_TYPES

    def rows_sql(self, columns: Sequence[str]) -> Sequence[str]:
        raise CannotAsk(
            f"{self} is Python of the job, and PostgreSQL cannot run Python: ask for the present state, or its changes"
        )
