"""GroupedStream: operations on the records of each key. A stream itself is one group without keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from txbatch.core.aggregates.aggregator import CombinerAggregator
from txbatch.core.aggregates.python_combiner import own_combiners
from txbatch.core.aggregates.reducer import ReducerAggregator, reducer_type
from txbatch.core.errors import MissingPart, OutOfPlace
from txbatch.core.records.fields import Field
from txbatch.core.records.functions import check_number
from txbatch.core.records.where import Condition
from txbatch.core.state.append import check_aggregates
from txbatch.core.state.state import State
from txbatch.core.topology.checks import check_aggregate
from txbatch.core.topology.nodes import Aggregate, FirstN, Node, Reduce, Step, batch_value
from txbatch.core.topology.owner import Owner
from txbatch.core.topology.persistent_aggregate import PersistentAggregate, sessions_of
from txbatch.core.topology.sessions import with_last
from txbatch.core.topology.walks import parted


class Place(Protocol):
    """A stream of a topology that can be grouped. A step makes another place of the same kind."""

    @property
    def topology(self) -> Owner:
        """The topology."""

    @property
    def node(self) -> Node:
        """The node that the records come from."""

    def field(self, name: str) -> Field:
        """Return the field of this name; DefinitionError if the field is missing."""

    def of(self, operation: str) -> str:
        """Return an operation with its stream, in the words of errors."""

    def then(self, step: Step) -> Self:
        """Return the place after one more step."""


Grouped = TypeVar("Grouped", bound=Place)


@dataclass(frozen=True, slots=True)
class GroupedStream(Generic[Grouped]):
    """A stream grouped by keys. Results within a batch are per batch, and are streams again."""

    stream: Grouped
    keys: tuple[Field, ...]

    def min_by(self, name: str) -> Grouped:
        """Keep of each group the record with the least value of this field; of equal records the least by all fields.

        Null values are left out.
        """
        return self._first(1, name, descending=False, known=True)

    def max_by(self, name: str) -> Grouped:
        """Keep of each group the record with the greatest value of this field; of equal records the least by all fields.

        Null values are left out.
        """
        return self._first(1, name, descending=True, known=True)

    def first_n(self, number: int, by: str, *, descending: bool = False) -> Grouped:
        """Keep the first records of each group by a field, nulls last; equal records are ordered by all fields, least first."""
        check_number(self.stream.of("first_n"), number)
        return self._first(number, by, descending=descending, known=False)

    def aggregate(self, **aggregates: CombinerAggregator | ReducerAggregator) -> Grouped:
        """Make one record of each group: the keys, and a value per keyword, with the value's finished type.

        A null key is a group. DefinitionError for an invalid aggregator, or if no field can have the result's type.
        """
        reducers = {name: each for name, each in aggregates.items() if isinstance(each, ReducerAggregator)}
        combiners = {name: each for name, each in aggregates.items() if not isinstance(each, ReducerAggregator)}
        if not reducers:
            return self._aggregate("aggregate", combiners, partitions=False)
        if combiners:
            raise OutOfPlace(
                f"{self.stream.of('aggregate')}: {next(iter(reducers))} is a ReducerAggregator, {next(iter(combiners))} is none; "
                "aggregate each alone, and join the results"
            )
        return self._reduce(reducers)

    def partition_aggregate(self, **aggregates: CombinerAggregator) -> Grouped:
        """Make one record of each group in each partition of the spout. Partitions of the spout are not partitions of Spark.

        No partition needs another partition. DefinitionError also after an operation that loses the partition, for example a
        join.
        """
        if before := parted(self.stream.node):
            raise OutOfPlace(
                f"{self.stream.of('partition_aggregate')} comes behind {_called(before)}, where nobody knows the spout's "
                "partition any more; put it before, or aggregate the batch"
            )
        return self._aggregate("partition_aggregate", aggregates, partitions=True)

    def persistent_aggregate(
        self,
        state: State,
        *,
        guarantee: str = "exactly_once",
        remove: Condition | None = None,
        **aggregates: CombinerAggregator,
    ) -> PersistentAggregate:
        """Aggregate into a state across batches, one value per keyword.

        A record for which `remove` holds removes its key. The value before this batch is dropped, and the batch's other
        records of the key are counted from zero. Without other records of the key, the key goes away (R18).

        Raises NotExactlyOnce if spout and state cannot be exactly-once together and `guarantee` is not `"at_least_once"`
        (R11), DefinitionError for names or types that cannot be kept.
        """
        topology = self.stream.topology
        check_aggregates(state)
        aggregates = with_last(state, sessions_of(self.stream.node, self.keys), aggregates)
        own = own_combiners(aggregates, show=self.stream.node.show_records)
        aggregate = check_aggregate(
            PersistentAggregate(topology.name, self.stream.node, self.keys, state, own, guarantee, remove)
        )
        topology.add(aggregate)
        return aggregate

    def _aggregate(self, name: str, aggregates: Mapping[str, CombinerAggregator], *, partitions: bool) -> Grouped:
        node = self._per_batch(name)
        if not aggregates:
            raise MissingPart(f"{self.stream.of(name)}: no aggregate is given; add at least one, such as count=Count()")
        own = own_combiners(aggregates, show=self.stream.node.show_records)
        made = (batch_value(node, value, aggregator) for value, aggregator in own.items())
        fields = (*self.keys, *(Field(value.name, value.type) for value in made))
        return self.stream.then(Aggregate(node.name, fields, node, self.keys, own, partitions))

    def _reduce(self, reducers: Mapping[str, ReducerAggregator]) -> Grouped:
        node = self._per_batch("aggregate")
        of = self.stream.of("aggregate")
        made = (Field(name, reducer_type(of, name, each)) for name, each in reducers.items())
        return self.stream.then(Reduce(node.name, (*self.keys, *made), node, self.keys, reducers))

    def _first(self, number: int, by: str, *, descending: bool, known: bool) -> Grouped:
        stream, before = self.stream, self._per_batch("first_n, min_by or max_by")
        node = FirstN(before.name, before.fields, before, self.keys, number, stream.field(by), descending, known)
        return stream.then(node)

    def _per_batch(self, name: str) -> Node:
        """Return the node of the records; DefinitionError for sessions, since a session may go on after the batch."""
        if sessions_of(self.stream.node, self.keys):
            raise OutOfPlace(
                f"{self.stream.of(name)}: a session may go on in the next batch; count it by persistent_aggregate, and read its "
                "report, or by another topology"
            )
        return self.stream.node


def _called(node: Node) -> str:
    """Return the name of an operation in a job."""
    return {"FirstN": "first_n, min_by or max_by", "Arguments": "a question"}.get(
        type(node).__name__, type(node).__name__.lower()
    )
