"""Topology: spout → operations → state. Pure data until it is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from txbatch.core.aggregator import CombinerAggregator, Merge, PartialColumn
from txbatch.core.errors import DefinitionError, NotExactlyOnce
from txbatch.core.fields import Field, checked_name, parse_fields, unique
from txbatch.core.spout import Spout, SpoutKind
from txbatch.core.state import State, StateKind

EXACTLY_ONCE = frozenset(
    {
        (SpoutKind.TRANSACTIONAL, StateKind.TRANSACTIONAL),
        (SpoutKind.TRANSACTIONAL, StateKind.OPAQUE),
        (SpoutKind.OPAQUE, StateKind.OPAQUE),
    }
)
PREVIOUS_PREFIX = "prev_"
# Ours, and those that PostgreSQL gives to every table.
RESERVED_COLUMNS = frozenset(
    {"txid", PREVIOUS_PREFIX + "txid", "position", "tableoid", "ctid", "xmin", "xmax", "cmin", "cmax"}
)
_TOPOLOGY_NAME = re.compile(r"[A-Za-z0-9_.-]+")
# A Spark SQL condition, or a Python predicate of a record (a dict).
Condition = str | Callable[[Mapping[str, Any]], bool]
# A Spark SQL expression, one per output field, or a Python function from a record (a dict) to the output.
Function = str | Sequence[str] | Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a stream: what to do and the fields afterwards."""

    kind: str
    function: Any
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class ValueColumn:
    """A column of a state that holds a partial of the value named `value`."""

    name: str
    value: str
    partial: PartialColumn


# What a partial says beside its values, where a `remove` is defined: whether the key's value before the batch goes,
# and whether records of the key count.
MARKS = tuple(
    ValueColumn(name, name, PartialColumn("", "boolean", Merge.GREATEST, f"bool_or({name})"))
    for name in ("removed", "counted")
)


