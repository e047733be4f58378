"""CombinerAggregator: the contribution of a batch to a key, and how contributions combine.

An aggregate is a class. An aggregate keeps at least one partial column, and each column names its merge. Spark, PostgreSQL and
the in-memory twin follow the merge to the last digit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from txbatch.core.aggregates.merge import (
    ADD,
    DECIMAL_DIGITS_MAX,
    GREATEST,
    LEAST,
    Merge,
    Partial,
    RowMerge,
    Total,
)
from txbatch.core.aggregates.merger import Merger
from txbatch.core.errors import (
    InvalidArgument,
    MissingPart,
    OutOfPlace,
    OutOfRange,
    WrongType,
)
from txbatch.core.records.fields import (
    EXACT,
    FLOATING_TYPES,
    INTEGER_TYPES,
    Field,
    array_of,
    check_since,
    checked_type,
    decimal_scale,
    parse_fields,
)
from txbatch.core.records.sql import spark_name, spark_text
from txbatch.core.records.where import Condition, described

if TYPE_CHECKING:
    from txbatch.core.records.declared import Fields

_AVG_SCALE_MIN = 6
# A bigint as two numbers, `high << 32` and `low`, a signed one of 32 bits: sums of these do not overflow on the way to a total
# that fits. The last overflows just where the total does.
_HALVES = "shiftright({0}, 32) + (shiftright({0}, 31) & 1L)", "shiftright(shiftleft({0}, 32), 32)"
_OF_HALVES = "({} + shiftright({rest}, 32)) * 4294967296L + ({rest} & 4294967295L)"
_NOT_FINITE = ", which no sum with a scale can hold; filter such records out in the job, or say approximate=True"


@dataclass(frozen=True, slots=True)
class PartialColumn:
    """A stored column of an aggregate.

    `suffix` is appended to the value's name. `aggregate` is the Spark SQL that computes the column over a batch: one call of
    an aggregate function, over the records for which `only` holds. In `shape`, `{}` stands for the result of the call, and
    `{rest}` for the result of `rest`, a second call over the same records.

    With `each`, an expression of a record, the records are first counted by the value of the expression. `aggregate` is then a
    call on `{value}` and `{number}`, the count of the value. With `smallest`, only a number of the least values matter:
    `{value}` is then an array of values, with the least among the values.

    `aggregate` is empty if Python of the job computes the column.
    """

    suffix: str
    type: str
    merge: RowMerge
    aggregate: str
    only: str | None = None
    shape: str = "{}"
    each: str | None = None
    smallest: int | None = None
    rest: str = ""

    def spark(self, where: str | None = None) -> str:
        """Return the Spark SQL of the column, over records for which `where` is true; `where` is the name of a boolean column."""
        conditions = [each for each in (self.only, where) if each]
        filtered = f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""
        return self.shape.replace("{}", self.aggregate + filtered).replace("{rest}", self.rest + filtered)

    @property
    def exact(self) -> bool:
        """True if the column's values are the same to the last digit in every order of merging."""
        return self.merge.exact(self.type)

    @property
    def total(self) -> Total:
        """The total of the column that is compared between files and rows (R7)."""
        return self.merge.total(self.type)


