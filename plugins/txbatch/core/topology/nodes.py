"""The parts of a stream: frozen nodes, each linked to the node before.

A source has the records of a spout, a merge has the records of several nodes, and a step makes records of records: one by one,
or, per batch, of all records of the batch. A backend matches all nodes, closed by `assert_never`: a new node does not pass the
type checker until every backend runs the node. A `quarantined` step leaves out the records for which its function fails. The
failed records are in the quarantine's node, `Failed`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txbatch.core.aggregates.aggregator import CombinerAggregator, PartialColumn
from txbatch.core.aggregates.reducer import ReducerAggregator, Reducing
from txbatch.core.errors import InvalidArgument, OutOfPlace, UnknownField
from txbatch.core.records.fields import Field
from txbatch.core.records.where import Condition as Condition
from txbatch.core.records.where import check_where
from txbatch.core.sources.spout import Spout, SpoutKind
from txbatch.core.topology.look_up import How, StateQuery
from txbatch.core.windows.timed import Timed
from txbatch.core.windows.watermark import Watermark

_WEAKEST_FIRST = (SpoutKind.NON_TRANSACTIONAL, SpoutKind.OPAQUE, SpoutKind.TRANSACTIONAL)


@dataclass(frozen=True, slots=True, eq=False)
class Records(ABC):
    """The common part of all nodes: the name of the stream, and the fields of the records."""

    name: str
    fields: tuple[Field, ...]

    @property
    @abstractmethod
    def roots(self) -> tuple[Source, ...]:
        """The sources of the records, each once."""

    @property
    def kind(self) -> SpoutKind:
        """The kind of the spout; the weakest kind, if streams are merged (R11)."""
        return min((root.spout.kind for root in self.roots), key=_WEAKEST_FIRST.index)

    @property
    def show_records(self) -> bool:
        """True if errors may show records: the topology does not forbid showing records."""
        return all(root.shown for root in self.roots)

    def field(self, name: str) -> Field:
        """Return the field of this name; DefinitionError names the existing fields."""
        for candidate in self.fields:
            if candidate.name == name:
                return candidate
        known = ", ".join(candidate.name for candidate in self.fields)
        raise UnknownField(f"stream {self.name!r} has no field {name!r} here; it has {known}")


@dataclass(frozen=True, slots=True, eq=False)
class Source(Records):
    """The records of a spout, unchanged. `was` is the former name of a stream with history (R23).

    `shown` is true if errors may show the records.
    """

    spout: Spout
    was: str | None = None
    shown: bool = True

    @property
    def roots(self) -> tuple[Source, ...]:
        return (self,)


@dataclass(frozen=True, slots=True, eq=False)
class Arguments(Records):
    """The questions to a query stream, a record for each question. A question is a batch of its own, without a spout."""

    shown: bool = True

    @property
    def roots(self) -> tuple[Source, ...]:
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class Merged(Records):
    """The records of several nodes, whose fields have the same types; `fields` have their names in the first node."""

    inputs: tuple[Node, ...]

    @property
    def roots(self) -> tuple[Source, ...]:
        return _roots(self.inputs)


@dataclass(frozen=True, slots=True, eq=False)
class Join(Records):
    """The records of two nodes that are equal in the fields `on`. A joined record has the fields `on` once.

    `how` is the side whose records stay without a match.
    """

    left: Node
    right: Node
    on: tuple[str, ...]
    how: How

    @property
    def roots(self) -> tuple[Source, ...]:
        return _roots((self.left, self.right))

    def __str__(self) -> str:
        sides = (", ".join(root.name for root in side.roots) for side in (self.left, self.right))
        return f"{self.how} join of {' and '.join(sides)} on {', '.join(self.on)}"


@dataclass(frozen=True, slots=True, eq=False)
class Failed(Records):
    """The records of a quarantine: records for which functions of some steps fail, each with its error."""

    steps: tuple[Node, ...]
    sources: tuple[Source, ...]

    @property
    def roots(self) -> tuple[Source, ...]:
        return self.sources


@dataclass(frozen=True, slots=True, eq=False)
class After(Records):
    """The records made by a step from the records of the node before."""

    before: Node

    @property
    def roots(self) -> tuple[Source, ...]:
        return self.before.roots


def _roots(nodes: Iterable[Node]) -> tuple[Source, ...]:
    """Return the sources of several nodes, each once."""
    return tuple({root.name: root for each in nodes for root in each.roots}.values())


@dataclass(frozen=True, slots=True, eq=False)
class Distinct(After):
    """The batch's different records, each once."""

    def __str__(self) -> str:
        return "distinct"


@dataclass(frozen=True, slots=True, eq=False)
class Numbered(After):
    """The batch's records with their numbers in the stream, in the last field: within a batch in the order of all fields.

    The number is null if the plan has no number of the first record.
    """

    @property
    def number(self) -> str:
        """The name of the field."""
        return self.fields[-1].name

    def __str__(self) -> str:
        return f"numbered by {self.number}"


