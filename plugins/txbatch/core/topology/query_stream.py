"""Query stream: questions, answered without Spark (Trident's DRPC stream)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from txbatch.core.errors import DefinitionError, InvalidArgument, NeedsSpark, OutOfPlace, UnknownField, WrongType
from txbatch.core.records.fields import Field, unique
from txbatch.core.topology.look_up import How, LiveState, StaticState
from txbatch.core.topology.nodes import (
    After,
    Aggregate,
    Arguments,
    Each,
    Filter,
    FlatMap,
    LiveLookup,
    Lookup,
    Map,
    Step,
    Transform,
)
from txbatch.core.topology.owner import Owner
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.stream import Stream
from txbatch.core.topology.walks import origin_of


class Asked(Owner, Protocol):
    """The parts of a topology that a query stream uses."""

    query_streams: dict[str, QueryStream]


@dataclass(frozen=True, slots=True, eq=False)
class QueryStream(Stream):
    """Questions, and operations on questions: Python functions, look-ups, operations per batch. A question is a batch of its
    own.

    The answer is the records of the last operation of the definition.
    """

    topology: Asked

    def then(self, step: Step) -> QueryStream:
        """Return the stream after one more step, which makes the answer from now on; DefinitionError if the step needs Spark."""
        for operation, given in _computed_by(step):
            if isinstance(step, Transform) or not callable(given):
                raise NeedsSpark(
                    f"{self.of(operation)} {given!r} needs Spark, and a question is answered without: give a Python function of "
                    "a record"
                )
        if isinstance(step, Lookup):
            self._check_given(step.query.state)
        unique((each.name for each in step.fields), "field")
        then = replace(self, node=step)
        self.topology.query_streams[self.name] = then
        return then

    def _check_given(self, state: StaticState | LiveState) -> None:
        """DefinitionError if a state's rows are not given in the job: a question cannot read the rows."""
        of = f"{self.of('state_query')}: {state}"
        if isinstance(state, LiveState):
            raise OutOfPlace(
                f"{of} is looked up as of the txid of a batch, and a question is of none; give what persistent_aggregate returned"
            )
        if state.needs_spark:
            raise NeedsSpark(f"{of} is read by Spark, and a question is answered without: give its rows")

    def of(self, operation: str) -> str:
        """Return an operation with its query stream, in the words of errors."""
        return f"query stream {self.name!r}: {operation}"

    def live_query(
        self, state: PersistentAggregate, keys: Sequence[str], fields: Sequence[str] | None, how: How
    ) -> Stream:
        """Append values of a state of the topology (all, or the named values), read at the time of the question.

        If the key is absent, the values are null, or the record is left out, by `how`. `keys` are fields with the names and
        types of the state's keys; a global value has no keys.
        """
        of = f"{self.of('state_query')}: state {state.state.name!r}"
        if not any(each is state for each in self.topology.aggregates):
            raise OutOfPlace(f"{of} is not of this topology; give what persistent_aggregate returned")
        _check_keys(of, keys, state.keys)
        for key in state.keys:
            if (mine := self.field(key.name)).type != key.type:
                raise WrongType(
                    f"{of}: key {key.name!r} is a {key.type} there and a {mine.type} here; convert it by map"
                )
        for other in (step.aggregate.state for step in self.steps if isinstance(step, LiveLookup)):
            if other.database != state.state.database:
                raise OutOfPlace(
                    f"{of} is in another database than state {other.name!r}, and no snapshot is of both: ask them by two queries"
                )
        values = _values(of, state, fields)
        return self.then(LiveLookup(self.name, self.fields + values, self.node, state, how))

    @property
    def shown(self) -> bool:
        """True if errors may show a question."""
        origin = origin_of(self.node)
        return isinstance(origin, Arguments) and origin.shown

    @property
    def asked(self) -> tuple[Field, ...]:
        """The fields of a question."""
        return self.steps[0].before.fields if self.steps else self.fields

    @property
    def steps(self) -> tuple[Step, ...]:
        """The operations of the stream, in order."""
        found, node = list[Step](), self.node
        while isinstance(node, After):
            found.insert(0, node)
            node = node.before
        return tuple(found)


def _computed_by(step: Step) -> Iterator[tuple[str, Any]]:
    """Yield the functions and expressions of a step, each with the name of its operation."""
    match step:
        case Filter(condition=given):
            yield "filter", given
        case Each(function=given):
            yield "each", given
        case Map(function=given):
            yield "map", given
        case FlatMap(function=given):
            yield "flat_map", given
        case Transform(function=given):
            yield "transform", given
        case Aggregate(aggregates=aggregates):
            for name, aggregator in aggregates.items():
                if aggregator.where is not None:
                    yield f"where of {name}", aggregator.where


def _check_keys(of: str, given: Sequence[str], keys: Sequence[Field]) -> None:
    unique(given, "key")
    told = ", ".join(f"{key.name} {key.type}" for key in keys)
    if given and not keys:
        raise InvalidArgument(f"{of} is one global value and has no key; look it up without {', '.join(given)}")
    if {*given} != {key.name for key in keys}:
        raise InvalidArgument(f"{of} has the key {told}; name these fields, not {', '.join(given) or 'none'}")


def _values(of: str, state: PersistentAggregate, names: Sequence[str] | None) -> tuple[Field, ...]:
    """Return fields for the finished values of a look-up; DefinitionError for a value that no field can have."""
    listed = (names,) if isinstance(names, str) else tuple(state.aggregates if names is None else names)
    for name in listed:
        if name not in state.aggregates:
            raise UnknownField(f"{of} has no value {name!r}; it has {', '.join(state.aggregates)}")
    return tuple(_value(of, state, name) for name in listed)


def _value(of: str, state: PersistentAggregate, name: str) -> Field:
    aggregator = state.aggregates[name]
    try:
        return Field(name, aggregator.result_type(state.stream.field))
    except DefinitionError as error:
        raise WrongType(
            f"{of}: value {name!r} is a {type(aggregator).__name__}, which no field can be; name other values by "
            f"fields=[...], and ask for {name!r} by multi_get"
        ) from error