class CombinerAggregator:
    """Trident's CombinerAggregator: `init` of one record, `combine` of two partials, `zero`, and `finish` for reports.

    `combine` must be associative and commutative, with `zero` its neutral element. `input` names the field, or is None.
    `where` is a condition, as for `filter`: all other records are left out of this value. If the state has history, `was` is
    the former name of the value, and `since="now"` lets a new value count from the next txid on (R23).

    If you write your own aggregator, declare the fields of a partial in `partial`, for example `"low double, high double"`.
    `init` and `combine` return a tuple of the fields. A tuple of nulls is the partial of no records; neither `combine` nor
    `finish` ever gets a tuple of nulls. `result` is the type of the value of `finish`; leave `result` out if reports show a
    single field unchanged.
    """

    partial: Fields | None = None
    result: str | None = None
    where: Condition | None = None
    was: str | None = None
    since: str | None = None

    def __init__(
        self,
        input: str | None = None,
        *,
        where: Condition | None = None,
        was: str | None = None,
        since: str | None = None,
    ) -> None:
        check_since(since)
        self.input, self.where, self.was, self.since = input, where, was, since

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the fields that the aggregator reads."""
        return (self.input,) if self.input else ()

    @property
    def described(self) -> str:
        """The aggregate in the words of definitions and comments. Aggregates that count differently have different words."""
        of = f" of {self.input}" if self.input else ""
        return f"{type(self).__name__}{of}{self.details}{described(self.where)}"

    @property
    def details(self) -> str:
        """Further settings that change a partial, after a blank; empty without further settings."""
        return ""

    def columns_of(self, field: Callable[[str], Field]) -> tuple[PartialColumn, ...]:
        """Return the partial columns, given the field of each name; DefinitionError if a type does not fit."""
        return self.columns(field(self.input) if self.input else None)

    def columns(self, input: Field | None) -> tuple[PartialColumn, ...]:
        """Return the partial columns for an input of this type; DefinitionError if the type does not fit."""
        raise MissingPart(f"{type(self).__name__} defines no partial columns")

    def init_of(self, record: Mapping[str, Any]) -> Partial:
        """Return the partial of one record."""
        return self.init(record[self.input] if self.input else None)

    def init(self, value: Any) -> Partial:
        """Return the partial of one record, given the value of its input field."""
        raise MissingPart(f"{type(self).__name__} defines no init")

    def zero(self) -> Partial:
        """Return the partial of no records."""
        return (None,) if self.partial is None else (None,) * len(parse_fields(self.partial, arrays=True))

    def combine(self, left: Partial, right: Partial) -> Partial:
        """Return the partial of two disjoint sets of records."""
        columns = self.columns_of(lambda name: Field(name, self._any_type))
        return Merger([column.merge for column in columns])(left, right)

    # A type that `columns` takes: merges do not depend on it.
    _any_type = "bigint"

    def finish(self, partial: Partial) -> Any:
        """Return the value of a partial in reports."""
        return partial[0]

    def finish_sql(self, columns: Sequence[str]) -> str:
        """Return SQL of PostgreSQL for `finish`, over the quoted names of the partial columns."""
        return columns[0]

    def result_type(self, field: Callable[[str], Field]) -> str:
        """Return the type of `finish` in a stream, given the field of each name; DefinitionError if no field has the type."""
        columns = self.columns_of(field)
        if (
            len(columns) > 1
            or array_of(columns[0].type) is not None
            or type(self).finish is not CombinerAggregator.finish
        ):
            raise OutOfPlace(f"{type(self).__name__} cannot be finished within a batch; aggregate it into a state")
        return checked_type(columns[0].type)

    def finish_spark(self, columns: Sequence[str], type: str) -> str | None:
        """Return Spark SQL for `finish`, over the quoted names of the partial columns; `type` is the type of the result.

        If None is returned, Spark calls `finish` itself, for a row per key.
        """
        return columns[0] if self.__class__.finish is CombinerAggregator.finish else None


class Count(CombinerAggregator):
    """Number of records; with an input, number of records with a value that is not null."""

    def columns(self, input: Field | None) -> tuple[PartialColumn, ...]:
        return (PartialColumn("", "bigint", ADD, f"count({spark_name(input.name) if input else '1'})"),)

    def init(self, value: Any) -> Partial:
        return (1 if self.input is None or value is not None else 0,)

    def zero(self) -> Partial:
        return (0,)


class Sum(CombinerAggregator):
    """Sum of all values that are not null; null without values.

    Integers sum as bigint, decimals as decimal(38, scale). Doubles have no exact sum: give `scale` (digits after the point,
    the value is cast before summing) or set `approximate=True` (R18). With a `scale`, NaN and infinity are refused.
    """

    def __init__(
        self,
        input: str,
        *,
        scale: int | None = None,
        approximate: bool = False,
        where: Condition | None = None,
        was: str | None = None,
        since: str | None = None,
    ) -> None:
        super().__init__(input, where=where, was=was, since=since)
        self.scale, self.approximate = scale, approximate

    def columns(self, input: Field | None) -> tuple[PartialColumn, ...]:
        field = required(self, input)
        type_ = self.sum_type(field)
        if type_ == field.type == "bigint":
            high, low = (f"sum({half.format(spark_name(field.name))})" for half in _HALVES)
            return (PartialColumn("", type_, ADD, high, shape=_OF_HALVES, rest=low),)
        return (PartialColumn("", type_, ADD, f"sum(cast({self._finite(field)} as {type_}))"),)

    def init(self, value: Any) -> Partial:
        return (self.cast(value),)

    _exact_by = "give scale=digits or approximate=True"
    _scale_max = DECIMAL_DIGITS_MAX
    _any_type = "decimal(38,0)"

    def cast(self, value: Any) -> Any:
        """Return the value to add: with a `scale` a decimal, rounded half up like in Spark. BadRecord if no decimal fits."""
        if value is None or self.scale is None:
            return value
        exact = Decimal(str(value))
        if not exact.is_finite():
            raise OutOfRange(f"field {self.input!r} is {value}{_NOT_FINITE}")
        with suppress(InvalidOperation):
            cast = exact.quantize(Decimal(1).scaleb(-self.scale), ROUND_HALF_UP, EXACT)
            if len(cast.as_tuple().digits) <= DECIMAL_DIGITS_MAX:
                return cast
        raise OutOfRange(
            f"field {self.input!r} is {value}, out of range for decimal(38,{self.scale}); give a smaller scale"
        )

    def _finite(self, field: Field) -> str:
        """Return Spark SQL for the field; an error for NaN and infinity, of which Spark's own cast makes null (R24)."""
        name = spark_name(field.name)
        if self.scale is None or field.type not in FLOATING_TYPES:
            return name
        told = f"concat({spark_text(f'field {field.name!r} is ')}, {name}, {spark_text(_NOT_FINITE)})"
        return f"if(abs({name}) < double('infinity'), {name}, if({name} is null, null, raise_error({told})))"

    def sum_type(self, input: Field) -> str:
        """Return the type in which values are added; DefinitionError if the type has no exact sum, and for an invalid scale."""
        scale = decimal_scale(input.type)
        is_number = scale is not None or input.type in INTEGER_TYPES | FLOATING_TYPES
        if self.scale is not None and is_number:
            self._check_scale(input, self.scale)
            return f"decimal(38,{self.scale})"
        if input.type in INTEGER_TYPES:
            return "bigint"
        if scale is not None:
            return f"decimal(38,{scale})"
        if input.type in FLOATING_TYPES and self.approximate:
            return "double"
        hint = self._exact_by if input.type in FLOATING_TYPES else "sum a number"
        raise WrongType(f"{type(self).__name__} of {input.name!r}, a {input.type}, is not exact: {hint}")

    def _check_scale(self, input: Field, scale: object) -> None:
        before_point = 1 if input.type in INTEGER_TYPES else 0
        most = min(self._scale_max, DECIMAL_DIGITS_MAX - before_point)
        if type(scale) is not int or not 0 <= scale <= most:
            raise InvalidArgument(
                f"{type(self).__name__} of {input.name!r}, a {input.type}: scale={scale!r} is no number of digits after the "
                f"point; give one of 0 to {most}"
            )


