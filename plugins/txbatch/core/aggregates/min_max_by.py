"""Aggregates that keep the value of a single record, chosen by another field: First, Last, MinBy, MaxBy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from txbatch.core.aggregates.aggregator import CombinerAggregator, PartialColumn
from txbatch.core.aggregates.merge import GREATEST_BY, LEAST_BY, Partial, RowMerge
from txbatch.core.records.fields import Field
from txbatch.core.records.sql import spark_name
from txbatch.core.records.where import Condition


class MinBy(CombinerAggregator):
    """The value of the record in which the field `by` is least. Among equal records the least value, null only if all are
    null.

    Records with a null in `by` are left out; null without further records. The least `by` is kept beside the value.
    """

    merge: RowMerge = LEAST_BY

    def __init__(
        self,
        input: str,
        by: str,
        *,
        where: Condition | None = None,
        was: str | None = None,
        since: str | None = None,
    ) -> None:
        super().__init__(input, where=where, was=was, since=since)
        self.by = by

    @property
    def inputs(self) -> tuple[str, ...]:
        return (str(self.input), self.by)

    @property
    def details(self) -> str:
        return f" by {self.by}"

    def columns_of(self, field: Callable[[str], Field]) -> tuple[PartialColumn, ...]:
        value, by = (field(name) for name in self.inputs)
        at, known = spark_name(by.name), f"{spark_name(by.name)} is not null"
        chosen = self._chosen(at, spark_name(value.name))
        return (
            PartialColumn("_by", by.type, self.merge, chosen, known, "({}).at"),
            PartialColumn("", value.type, self.merge, chosen, known, "({}).value"),
        )

    def init_of(self, record: Mapping[str, Any]) -> Partial:
        at = record[self.by]
        return self.zero() if at is None else (at, record[str(self.input)])

    def zero(self) -> Partial:
        return (None, None)

    def finish(self, partial: Partial) -> Any:
        return partial[1]

    def finish_sql(self, columns: Sequence[str]) -> str:
        return columns[1]

    def result_type(self, field: Callable[[str], Field]) -> str:
        return field(str(self.input)).type

    def finish_spark(self, columns: Sequence[str], type: str) -> str:
        return columns[1]

    def _chosen(self, at: str, value: str) -> str:
        # Null is least to Spark, but loses.
        return f"min(struct({at} as at, {value} is null as unknown, {value} as value))"


class MaxBy(MinBy):
    """The value of the record in which the field `by` is greatest.

    Among equal records the greatest value, null only if all are null.
    """

    merge = GREATEST_BY

    def _chosen(self, at: str, value: str) -> str:
        return f"max(struct({at} as at, {value} as value))"


class First(MinBy):
    """The value of the first record by another field, for example a time: a second name of `MinBy`."""


class Last(MaxBy):
    """The value of the last record by another field, for example a time: a second name of `MaxBy`."""