@dataclass(frozen=True, slots=True, eq=False)
class FirstN(After):
    """The batch's first records by a field, with keys of each group; equal records are ordered by all fields, least first.

    Nulls come last; with `known`, records with a null in the field are left out.
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
    """A value that an aggregate makes within a batch: name, finished type, and the partial columns to compute the value from."""

    name: str
    aggregator: CombinerAggregator
    type: str
    partials: tuple[PartialColumn, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.aggregator.described}"


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate(After):
    """A record for each key: the key, and the values over the batch's records of the key.

    Without keys there is one record, also for no records. With `partitions`, each partition of the spouts with records is
    aggregated apart.
    """

    keys: tuple[Field, ...]
    aggregates: Mapping[str, CombinerAggregator]
    partitions: bool = False

    @property
    def values(self) -> tuple[BatchValue, ...]:
        """The aggregated values, in order."""
        return tuple(map(self._value, self.aggregates))

    def __str__(self) -> str:
        by = f" by {', '.join(key.name for key in self.keys)}" if self.keys else ""
        partition = " in each partition" if self.partitions else ""
        return f"aggregate {', '.join(map(str, self.values))}{by}{partition}"

    def _value(self, name: str) -> BatchValue:
        return batch_value(self.before, name, self.aggregates[name])


@dataclass(frozen=True, slots=True, eq=False)
class Reduce(After):
    """A record for each key: the key, and the reducers' values over the batch's records of the key.

    Without keys there is always one record.
    """

    keys: tuple[Field, ...]
    reducers: Mapping[str, ReducerAggregator]

    @property
    def reducing(self) -> Reducing:
        """The reducing of sorted records to rows."""
        of = f"stream {self.name!r}: aggregate"
        return Reducing(of, tuple(key.name for key in self.keys), self.reducers, self.show_records)

    def __str__(self) -> str:
        by = f" by {', '.join(key.name for key in self.keys)}" if self.keys else ""
        return f"aggregate {', '.join(f'{name} {type(each).__name__}' for name, each in self.reducers.items())}{by}"


def batch_value(records: Records, name: str, aggregator: CombinerAggregator | ReducerAggregator) -> BatchValue:
    """Return the value that an aggregator makes of records; DefinitionError if the aggregator does not fit within a batch."""
    of = f"stream {records.name!r}: aggregate {name}"
    if isinstance(aggregator, ReducerAggregator):
        raise OutOfPlace(f"{of} is a ReducerAggregator, which aggregate takes alone; give a CombinerAggregator")
    if not isinstance(aggregator, CombinerAggregator):
        raise InvalidArgument(f"{of} is {aggregator!r}; give an aggregator, such as {name}=Count()")
    if aggregator.was or aggregator.since:
        raise OutOfPlace(
            f"{of}: was and since belong to values of a state; remove was and since from a value of one batch"
        )
    partials = aggregator.columns_of(records.field)
    for column in partials if aggregator.where is not None else ():
        check_where(of, aggregator.where, column.aggregate)
    return BatchValue(name, aggregator, aggregator.result_type(records.field), partials)


# A Spark SQL expression, one per output field, or a Python function from a record (a dict) to the output.
Function = str | Sequence[str] | Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Filter(After):
    """The records for which the condition is true."""

    condition: Condition
    quarantined: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Each(After):
    """Each record with more fields. A Python function may return a list, and the record comes out once for each element."""

    function: Function
    quarantined: bool = False

    @property
    def appended(self) -> tuple[Field, ...]:
        """The new fields."""
        return self.fields[len(self.before.fields) :]


@dataclass(frozen=True, slots=True, eq=False)
class Map(After):
    """Another record for each record."""

    function: Function
    quarantined: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class FlatMap(After):
    """Any number of records for each record."""

    function: Function
    quarantined: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Transform(After):
    """The DataFrame returned by Spark code."""

    function: Callable[[Any], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Project(After):
    """Each record with only the projected fields."""


@dataclass(frozen=True, slots=True, eq=False)
class Lookup(After):
    """Each record with the fields that a state has for the record's key.

    Inner look-ups drop records without a match, and look-ups of many rows repeat records.
    """

    query: StateQuery


@dataclass(frozen=True, slots=True, eq=False)
class LiveLookup(After):
    """Each record of a query stream with the values that a state has for the record's key at the time of the question.

    No batch has a live look-up. `how` decides whether a record with an absent key stays.
    """

    aggregate: Any  # a PersistentAggregate, which is made of nodes
    how: How

    @property
    def values(self) -> tuple[Field, ...]:
        """The fields that the look-up appends."""
        return self.fields[len(self.before.fields) :]


@dataclass(frozen=True, slots=True, eq=False)
class Peek(After):
    """The same records, after a function has seen each record."""

    function: Callable[[Mapping[str, Any]], object]
    quarantined: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Repartition(After):
    """The same records, spread over `number` partitions of Spark; records that are equal in `by` are in the same partition."""

    number: int
    by: tuple[Field, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Windowed(After):
    """Each record with the start of the window around the record's time. If windows slide, the record comes once for each
    window.

    In sessions, the start is the record's own time: a session's begin is only seen with all records of the key.
    """

    window: Timed


@dataclass(frozen=True, slots=True, eq=False)
class Watermarked(After):
    """The same records, straight from their source; the watermark follows their times, and decides which records are late.

    For processing time there is one more field, the time at which the batch was planned; null if the plan has no time.
    """

    watermark: Watermark


SameRecords = Peek | Repartition | Watermarked
RecordStep = Filter | Each | Map | FlatMap | Transform | Project | Lookup | LiveLookup | SameRecords | Windowed
BatchStep = Distinct | Numbered | FirstN | Aggregate | Reduce
Step = RecordStep | BatchStep
Node = Source | Arguments | Merged | Join | Failed | Step