@dataclass(frozen=True, slots=True)
class PersistentAggregate:
    """A stream grouped by keys and aggregated into a state across batches; `remove` says which records remove their key."""

    stream: Stream
    keys: tuple[Field, ...]
    state: State
    aggregates: Mapping[str, CombinerAggregator]
    guarantee: str
    remove: Condition | None = None

    @property
    def columns(self) -> tuple[ValueColumn, ...]:
        """The state's value columns, in order."""
        return tuple(
            ValueColumn(name + partial.suffix, name, partial)
            for name, aggregator in self.aggregates.items()
            for partial in aggregator.columns(self.stream.field(aggregator.input) if aggregator.input else None)
        )

    @property
    def removable(self) -> bool:
        """Whether records may remove keys; then partials carry `MARKS`."""
        return self.remove is not None

    @property
    def partial_columns(self) -> tuple[ValueColumn, ...]:
        """The columns of a partial: values, and marks where keys may be removed."""
        return self.columns + (MARKS if self.removable else ())

    @property
    def merges(self) -> tuple[Merge, ...]:
        """How each value column merges."""
        return tuple(column.partial.merge for column in self.columns)

    @property
    def partial_merges(self) -> tuple[Merge, ...]:
        """How each column of a partial merges with that of another one of the same batch."""
        return tuple(column.partial.merge for column in self.partial_columns)


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A sequence of records with named fields. Every operation returns a new stream."""

    topology: Topology
    name: str
    spout: Spout
    fields: tuple[Field, ...]
    operations: tuple[Operation, ...] = ()

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

    def group_by(self, *names: str) -> GroupedStream:
        """Group for `persistent_aggregate`."""
        if not names:
            raise DefinitionError(f"stream {self.name!r}: group_by needs at least one field")
        unique(names, "key")
        return GroupedStream(self, tuple(self.field(name) for name in names))

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
        check_guarantee(self.stream, state, guarantee)
        if not aggregates:
            raise DefinitionError(f"state {state.name!r}: give at least one aggregate, such as count=Count()")
        for name, aggregator in aggregates.items():
            if not isinstance(aggregator, CombinerAggregator):
                raise DefinitionError(
                    f"state {state.name!r}: {name} is {aggregator!r}; give an aggregator, such as {name}=Count()"
                )
        if not (remove is None or isinstance(remove, str) or callable(remove)):
            raise DefinitionError(f"state {state.name!r}: remove is {remove!r}; give a condition, as for filter")
        aggregate = PersistentAggregate(self.stream, self.keys, state, aggregates, guarantee, remove)
        _check_columns(aggregate)
        self.stream.topology.add(aggregate)
        return aggregate


@dataclass
class Topology:
    """A named definition. `max_pending` batches may be emitted ahead of the commit (Trident's max.spout.pending, R6)."""

    name: str
    max_pending: int = 1
    streams: dict[str, Stream] = field(default_factory=dict)
    aggregates: list[PersistentAggregate] = field(default_factory=list)

    def __post_init__(self) -> None:
        checked_name(self.name, "topology")
        if not _TOPOLOGY_NAME.fullmatch(self.name):
            raise DefinitionError(
                f"topology {self.name!r}: a name has letters, digits, '_', '-' and '.' only, as a dag_id has"
            )
        if self.max_pending < 1:
            raise DefinitionError(f"topology {self.name!r}: max_pending must be at least 1")

    def new_stream(self, name: str, spout: Spout) -> Stream:
        """A stream of the spout's batches. The name is part of the ledger: renaming it is a migration."""
        checked_name(name, "stream")
        unique([*self.streams, name], "stream")
        stream = Stream(self, name, spout, parse_fields(spout.fields))
        self.streams[name] = stream
        return stream

    def add(self, aggregate: PersistentAggregate) -> None:
        """Take a persistent aggregate in; a state has exactly one."""
        unique([*(each.state.name for each in self.aggregates), aggregate.state.name], "state")
        self.aggregates.append(aggregate)

    @property
    def by_interval(self) -> bool:
        """Whether batches are found again by their interval (R2)."""
        return any(stream.spout.by_interval for stream in self.streams.values())

    @property
    def parameters(self) -> tuple[str, ...]:
        """The run's parameters that choose data, as the spouts declare them (R2)."""
        return tuple(sorted({name for stream in self.streams.values() for name in stream.spout.parameters}))

    @property
    def source(self) -> Mapping[str, Any]:
        """The source identity that the ledger keeps with txid 1 (R2)."""
        return {
            name: {**stream.spout.identity, "kind": str(stream.spout.kind)} for name, stream in self.streams.items()
        }

    def check(self) -> Topology:
        """Refuse a definition that has nothing to run."""
        if not self.aggregates:
            raise DefinitionError(
                f"topology {self.name!r} ends in no state; end a stream with persistent_aggregate(...)"
            )
        return self


def check_guarantee(stream: Stream, state: State, guarantee: str) -> None:
    """The guarantee matrix (R11)."""
    if guarantee not in ("exactly_once", "at_least_once"):
        raise DefinitionError(f"guarantee {guarantee!r} is neither 'exactly_once' nor 'at_least_once'")
    if guarantee == "exactly_once" and (stream.spout.kind, state.kind) not in EXACTLY_ONCE:
        raise NotExactlyOnce(
            f"state {state.name!r}: a {stream.spout.kind} spout with {state.kind} state is not exactly-once; "
            f'choose another state, or say guarantee="at_least_once"'
        )


def _check_columns(aggregate: PersistentAggregate) -> None:
    columns = aggregate.columns
    if aggregate.state.kind is StateKind.OPAQUE:
        names = [name for column in columns for name in (column.name, PREVIOUS_PREFIX + column.name)]
    else:
        names = [column.name for column in columns]
    for key in aggregate.keys:
        checked_name(key.name, "key")
    for name in names:
        checked_name(name, "value")
    marks = [mark.name for mark in aggregate.partial_columns[len(columns) :]]
    columns_and_reports = [*(key.name for key in aggregate.keys), *names, *aggregate_only(aggregate, names), *marks]
    for name in RESERVED_COLUMNS.intersection(columns_and_reports):
        raise DefinitionError(f"column {name!r} of state {aggregate.state.name!r} is reserved; rename it")
    unique(columns_and_reports, "column")


def aggregate_only(aggregate: PersistentAggregate, names: Sequence[str]) -> list[str]:
    """Report columns that are no state columns, such as an average."""
    return [name for name in aggregate.aggregates if name not in names]
