"""Steps per batch: what is made of all records that one batch has at a place, and so depends on where batches end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from txbatch.core.aggregates.aggregator import CombinerAggregator, PartialColumn
from txbatch.core.aggregates.merge import EXACT
from txbatch.core.aggregates.reducer import ReducerAggregator, Reducing
from txbatch.core.errors import BadRecord, DefinitionError
from txbatch.core.records.fields import FLOATING_TYPES, Field, decimal_scale
from txbatch.core.records.python_types import misfit
from txbatch.core.records.where import check_where
from txbatch.core.topology.nodes import After, Records


@dataclass(frozen=True, slots=True, eq=False)
class Distinct(After):
    """The batch's different records, each once."""

    def __str__(self) -> str:
        return "distinct"


@dataclass(frozen=True, slots=True, eq=False)
class Numbered(After):
    """The batch's records, each with its number in the stream, the last field: in the batch they are in the order of all fields.

    Null where the plan does not say from which number on they are.
    """

    @property
    def number(self) -> str:
        """The name of the field."""
        return self.fields[-1].name

    def __str__(self) -> str:
        return f"numbered by {self.number}"


@dataclass(frozen=True, slots=True, eq=False)
class FirstN(After):
    """The batch's first records by a field, of each group if there are keys; of equal ones the least by all fields.

    Nulls come last; with `known` alone, those that are null in the field are none of them.
    """

    keys: tuple[Field, ...]
    number: int
    by: Field
    descending: bool
    known: bool

    def __str__(self) -> str:
        of = f" of each {', '.join(key.name for key in self.keys)}" if self.keys else ""
        if self.known:
            return f"{'max' if self.descending else 'min'}_by {self.by.name}{of}"
        return f"first {self.number} by {self.by.name}{' descending' if self.descending else ''}{of}"


@dataclass(frozen=True, slots=True)
class BatchValue:
    """A value that an aggregate of a batch makes: its name and finished type, and the partial columns it is made of."""

    name: str
    aggregator: CombinerAggregator
    type: str
    partials: tuple[PartialColumn, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.aggregator.described}"


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate(After):
    """A record for each key: the key, and the values over the batch's records of it.

    Without keys it is one record, also of no records. `partitions`: apart for each of the spouts' partitions that has records.
    """

    keys: tuple[Field, ...]
    aggregates: Mapping[str, CombinerAggregator]
    partitions: bool = False

    @property
    def values(self) -> tuple[BatchValue, ...]:
        """What is aggregated, in order."""
        return tuple(map(self._value, self.aggregates))

    def __str__(self) -> str:
        by = f" by {', '.join(key.name for key in self.keys)}" if self.keys else ""
        partition = " in each partition" if self.partitions else ""
        return f"aggregate {', '.join(map(str, self.values))}{by}{partition}"

    def _value(self, name: str) -> BatchValue:
        return batch_value(self.before, name, self.aggregates[name])


@dataclass(frozen=True, slots=True, eq=False)
class Reduce(After):
    """A record for each key: the key, and what reducers make of the batch's records of it. Without keys it is one in any case."""

    keys: tuple[Field, ...]
    reducers: Mapping[str, ReducerAggregator]

    @property
    def reducing(self) -> Reducing:
        """Return what makes the rows of sorted records."""
        of = f"stream {self.name!r}: aggregate"
        return Reducing(of, tuple(key.name for key in self.keys), self.reducers, self.show_records)

    def __str__(self) -> str:
        by = f" by {', '.join(key.name for key in self.keys)}" if self.keys else ""
        return f"aggregate {', '.join(f'{name} {type(each).__name__}' for name, each in self.reducers.items())}{by}"


def batch_value(records: Records, name: str, aggregator: CombinerAggregator | ReducerAggregator) -> BatchValue:
    """Return what an aggregator makes of records; DefinitionError when it cannot, or not within a batch."""
    of = f"stream {records.name!r}: aggregate {name}"
    if isinstance(aggregator, ReducerAggregator):
        raise DefinitionError(f"{of} is a ReducerAggregator, which aggregate takes alone; give a CombinerAggregator")
    if not isinstance(aggregator, CombinerAggregator):
        raise DefinitionError(f"{of} is {aggregator!r}; give an aggregator, such as {name}=Count()")
    if aggregator.was or aggregator.since:
        raise DefinitionError(
            f"{of}: was and since are of a state's values; this value is of one batch: leave them out"
        )
    partials = aggregator.columns_of(records.field)
    for column in partials if aggregator.where is not None else ():
        check_where(of, aggregator.where, column.aggregate)
    return BatchValue(name, aggregator, aggregator.result_type(records.field), partials)


def fitted(finished: Any, type_: str) -> Any:
    """Return a finished value as one of its field's type: a decimal has as many digits after the point.

    BadRecord for a decimal that is out of range.
    """
    if finished is None:
        return None
    if type_ in FLOATING_TYPES:
        return float(finished)
    scale = decimal_scale(type_)
    if scale is None:
        return finished
    rounded = Decimal(finished).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, EXACT)
    if misfit(rounded, type_):
        raise BadRecord(f"what it comes to is out of range for {type_}; filter such records out in the job")
    return rounded
