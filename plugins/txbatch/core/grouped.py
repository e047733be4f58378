"""GroupedStream: what is done with the records of each key; a stream itself is one group without keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from txbatch.core.aggregator import CombinerAggregator
from txbatch.core.fields import Field
from txbatch.core.functions import check_number
from txbatch.core.operations import Condition, FirstN
from txbatch.core.persistent_aggregate import PersistentAggregate, checked
from txbatch.core.state import State

if TYPE_CHECKING:
    from txbatch.core.stream import Stream


@dataclass(frozen=True, slots=True)
class GroupedStream:
    """A stream grouped by keys. What it makes within a batch is per batch, and a stream again."""

    stream: Stream
    keys: tuple[Field, ...]

    def min_by(self, name: str) -> Stream:
        """Keep of each group the record in which this field is least and not null; of equal ones the least by all fields."""
        return self._first(1, name, descending=False, known=True)

    def max_by(self, name: str) -> Stream:
        """Keep of each group the record in which this field is greatest and not null; of equal ones the least by all fields."""
        return self._first(1, name, descending=True, known=True)

    def first_n(self, number: int, by: str, *, descending: bool = False) -> Stream:
        """Keep of each group the first records by a field, in which nulls come last; of equal ones the least by all fields."""
        check_number(self.stream.of("first_n"), number)
        return self._first(number, by, descending=descending, known=False)

    def persistent_aggregate(
        self,
        state: State,
        *,
        guarantee: str = "exactly_once",
        remove: Condition | None = None,
        **aggregates: CombinerAggregator,
    ) -> PersistentAggregate:
        """Aggregate into a state across batches, one value per keyword.

        A record for which `remove` holds removes its key: the value before this batch is dropped, and the batch's other
        records of the key count afresh; without any, the key goes away (R18).

        Raises NotExactlyOnce when spout and state cannot be exactly-once together and `guarantee` is not
        `"at_least_once"` (R11), DefinitionError for names or types that cannot be kept.
        """
        topology = self.stream.topology
        aggregate = checked(
            PersistentAggregate(topology.name, self.stream.node, self.keys, state, aggregates, guarantee, remove)
        )
        topology.add(aggregate)
        return aggregate

    def _first(self, number: int, by: str, *, descending: bool, known: bool) -> Stream:
        stream = self.stream
        node = FirstN(stream.name, stream.fields, stream.node, self.keys, number, stream.field(by), descending, known)
        return stream.then(node)
