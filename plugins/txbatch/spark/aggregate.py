"""From the records of a batch to the partials of a state."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txbatch.core.aggregator import quoted
from txbatch.core.errors import BadRecord, TxbatchError
from txbatch.core.fields import Field
from txbatch.core.persistent_aggregate import RECORDS_COLUMN, PersistentAggregate
from txbatch.core.stream import Stream
from txbatch.spark.failures import FunctionFailed, in_our_words
from txbatch.spark.frames import nothing
from txbatch.spark.operations import run_operations, with_condition
from txbatch.spark.reader import BatchReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REMOVES = "_txbatch_removes"  # whether a record removes its key
_BAD_VALUE = re.compile(r"txbatch bad value\|(\d+)\|([^|]+)\|")
# A stream and one of its partitions.
Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class BatchAggregator:
    """Makes the partials of one state, with the readers of all streams in the batch by their names."""

    aggregate: PersistentAggregate
    readers: Mapping[str, BatchReader]

    @property
    def has_records(self) -> bool:
        """Whether a stream of the state is in the batch; a global value is written without one."""
        return not self.aggregate.keys or any(root.name in self.readers for root in self.aggregate.stream.roots)

    def partials(self, places: Collection[Place] | None = None) -> DataFrame:
        """One row per key with the batch's partials and their number of records, or with those of some places."""
        frame = run_operations(self.aggregate.stream, lambda root: self._records(root, places))
        grouped = _aggregated(frame, self.aggregate)
        values = [Field(column.name, column.partial.type) for column in self.aggregate.partial_columns]
        columns, keys = [*self.aggregate.keys, *values], len(self.aggregate.keys)
        checked = [_checked(column, n, key=n < keys) for n, column in enumerate(columns)]
        return grouped.selectExpr(*checked, RECORDS_COLUMN)

    def explain(self, error: Exception) -> TxbatchError:
        """Why the partials could not be made, in our words; with a partition that has it, if one alone does."""
        problem = self._bad_value(error) or in_our_words(error)
        if problem is error:
            return problem
        where = self._where(type(problem)) if isinstance(problem, BadRecord | FunctionFailed) else ""
        return type(problem)(f"{self}: {problem}{where}")

    def __str__(self) -> str:
        assignment = next(iter(self.readers.values())).assignment
        stream, state = self.aggregate.stream, self.aggregate.state
        return f"{assignment.topology} {assignment.attempt}, stream {stream.name!r}, state {state.name!r}"

    def _records(self, root: Stream, places: Collection[Place] | None) -> DataFrame:
        reader = self.readers.get(root.name)
        partitions = None if places is None else [name for stream, name in places if stream == root.name]
        if reader is None or partitions == []:
            return nothing(next(iter(self.readers.values())).spark, root.fields)
        return reader.records(partitions).select(*(quoted(field.name) for field in root.fields))

    def _bad_value(self, error: Exception) -> BadRecord | None:
        found = _BAD_VALUE.search(str(error))
        if not found:
            return None
        names = [
            *(f"key {key.name!r}" for key in self.aggregate.keys),
            *(f"value {each.name!r}" for each in self.aggregate.columns),
        ]
        return BadRecord(f"{names[int(found[1])]} {found[2]}; filter such records out in the job")

    def _where(self, problem: type[TxbatchError]) -> str:
        """A partition on which the same happens alone, found by halving; reads the batch at most once more."""
        roots = [root.name for root in self.aggregate.stream.roots if root.name in self.readers]
        places = [(root, name) for root in roots for name in self.readers[root].planned.partitions or ()]
        while len(places) > 1:
            half = places[: len(places) // 2]
            places = half if self._fails(problem, half) else places[len(half) :]
        return f" (in {places[0][1]})" if places and self._fails(problem, places) else ""

    def _fails(self, problem: type[TxbatchError], places: Collection[Place]) -> bool:
        try:
            self.partials(places).write.format("noop").mode("overwrite").save()
        except Exception as error:
            return isinstance(self._bad_value(error) or in_our_words(error), problem)
        return False


def _aggregated(frame: DataFrame, aggregate: PersistentAggregate) -> DataFrame:
    """One row per key. Where keys may be removed, first one for the records that remove it and one for the others."""
    from pyspark.sql import functions as F

    keys = [quoted(key.name) for key in aggregate.keys]
    values = [F.expr(column.partial.aggregate).alias(column.name) for column in aggregate.columns]
    values.append(F.expr(f"count(1) AS {RECORDS_COLUMN}"))
    if aggregate.remove is None:
        return frame.groupBy(*keys).agg(*values)
    marked = with_condition(frame, aggregate.remove, REMOVES)
    apart = marked.groupBy(*keys, REMOVES).agg(*values)
    names = [quoted(column.name) for column in aggregate.columns]
    counted = [F.expr(f"any_value({name}) FILTER (WHERE NOT {REMOVES}) AS {name}") for name in names]
    marks = [F.expr(f"bool_or({REMOVES}) AS removed"), F.expr(f"bool_or(NOT {REMOVES}) AS counted")]
    return apart.groupBy(*keys).agg(*counted, *marks, F.expr(f"sum({RECORDS_COLUMN}) AS {RECORDS_COLUMN}"))


def _checked(column: Field, number: int, *, key: bool) -> str:
    """The column, or an error where PostgreSQL could not store it: a null key, U+0000 or invalid UTF-8 in a string."""
    name, cases = quoted(column.name), []
    if key:
        cases.append((f"{name} is null", "is null"))
    if column.type == "string":
        cases += [(f"instr({name}, char(0)) > 0", "holds U+0000"), (f"not is_valid_utf8({name})", "is invalid UTF-8")]
    errors = " ".join(f"when {bad} then raise_error('txbatch bad value|{number}|{reason}|')" for bad, reason in cases)
    return f"case {errors} else {name} end as {name}" if cases else name
