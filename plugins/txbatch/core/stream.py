"""Stream: records with named fields, from a spout or merged from other streams, and the operations on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from txbatch.core.aggregator import CombinerAggregator
from txbatch.core.errors import DefinitionError
from txbatch.core.fields import Field, parse_fields, unique
from txbatch.core.persistent_aggregate import Condition, PersistentAggregate, checked
from txbatch.core.spout import Spout, SpoutKind
from txbatch.core.state import State
from txbatch.core.static import StateQuery, StaticState

if TYPE_CHECKING:
    from txbatch.core.topology import Topology

# A Spark SQL expression, one per output field, or a Python function from a record (a dict) to the output.
Function = str | Sequence[str] | Callable[[Mapping[str, Any]], Any]
_WEAKEST_FIRST = (SpoutKind.NON_TRANSACTIONAL, SpoutKind.OPAQUE, SpoutKind.TRANSACTIONAL)


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a stream: what to do and the fields afterwards."""

    kind: str
    function: Any
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A sequence of records with named fields, from a spout or from streams that are merged. An operation makes a new one."""

    topology: Topology
    name: str
    origin: Spout | tuple[Stream, ...]
    fields: tuple[Field, ...]
    operations: tuple[Operation, ...] = ()

    @property
    def spout(self) -> Spout:
        """The spout of a stream that was not merged."""
        if isinstance(self.origin, tuple):
            raise DefinitionError(f"stream {self.name!r} is merged and has several spouts; ask its roots")
        return self.origin

    @property
    def roots(self) -> tuple[Stream, ...]:
        """The streams it comes from, as their spouts give them."""
        if not isinstance(self.origin, tuple):
            return (self.topology.streams[self.name],)
        found = {root.name: root for stream in self.origin for root in stream.roots}
        return tuple(found.values())

    @property
    def kind(self) -> SpoutKind:
        """That of its spout; the weakest, where streams are merged (R11)."""
        return min((root.spout.kind for root in self.roots), key=_WEAKEST_FIRST.index)

    def filter(self, condition: Condition) -> Stream:
        """Keep the records for which the condition is true (null is not)."""
        return self._then("filter", condition, self.fields)

    def each(self, function: Function, fields: str) -> Stream:
        """Append fields, computed from each record. A Python function returns one value, or a tuple of several."""
        return self._then("each", function, self.fields + parse_fields(fields))

    def map(self, function: Function, fields: str) -> Stream:
        """Replace each record by another one."""
        return self._then("map", function, parse_fields(fields))

    def flat_map(self, function: Function, fields: str) -> Stream:
        """Replace each record by any number of others: an array in SQL (of structs for several fields), an iterable in Python."""
        return self._then("flat_map", function, parse_fields(fields))

    def transform(self, function: Callable[[Any], Any], fields: str) -> Stream:
        """Any Spark code from DataFrame to DataFrame with these fields. It must work record by record."""
        return self._then("transform", function, parse_fields(fields))

    def project(self, *names: str) -> Stream:
        """Keep only the named fields."""
        return self._then("project", names, tuple(self.field(name) for name in names))

    def state_query(self, static: StaticState, *keys: str, fields: Sequence[str] | None = None) -> Stream:
        """Append fields of a static state (all but the keys, or those named), looked up by keys that both have.

        They are null where the static state has no such key.
        """
        if self.topology.static_states.get(static.name) is not static:
            raise DefinitionError(
                f"stream {self.name!r}: {static!r} is not of this topology; use new_static_state first"
            )
        found = StateQuery(static, tuple(self.field(key) for key in keys), fields)
        return self._then("state_query", found, self.fields + found.values)

    def group_by(self, *names: str) -> GroupedStream:
        """Group for `persistent_aggregate`."""
        if not names:
            raise DefinitionError(f"stream {self.name!r}: group_by needs at least one field")
        unique(names, "key")
        return GroupedStream(self, tuple(self.field(name) for name in names))

    def persistent_aggregate(
        self,
        state: State,
        *,
        guarantee: str = "exactly_once",
        remove: Condition | None = None,
        **aggregates: CombinerAggregator,
    ) -> PersistentAggregate:
        """Aggregate all records into one global value: a state of one row without keys. A batch without records adds zero."""
        return GroupedStream(self, ()).persistent_aggregate(state, guarantee=guarantee, remove=remove, **aggregates)

    def field(self, name: str) -> Field:
        """The field of this name; DefinitionError names those that exist."""
        for candidate in self.fields:
            if candidate.name == name:
                return candidate
        known = ", ".join(candidate.name for candidate in self.fields)
        raise DefinitionError(f"stream {self.name!r} has no field {name!r} here; it has {known}")

    def _then(self, kind: str, function: Any, fields: tuple[Field, ...]) -> Stream:
        unique((each.name for each in fields), "field")
        return replace(self, fields=fields, operations=(*self.operations, Operation(kind, function, fields)))


@dataclass(frozen=True, slots=True)
class GroupedStream:
    """A stream grouped by keys."""

    stream: Stream
    keys: tuple[Field, ...]

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
        aggregate = checked(PersistentAggregate(self.stream, self.keys, state, aggregates, guarantee, remove))
        self.stream.topology.add(aggregate)
        return aggregate


def merged(name: str, streams: Sequence[Stream]) -> Stream:
    """One stream of the records of several, in which the fields are called as in the first.

    Raises DefinitionError unless all are of one topology and their fields have the same types in the same order.
    """
    if len(streams) < 2:
        raise DefinitionError(f"stream {name!r}: merge at least two streams")
    first = streams[0]
    for other in streams[1:]:
        if other.topology is not first.topology:
            raise DefinitionError(f"stream {name!r}: {other.name!r} is of another topology; merge streams of one")
        if [field.type for field in other.fields] != [field.type for field in first.fields]:
            raise DefinitionError(
                f"stream {name!r}: {first.name!r} has {_listed(first)}, {other.name!r} has {_listed(other)}; bring them to "
                "the same types by map or project"
            )
    return Stream(first.topology, name, tuple(streams), first.fields)


def _listed(stream: Stream) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in stream.fields)
