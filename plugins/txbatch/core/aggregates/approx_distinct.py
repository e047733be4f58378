"""ApproxCountDistinct and DistinctSketch: how many different values there are, by the smallest of their hashes."""

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
    """How many different values there are that are not null: exactly below `2 ** lg_k` of them, then about.

    The `2 ** lg_k` smallest hashes of the values are kept, as in a theta sketch: where the last of them lies among all that there
    can be says how many there are. The standard error is one by the root of that number, 2.2 % of 2,048 hashes.
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
    """The same hashes as an array, with which `report.distinct_union` and its like calculate.

    Behind all hashes that are smaller stands the number below which every hash of a value is there: the last that is kept, or,
    where none was left out, one more than all that there can be.
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
    """Return the Spark SQL of a text that all equal values have, whatever their scale, and minus zero."""
    if field.type in FLOATING_TYPES:
        return text_sql(field).replace(spark_name(field.name), f"({spark_name(field.name)} + 0.0D)")
    if decimal_scale(field.type):
        return f"trim(trailing '.' from trim(trailing '0' from {text_sql(field)}))"
    return text_sql(field)


def _text_of(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"{EXACT.add(EXACT.normalize(value), Decimal()):f}"
    return text_of(Field("", ""), value + 0.0 if isinstance(value, float) else value)
