"""What a stream is made of: frozen nodes, each of which knows the one before it.

A source has the records of a spout, a merge those of several nodes, and a step makes records of records: one by one, or,
per batch, of all that the batch has there. A backend matches all of them, closed by `assert_never`: a new node does not pass
the type checker until every backend runs it. A step that is `quarantined` leaves out the records for which its function fails:
those are in the quarantine's node, `Failed`.
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
from txbatch.core.windows.session_window import SessionWindow
from txbatch.core.windows.watermark import Watermark
from txbatch.core.windows.window import Window

_WEAKEST_FIRST = (SpoutKind.NON_TRANSACTIONAL, SpoutKind.OPAQUE, SpoutKind.TRANSACTIONAL)


@dataclass(frozen=True, slots=True, eq=False)
class Records(ABC):
    """What every node has: the name of its stream, and the fields of its records."""

    name: str
    fields: tuple[Field, ...]

    @property
    @abstractmethod
    def roots(self) -> tuple[Source, ...]:
        """The sources its records come from, each once."""

    @property
    def kind(self) -> SpoutKind:
        """That of its spout; the weakest, where streams are merged (R11)."""
        return min((root.spout.kind for root in self.roots), key=_WEAKEST_FIRST.index)

    @property
    def show_records(self) -> bool:
        """True if errors may show its records: their topology does not forbid it."""
        return all(root.shown for root in self.roots)

    def field(self, name: str) -> Field:
        """Return the field of this name; DefinitionError names those that exist."""
        for candidate in self.fields:
            if candidate.name == name:
                return candidate
        known = ", ".join(candidate.name for candidate in self.fields)
        raise UnknownField(f"stream {self.name!r} has no field {name!r} here; it has {known}")


@dataclass(frozen=True, slots=True, eq=False)
class Source(Records):
    """The records of a spout, as it gives them. `was` is the name that the stream had, where it has history by that (R23).

    `shown` says whether errors may show them.
    """

    spout: Spout
    was: str | None = None
    shown: bool = True

    @property
    def roots(self) -> tuple[Source, ...]:
        return (self,)


@dataclass(frozen=True, slots=True, eq=False)
class Arguments(Records):
    """What a query stream is asked: a record for each question, which is a batch of its own and no spout's."""

    shown: bool = True

    @property
    def roots(self) -> tuple[Source, ...]:
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class Merged(Records):
    """The records of several nodes, whose fields have the same types; `fields` are called as in the first."""

    inputs: tuple[Node, ...]

    @property
    def roots(self) -> tuple[Source, ...]:
        return _roots(self.inputs)


@dataclass(frozen=True, slots=True, eq=False)
class Join(Records):
    """The records of two nodes that are equal in the fields `on`, which are there once; `how` says whose records stay alone."""

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
    """The records for which functions of some steps fail, with what is told of each: those of a quarantine."""

    steps: tuple[Node, ...]
    sources: tuple[Source, ...]

    @property
    def roots(self) -> tuple[Source, ...]:
        return self.sources


@dataclass(frozen=True, slots=True, eq=False)
class After(Records):
    """What a step makes of the records of the node before it."""

    before: Node

    @property
    def roots(self) -> tuple[Source, ...]:
        return self.before.roots


def _roots(nodes: Iterable[Node]) -> tuple[Source, ...]:
    """The sources of several nodes, each once."""
    return tuple({root.name: root for each in nodes for root in each.roots}.values())


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
        raise OutOfPlace(f"{of} is a ReducerAggregator, which aggregate takes alone; give a CombinerAggregator")
    if not isinstance(aggregator, CombinerAggregator):
        raise InvalidArgument(f"{of} is {aggregator!r}; give an aggregator, such as {name}=Count()")
    if aggregator.was or aggregator.since:
        raise OutOfPlace(f"{of}: was and since are of a state's values; this value is of one batch: leave them out")
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
    """Each record with more fields; as often as a Python function says, which returns a list."""

    function: Function
    quarantined: bool = False

    @property
    def appended(self) -> tuple[Field, ...]:
        """The fields that are new."""
        return self.fields[len(self.before.fields) :]


@dataclass(frozen=True, slots=True, eq=False)
class Map(After):
    """Another record for each."""

    function: Function
    quarantined: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class FlatMap(After):
    """Any number of records for each."""

    function: Function
    quarantined: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Transform(After):
    """What Spark code makes of the DataFrame."""

    function: Callable[[Any], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Project(After):
    """Each record with only the fields that are left."""


@dataclass(frozen=True, slots=True, eq=False)
class Lookup(After):
    """Each record with the fields that a state has for its key; of an inner look-up, or of one with many rows, not just once."""

    query: StateQuery


@dataclass(frozen=True, slots=True, eq=False)
class LiveLookup(After):
    """Each record with values that a state has for its key when it is asked: a query stream's, which no batch has.

    `how` says whether a record whose key is absent stays.
    """

    aggregate: Any  # a PersistentAggregate, which is made of nodes
    how: How

    @property
    def values(self) -> tuple[Field, ...]:
        """The fields that it appends."""
        return self.fields[len(self.before.fields) :]


@dataclass(frozen=True, slots=True, eq=False)
class Peek(After):
    """The same records, each of which a function has seen."""

    function: Callable[[Mapping[str, Any]], object]
    quarantined: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Repartition(After):
    """The same records, spread over so many of Spark's partitions; those that are equal in `by` in the same one."""

    number: int
    by: tuple[Field, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Windowed(After):
    """Each record with the start of the window that its time is in; of windows that slide, once for each of them.

    Of sessions with its own time: where these begin is seen with all records of a key.
    """

    window: Window | SessionWindow


@dataclass(frozen=True, slots=True, eq=False)
class Watermarked(After):
    """The same records, straight from their source; the watermark follows their times, and says which are late.

    Of processing time they have one more field: when their batch was planned, null where its plan does not say.
    """

    watermark: Watermark


SameRecords = Peek | Repartition | Watermarked
RecordStep = Filter | Each | Map | FlatMap | Transform | Project | Lookup | LiveLookup | SameRecords | Windowed
BatchStep = Distinct | Numbered | FirstN | Aggregate | Reduce
Step = RecordStep | BatchStep
Node = Source | Arguments | Merged | Join | Failed | Step
