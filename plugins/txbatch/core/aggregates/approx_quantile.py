"""ApproxQuantile: the number of values in each of many narrow bins; the sums are the same in any order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from txbatch.core.aggregates.aggregator import CombinerAggregator, PartialColumn, required
from txbatch.core.aggregates.merge import BINS, Partial
from txbatch.core.errors import InvalidArgument, WrongType
from txbatch.core.records.fields import FLOATING_TYPES, INTEGER_TYPES, Field, decimal_scale
from txbatch.core.records.sql import spark_name
from txbatch.core.records.where import Condition

# The bin of 1.0; those of smaller numbers are below, none is below 1. A negative number has the negative bin, zero is its own.
_OF_ONE = 2**40
_INFINITE = 2**62
_ERRORS = (0.0001, 0.1)
# What exp() takes.
_LOG_MIN, _LOG_MAX = -744.4, 709.78


class ApproxQuantile(CombinerAggregator):
    """A quantile of all values that are not null, for example 0.95, within a relative `error`; null without values.

    Values are counted in bins, each `(1 + error) / (1 - error)` as wide as the bin below. The result is the middle of the bin
    in which the quantile lies. Zero, infinity and NaN have bins of their own; NaN is above all numbers.
    """

    def __init__(
        self,
        input: str,
        quantile: float,
        *,
        error: float = 0.01,
        where: Condition | None = None,
        was: str | None = None,
        since: str | None = None,
    ) -> None:
        super().__init__(input, where=where, was=was, since=since)
        what, (low, high) = f"ApproxQuantile of {input!r}", _ERRORS
        if not _is_number(quantile) or not 0 <= quantile <= 1:
            raise InvalidArgument(
                f"{what}: the quantile is {quantile!r}; give a number from 0 to 1, for example 0.5 for the median"
            )
        if not _is_number(error) or not low <= error <= high:
            raise InvalidArgument(f"{what}: error is {error!r}; give a relative error from {low} to {high}")
        self.quantile, self.error = float(quantile), float(error)
        self._width = math.log((1 + self.error) / (1 - self.error))

    @property
    def details(self) -> str:
        return f" within {self.error:g}"

    def columns(self, input: Field | None) -> tuple[PartialColumn, ...]:
        field = required(self, input)
        if field.type not in INTEGER_TYPES | FLOATING_TYPES and decimal_scale(field.type) is None:
            raise WrongType(
                f"ApproxQuantile of {field.name!r}, a {field.type}: it is no number; give a field of numbers"
            )
        counts = "collect_list(struct({value} as bin, {number} as number))"
        shape = "if(size({}) > 0, flatten(transform(array_sort({}), x -> array(x.bin, x.number))), null)"
        return (PartialColumn("_bins", "array<bigint>", BINS, counts, None, shape, self._bin_sql(field)),)

    def init(self, value: Any) -> Partial:
        return (None if value is None else [self._bin(float(value)), 1],)

    def finish(self, partial: Partial) -> Any:
        (bins,) = partial
        if bins is None:
            return None
        counts, below = bins[1::2], 0
        for bin_, count in zip(bins[::2], counts, strict=True):
            below += count
            if below >= self.quantile * sum(counts):
                return self._middle(bin_)
        raise AssertionError("all values lie below the last bin's end")

    def finish_sql(self, columns: Sequence[str]) -> str:
        return f"report.quantile({columns[0]}, {self.quantile!r}::double precision, {self.error!r}::double precision)"

    def result_type(self, field: Callable[[str], Field]) -> str:
        self.columns_of(field)
        return "double"

    def _bin(self, value: float) -> int:
        if value == 0 or not math.isfinite(value):
            return 0 if value == 0 else _INFINITE + 1 if value != value else int(math.copysign(_INFINITE, value))
        bin_ = math.ceil(math.log(abs(value)) / self._width) + _OF_ONE
        return bin_ if value > 0 else -bin_

    def _bin_sql(self, field: Field) -> str:
        value = f"cast({spark_name(field.name)} as double)"
        bin_ = f"cast(ceil(ln(abs({value})) / double('{self._width!r}')) as bigint) + {_OF_ONE}L"
        return (
            f"case when {value} is null then null when {value} = 0 then 0L when isnan({value}) then {_INFINITE + 1}L "
            f"when abs({value}) = double('infinity') then cast(sign({value}) as bigint) * {_INFINITE}L "
            f"else cast(sign({value}) as bigint) * ({bin_}) end"
        )

    def _middle(self, bin_: int) -> float:
        if bin_ == 0 or abs(bin_) >= _INFINITE:
            return math.nan if bin_ > _INFINITE else math.inf * bin_ if bin_ else 0.0
        log = (abs(bin_) - _OF_ONE) * self._width + math.log(1 - self.error)
        return math.copysign(math.exp(min(max(log, _LOG_MIN), _LOG_MAX)), bin_)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