class Avg(Sum):
    """Mean of all values that are not null, kept in a sum and a count; null without values."""

    def columns(self, input: Field | None) -> tuple[PartialColumn, ...]:
        name = spark_name(required(self, input).name)
        (total,) = super().columns(input)
        count = PartialColumn("_count", "bigint", ADD, f"count({name})")
        return (replace(total, suffix="_sum"), count)

    def init(self, value: Any) -> Partial:
        return (self.cast(value), int(value is not None))

    def zero(self) -> Partial:
        return (None, 0)

    def finish(self, partial: Partial) -> Any:
        total, count = partial
        if not count:
            return None
        return total / count if isinstance(total, float) else EXACT.divide(Decimal(total), Decimal(count))

    def finish_sql(self, columns: Sequence[str]) -> str:
        total, count = columns
        divisor = f"nullif({count}, 0)"
        return f"{total} / {divisor}" if self.approximate else f"{total}::numeric / {divisor}"

    def result_type(self, field: Callable[[str], Field]) -> str:
        """Return a decimal with at least six digits after the point, as Spark divides; a double if the mean is approximate."""
        scale = decimal_scale(self.columns_of(field)[0].type)
        return "double" if self.approximate and scale is None else f"decimal(38,{max(scale or 0, _AVG_SCALE_MIN)})"

    def finish_spark(self, columns: Sequence[str], type: str) -> str:
        total, count = columns
        if decimal_scale(type) == _AVG_SCALE_MIN:
            # A bigint would be divided as a double, and a cast to this type refuses sums that are too large for it.
            return f"({total} + cast(0 as decimal(38,0))) / nullif({count}, 0)"
        return f"cast({total} as {type}) / nullif({count}, 0)"


class Min(CombinerAggregator):
    """Smallest value that is not null (strings by their bytes); null without values."""

    merge: Merge = LEAST
    aggregate = "min"

    def columns(self, input: Field | None) -> tuple[PartialColumn, ...]:
        field = required(self, input)
        return (PartialColumn("", field.type, self.merge, f"{self.aggregate}({spark_name(field.name)})"),)

    def init(self, value: Any) -> Partial:
        return (value,)


class Max(Min):
    """Largest value that is not null (strings by their bytes); null without values."""

    merge = GREATEST
    aggregate = "max"


def required(aggregator: CombinerAggregator, input: Field | None) -> Field:
    """Return the input field of an aggregator; MissingPart if the field is missing."""
    if input is None:
        raise MissingPart(f"{type(aggregator).__name__} needs the name of a field")
    return input
