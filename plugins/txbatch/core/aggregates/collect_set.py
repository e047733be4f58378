"""CollectSet: the different values of a key, up to a limit."""

from __future__ import annotations

from typing import Any

from txbatch.core.aggregates.aggregator import CombinerAggregator, PartialColumn, required
from txbatch.core.aggregates.merge import Partial, Smallest
from txbatch.core.errors import InvalidArgument
from txbatch.core.records.fields import Field
from txbatch.core.records.sql import spark_name
from txbatch.core.records.where import Condition

SIZE_MAX = 1_000


class CollectSet(CombinerAggregator):
    """The different values that are not null, in order, at most `limit`; null without values.

    If a key has more values, reports show the smallest values, and a null behind them: the set was cut.
    """

    def __init__(
        self,
        input: str,
        limit: int = 100,
        *,
        where: Condition | None = None,
        was: str | None = None,
        since: str | None = None,
    ) -> None:
        super().__init__(input, where=where, was=was, since=since)
        self.limit = checked_size(f"CollectSet of {input!r}: limit", limit)

    @property
    def details(self) -> str:
        return f", at most {self.limit}, and null behind them if there are more"

    def columns(self, input: Field | None) -> tuple[PartialColumn, ...]:
        field = required(self, input)
        kept = self.limit + 1  # so that it is known whether there are more
        smallest = f"min_by({{value}}, {{value}}, {kept})"
        shape = "if(size({}) > 0, sort_array({}, true), null)"
        column = PartialColumn(
            "", f"array<{field.type}>", Smallest(kept), smallest, None, shape, spark_name(field.name)
        )
        return (column,)

    def init(self, value: Any) -> Partial:
        return (None if value is None else [value],)

    def finish(self, partial: Partial) -> Any:
        (members,) = partial
        cut = members is not None and len(members) > self.limit
        return [*members[: self.limit], None] if cut else members

    def finish_sql(self, columns: Any) -> str:
        (members,) = columns
        cut = f"array_append({members}[1:{self.limit}], NULL)"
        return f"CASE WHEN cardinality({members}) > {self.limit} THEN {cut} ELSE {members} END"


def checked_size(of: str, size: object) -> int:
    """Return the number of values that an aggregate keeps; DefinitionError for an invalid number."""
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= SIZE_MAX:
        raise InvalidArgument(f"{of} is {size!r}; give a whole number from 1 to {SIZE_MAX:,}")
    return size
