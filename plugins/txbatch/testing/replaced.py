"""Replaces the parts of a job's topology that need Spark: spouts, SQL, and static states read by Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from txbatch.core.aggregates.aggregator import CombinerAggregator
from txbatch.core.errors import MissingPart, NeedsSpark, UnknownField
from txbatch.core.records.fields import Field
from txbatch.core.records.sql import spark_name
from txbatch.core.records.where import Condition
from txbatch.core.sources.spout import PartitionedSpout, Spout
from txbatch.core.topology.checks import check_aggregate
from txbatch.core.topology.late import LateState
from txbatch.core.topology.look_up import LiveState, StaticState
from txbatch.core.topology.nodes import (
    Aggregate,
    Arguments,
    Each,
    Failed,
    Filter,
    FlatMap,
    Function,
    Join,
    Lookup,
    Map,
    Merged,
    Node,
    Source,
    Step,
    Transform,
)
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.stream import Stream
from txbatch.core.topology.topology import Topology
from txbatch.testing.expressions import plain_function
from txbatch.testing.feeder import FeederBatchSpout, FeederPartitionedSpout

Functions = Mapping[str, Callable[[Mapping[str, Any]], Any]]
Rows = Mapping[str, Sequence[tuple[Any, ...]]]


def replaced(
    topology: Topology,
    spouts: Mapping[str, Spout],
    functions: Functions,
    static: Rows,
    before: Mapping[str, Spout] = MappingProxyType({}),
) -> Topology:
    """Return the topology to run in memory. `spouts` are by stream; other spouts that need Spark become feeders of the same
    kind.

    If a stream had the same feeder `before`, the feeder stays.

    Raise DefinitionError with everything that needs Spark, or for a name or an expression missing in the topology.
    """
    _check_known("stream", spouts, topology.streams)
    _check_known("static state", static, topology.static_states)
    rows = {name: _with_rows(topology.static_states[name], each) for name, each in static.items()}
    parts = _Replacement({**_readable(topology, spouts, before), **spouts}, functions, rows)
    new = replace(topology, streams={}, aggregates=[], static_states={**topology.static_states, **rows})
    for name, stream in topology.streams.items():
        new.streams[name] = Stream(new, parts.node(stream.node))
    for aggregate in topology.aggregates:
        # what fails and what is late is kept by states that the new topology makes of its own steps
        if not isinstance(aggregate.stream, Failed) and not isinstance(aggregate.state, LateState):
            new.add(check_aggregate(parts.aggregate(aggregate)))
    _check_known("Spark SQL expression", functions, parts.used)
    if parts.needs:
        raise NeedsSpark(
            f"topology {topology.name!r} needs Spark: {'; '.join(dict.fromkeys(parts.needs))}. Give each expression a Python "
            "function of a record that says the same, functions={expression: function}, or test the job by txbatch run"
        )
    return new


def _check_known(what: str, given: Mapping[str, Any], known: Mapping[str, Any] | set[str]) -> None:
    for name in given:
        if name not in known:
            raise UnknownField(f"the topology has no {what} {name!r}; it has {', '.join(map(repr, known)) or 'none'}")


def _readable(topology: Topology, given: Mapping[str, Spout], before: Mapping[str, Spout]) -> dict[str, Spout]:
    """Return a spout for each stream without a given spout: the stream's own if readable in memory, or a feeder."""
    streams = {name: stream.spout for name, stream in topology.streams.items() if name not in given}
    return {name: _in_memory(name, spout, before.get(name)) for name, spout in streams.items()}


def _in_memory(stream: str, spout: Spout, before: Spout | None) -> Spout:
    if hasattr(spout, "batch"):
        return spout
    new = _feeder(stream, spout)
    return before if before is not None and _described(before) == _described(new) else new


def _described(spout: Spout) -> tuple[Any, ...]:
    return type(spout), spout.kind, spout.fields, getattr(spout, "time", None)


def _feeder(stream: str, spout: Spout) -> Spout:
    if spout.parameters or (spout.by_interval and not isinstance(getattr(spout, "time", None), str)):
        by = f"the parameters {', '.join(spout.parameters)}" if spout.parameters else "time, without a time field"
        raise MissingPart(
            f"stream {stream!r}: {type(spout).__name__} reads by {by}; replace the spout by spouts={{{stream!r}: "
            "FeederBatchSpout(fields, time=...)}}"
        )
    if isinstance(spout, PartitionedSpout):
        return FeederPartitionedSpout(spout.fields, kind=spout.kind, max_partitions=spout.max_partitions)
    time = getattr(spout, "time", None) if spout.by_interval else None
    return FeederBatchSpout(spout.fields, kind=spout.kind, time=time)


