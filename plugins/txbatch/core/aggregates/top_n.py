"""TopN: the n largest values of a key. `core.aggregates.merge.Top` merges two lists of values."""

from __future__ import annotations

from typing import Any

from txbatch.core.aggregates.aggregator import CombinerAggregator, PartialColumn, required
from txbatch.core.aggregates.collect_set import checked_size
from txbatch.core.aggregates.merge import Partial, Top
from txbatch.core.records.fields import Field
from txbatch.core.records.sql import spark_name
from txbatch.core.records.where import Condition


class TopN(CombinerAggregator):
    """The n greatest values that are not null, greatest first, with equal values repeated; null without values."""

    def __init__(
        self,
        n: int,
        input: str,
        *,
        where: Condition | None = None,
        was: str | None = None,
        since: str | None = None,
    ) -> None:
        super().__init__(input, where=where, was=was, since=since)
        self.n = checked_size(f"TopN of {input!r}: n", n)

    @property
    def details(self) -> str:
        return f", the {self.n} greatest"

    def columns(self, input: Field | None) -> tuple[PartialColumn, ...]:
        field = required(self, input)
        name = spark_name(field.name)
        greatest = f"max_by({name}, {name}, {self.n})"
        shape = "if(size({}) > 0, sort_array({}, false), null)"
        return (PartialColumn("", f"array<{field.type}>", Top(self.n), greatest, f"{name} is not null", shape),)

    def init(self, value: Any) -> Partial:
        return (None if value is None else [value],)
