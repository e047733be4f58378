"""Variance and StdDev: how far values lie apart, kept in sums that merge to the last digit in any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from txbatch.core.aggregates.aggregator import PartialColumn, Sum, required
from txbatch.core.aggregates.merge import ADD, Partial
from txbatch.core.errors import InvalidArgument, OutOfRange
from txbatch.core.records.fields import EXACT, Field, decimal_scale
from txbatch.core.records.sql import spark_name
from txbatch.core.records.where import Condition

# The square of a value of so many digits, and the sum of a hundred of them, is a decimal(38).
DIGITS_MAX = 18


class Variance(Sum):
    """Variance of all values that are not null, for a sample (SQL's var_samp); null for fewer than two values.

    Integers and decimals are exact, with at most 18 digits. Doubles need `scale`, digits after the point: each double is
    rounded to `scale`. NaN and infinity are refused.
    """

    def __init__(
        self,
        input: str,
        *,
        scale: int | None = None,
        where: Condition | None = None,
        was: str | None = None,
        since: str | None = None,
    ) -> None:
        super().__init__(input, scale=scale, where=where, was=was, since=since)

    _exact_by = "give scale=digits"
    _scale_max = DIGITS_MAX

    def columns(self, input: Field | None) -> tuple[PartialColumn, ...]:
        field = required(self, input)
        scale = decimal_scale(self.sum_type(field)) or 0
        if not 0 <= scale <= DIGITS_MAX:
            raise InvalidArgument(
                f"{type(self).__name__} of {field.name!r}: squares would have {2 * scale} digits after the point; give a scale "
                f"of 0 to {DIGITS_MAX}"
            )
        value = f"cast({self._finite(field)} as decimal({DIGITS_MAX},{scale}))"
        sum_, squares = f"decimal(38,{scale})", f"decimal(38,{2 * scale})"
        return (
            PartialColumn("_sum", sum_, ADD, f"sum(cast({value} as {sum_}))"),
            PartialColumn("_squares", squares, ADD, f"sum(cast({value} * {value} as {squares}))"),
            PartialColumn("_count", "bigint", ADD, f"count({spark_name(field.name)})"),
        )

    def init(self, value: Any) -> Partial:
        if value is None:
            return self.zero()
        cast = Decimal(self.cast(value))
        if len(cast.as_tuple().digits) > DIGITS_MAX:
            raise OutOfRange(
                f"field {self.input!r} is {value}: of more than {DIGITS_MAX} digits no square can be summed"
            )
        return (cast, EXACT.multiply(cast, cast), 1)

    def zero(self) -> Partial:
        return (None, None, 0)

    def finish(self, partial: Partial) -> Any:
        total, squares, count = partial
        if total is None or count < 2:
            return None
        apart = EXACT.subtract(EXACT.multiply(squares, Decimal(count)), EXACT.multiply(total, total))
        return EXACT.divide(apart, Decimal(count * (count - 1)))

    def finish_sql(self, columns: Sequence[str]) -> str:
        total, squares, count = columns
        return f"({count} * {squares} - {total} * {total}) / nullif({count}::numeric * ({count} - 1), 0)"

    def result_type(self, field: Callable[[str], Field]) -> str:
        """Return a double, the nearest double to the exact result."""
        self.columns_of(field)
        return "double"


class StdDev(Variance):
    """Standard deviation: the square root of the variance (SQL's stddev_samp)."""

    def finish(self, partial: Partial) -> Any:
        variance = super().finish(partial)
        return None if variance is None else EXACT.sqrt(variance)

    def finish_sql(self, columns: Sequence[str]) -> str:
        return f"sqrt({super().finish_sql(columns)})"