def _with_rows(static: StaticState, rows: Sequence[tuple[Any, ...]]) -> StaticState:
    fields = ", ".join(f"{spark_name(each.name)} {each.type}" for each in static.fields)
    return StaticState(static.name, rows, fields)


@dataclass
class _Replacement:
    """Makes each node again, once; notes the used functions, and everything that still needs Spark."""

    spouts: Mapping[str, Spout]
    functions: Functions
    static: Mapping[str, StaticState]
    used: set[str] = field(default_factory=set)
    needs: list[str] = field(default_factory=list)
    _made: dict[int, Node] = field(default_factory=dict)

    def aggregate(self, aggregate: PersistentAggregate) -> PersistentAggregate:
        """Return a state's aggregate with a new stream, new values and a new `remove`."""
        of = f"of state {aggregate.state.name!r}"
        values = self._aggregators(aggregate.aggregates, aggregate.stream, of)
        remove = (
            None if aggregate.remove is None else self._condition(aggregate.remove, aggregate.stream, f"remove {of}")
        )
        return replace(aggregate, stream=self.node(aggregate.stream), aggregates=values, remove=remove)

    def node(self, node: Node) -> Node:
        """Return the new node for a node, the same at each call."""
        if id(node) not in self._made:
            self._made[id(node)] = self._new(node)
        return self._made[id(node)]

    def _new(self, node: Node) -> Node:
        match node:
            case Source(name=name):
                return replace(node, spout=self.spouts[name])
            case Failed(steps=steps, sources=sources):
                made = tuple(replace(each, spout=self.spouts[each.name]) for each in sources)
                return replace(node, steps=tuple(map(self.node, steps)), sources=made)
            case Merged(inputs=inputs):
                return replace(node, inputs=tuple(map(self.node, inputs)))
            case Join(left=left, right=right):
                return replace(node, left=self.node(left), right=self.node(right))
            case Arguments():
                return node
            case step:
                return self._step(replace(step, before=self.node(step.before)), f"of stream {step.name!r}")

    def _step(self, step: Step, of: str) -> Step:
        match step:
            case Filter(condition=condition):
                return replace(step, condition=self._condition(condition, step.before, f"filter {of}"))
            case FlatMap(function=function):
                return replace(step, function=self._function(function, f"flat_map {of}"))
            case Each(function=function):
                return replace(step, function=self._values(function, step.before, step.appended, f"each {of}"))
            case Map(function=function):
                return replace(step, function=self._values(function, step.before, step.fields, f"map {of}"))
            case Aggregate(aggregates=aggregates):
                return replace(step, aggregates=self._aggregators(aggregates, step.before, of))
            case Lookup(query=query):
                return replace(step, query=replace(query, state=self._looked_up(query.state)))
            case Transform():
                self.needs.append(f"transform {of} is Spark code")
        return step

    def _aggregators(
        self, given: Mapping[str, CombinerAggregator], node: Node, of: str
    ) -> dict[str, CombinerAggregator]:
        made = {name: copy(each) for name, each in given.items()}
        for name, each in made.items():
            each.where = None if each.where is None else self._condition(each.where, node, f"where of {name} {of}")
        return made

    def _looked_up(self, state: StaticState | LiveState) -> StaticState | LiveState:
        return state if isinstance(state, LiveState) else self._static(state)

    def _static(self, static: StaticState) -> StaticState:
        if static.needs_spark and static.name not in self.static:
            self.needs.append(f"{static} is read by Spark (give its rows, static={{{static.name!r}: rows}})")
        return self.static.get(static.name, static)

    def _values(self, function: Function, node: Node, fields: Sequence[Field], what: str) -> Function:
        """Return the function; for SQL, a function that returns the values of the expressions."""
        if callable(function):
            return function
        given = [function] if isinstance(function, str) else function
        each = [self._function(sql, what, node, field.type) for sql, field in zip(given, fields, strict=True)]
        return lambda record: tuple(one(record) for one in each)

    def _condition(self, condition: Condition, node: Node, what: str) -> Any:
        return self._function(condition, what, node, "boolean")

    def _function(self, function: Any, what: str, node: Node | None = None, type_: str = "") -> Any:
        """Return the function, or the function given for the SQL, or an equal plain function; note SQL without a function."""
        if callable(function):
            return function
        sql = function if isinstance(function, str) else function[0]
        self.used.add(sql)
        found = self.functions.get(sql) or (plain_function(sql, node.fields, type_) if node is not None else None)
        if found is None:
            self.needs.append(f"{what} is Spark SQL, {sql!r}")
        return found or _nothing


def _nothing(record: Mapping[str, Any]) -> None:
    """Stand in for a missing function, in a refused topology."""
