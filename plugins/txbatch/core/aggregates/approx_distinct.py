"""ApproxCountDistinct and DistinctSketch: the number of different values, by the smallest of their hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from txbatch.core.aggregates.aggregator import CombinerAggregator, PartialColumn, required
from txbatch.core.aggregates.merge import Partial, Smallest
from txbatch.core.errors import InvalidArgument
from txbatch.core.records.fields import EXACT, FLOATING_TYPES, Field, decimal_scale
from txbatch.core.records.sql import spark_name
from txbatch.core.records.texts import text_of, text_sql
from txbatch.core.records.where import Condition

_LG_K = (4, 14)
# A hash is a number of so many hexadecimal digits, a bigint that is not negative.
_DIGITS = 15
_HASHES = 16**_DIGITS


class ApproxCountDistinct(CombinerAggregator):
    """Number of different values that are not null: exact below `2 ** lg_k` values, approximate from `2 ** lg_k` on.

    The `2 ** lg_k` smallest hashes of the values are kept, as in a theta sketch. The position of the largest kept hash among
    all possible hashes yields the number of values. The standard error is 1 divided by the square root of `2 ** lg_k`: 2.2 %
    for 2,048 hashes.
    """

    def __init__(
        self,
        input: str,
        *,
        lg_k: int = 11,
        where: Condition | None = None,
        was: str | None = None,
        since: str | None = None,
    ) -> None:
        super().__init__(input, where=where, was=was, since=since)
        low, high = _LG_K
        if type(lg_k) is not int or not low <= lg_k <= high:
            raise InvalidArgument(
                f"{type(self).__name__} of {input!r}: lg_k is {lg_k!r}; give a whole number from {low} to {high}, such as 11 for "
                "2,048 hashes a key"
            )
        self.kept = 1 << lg_k

    @property
    def details(self) -> str:
        return f" by {self.kept:,} hashes"

    def columns(self, input: Field | None) -> tuple[PartialColumn, ...]:
        hashed = f"cast(conv(left(md5({_text_sql(required(self, input))}), {_DIGITS}), 16, 10) as bigint)"
        shape = f"if(size({{}}) > 0, slice(sort_array(flatten({{}})), 1, {self.kept}), null)"
        merge, together = Smallest(self.kept), "collect_list({value})"
        return (PartialColumn("_hashes", "array<bigint>", merge, together, None, shape, hashed, self.kept),)

    def init(self, value: Any) -> Partial:
        if value is None:
            return (None,)
        text = _text_of(value).encode("utf-8", "surrogatepass")
        return ([int(hashlib.md5(text, usedforsecurity=False).hexdigest()[:_DIGITS], 16)],)

    def finish(self, partial: Partial) -> Any:
        (hashes,) = partial
        if hashes is None or len(hashes) < self.kept:
            return len(hashes or ())
        return (self.kept - 1) * _HASHES // hashes[-1]

    def finish_sql(self, columns: Sequence[str]) -> str:
        (hashes,) = columns
        about = f"div({(self.kept - 1) * _HASHES}::numeric, {hashes}[{self.kept}])::bigint"
        return f"CASE WHEN cardinality({hashes}) = {self.kept} THEN {about} ELSE COALESCE(cardinality({hashes}), 0) END"

    def result_type(self, field: Callable[[str], Field]) -> str:
        self.columns_of(field)
        return "bigint"


class DistinctSketch(ApproxCountDistinct):
    """The hashes of `ApproxCountDistinct` in an array, an argument of `report.distinct_union` and similar functions.

    The last number of the array is a bound: every hash of a value below the bound is in the array. The bound is the largest
    kept hash. If no hash was left out, the bound is one more than the largest possible hash.
    """

    def finish(self, partial: Partial) -> Any:
        hashes = partial[0] or []
        return hashes if len(hashes) == self.kept else [*hashes, _HASHES]

    def finish_sql(self, columns: Sequence[str]) -> str:
        (hashes,) = columns
        whole = f"array_append({hashes}, {_HASHES}::bigint)"
        return f"CASE WHEN cardinality({hashes}) = {self.kept} THEN {hashes} ELSE {whole} END"

    def result_type(self, field: Callable[[str], Field]) -> str:
        return CombinerAggregator.result_type(self, field)


def _text_sql(field: Field) -> str:
    """Return Spark SQL for a text that is the same for equal values, whatever their scale, and for zero and minus zero."""
    if field.type in FLOATING_TYPES:
        return text_sql(field).replace(spark_name(field.name), f"({spark_name(field.name)} + 0.0D)")
    if decimal_scale(field.type):
        return f"trim(trailing '.' from trim(trailing '0' from {text_sql(field)}))"
    return text_sql(field)


def _text_of(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"{EXACT.add(EXACT.normalize(value), Decimal()):f}"
    return text_of(Field("", ""), value + 0.0 if isinstance(value, float) else value)
