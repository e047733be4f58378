"""Checks that streams, states and aggregates fit together (R11), and that names of a state are allowed."""

from __future__ import annotations

from collections.abc import Mapping

from txbatch.core.aggregates.aggregator import CombinerAggregator
from txbatch.core.aggregates.reducer import ReducerAggregator
from txbatch.core.errors import (
    InvalidArgument,
    InvalidFunction,
    MissingPart,
    NameTaken,
    NotExactlyOnce,
    OutOfPlace,
)
from txbatch.core.records.fields import checked_name, unique
from txbatch.core.records.functions import check_condition
from txbatch.core.records.where import check_where
from txbatch.core.sources.spout import SpoutKind
from txbatch.core.state.state import State, StateKind
from txbatch.core.text import list_first
from txbatch.core.topology.kept_windows import check_keeps_windows
from txbatch.core.topology.nodes import Node
from txbatch.core.topology.persistent_aggregate import (
    GLOBAL_KEY,
    PREVIOUS_PREFIX,
    RESERVED_COLUMNS,
    PersistentAggregate,
)

EXACTLY_ONCE = frozenset(
    {
        (SpoutKind.TRANSACTIONAL, StateKind.TRANSACTIONAL),
        (SpoutKind.TRANSACTIONAL, StateKind.OPAQUE),
        (SpoutKind.OPAQUE, StateKind.OPAQUE),
    }
)


def check_aggregate(aggregate: PersistentAggregate) -> PersistentAggregate:
    """Return the aggregate if a state can keep it.

    Raises NotExactlyOnce (R11), DefinitionError for an invalid state, aggregator or condition, and for invalid names or types.
    """
    state = aggregate.state
    if not isinstance(state, State):
        raise InvalidArgument(f"{state!r} takes no updates; aggregate into a state, such as OpaqueState('name')")
    if not aggregate.stream.roots:
        raise OutOfPlace(
            f"state {state.name!r}: query stream {aggregate.stream.name!r} has questions, which are no batch and count nowhere; "
            "aggregate a stream of a spout"
        )
    check_guarantee(aggregate.stream, state, aggregate.guarantee)
    _check_aggregators(aggregate)
    _check_repeats(aggregate)
    if not (aggregate.remove is None or isinstance(aggregate.remove, str) or callable(aggregate.remove)):
        raise InvalidFunction(f"state {state.name!r}: remove is {aggregate.remove!r}; give a condition, as for filter")
    if aggregate.remove is not None:
        check_condition(f"state {state.name!r}: remove", aggregate.remove)
    if aggregate.removable and aggregate.sessions:
        raise OutOfPlace(
            f"state {state.name!r}: remove takes a key away, and records before and after it may be of one session; filter them "
            "out, or count by other keys"
        )
    if aggregate.removable and not aggregate.keys:
        raise MissingPart(f"state {state.name!r}: remove needs a key to remove; group_by one first")
    _check_columns(aggregate)
    check_keeps_windows(aggregate)
    return aggregate


def check_guarantee(stream: Node, state: State, guarantee: str) -> None:
    """Check the guarantee matrix (R11)."""
    if guarantee not in ("exactly_once", "at_least_once"):
        raise InvalidArgument(f"guarantee {guarantee!r} is neither 'exactly_once' nor 'at_least_once'")
    if guarantee == "exactly_once" and (stream.kind, state.kind) not in EXACTLY_ONCE:
        raise NotExactlyOnce(
            f"state {state.name!r}: {_article(stream.kind)} {stream.kind} spout with {state.kind} state is not exactly-once; "
            f'choose another state, or say guarantee="at_least_once"'
        )


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _check_aggregators(aggregate: PersistentAggregate) -> None:
    name = aggregate.state.name
    if not aggregate.aggregates:
        raise MissingPart(f"state {name!r}: no aggregate is given; add at least one, such as count=Count()")
    given: Mapping[str, object] = aggregate.aggregates
    for value, aggregator in given.items():
        if isinstance(aggregator, ReducerAggregator):
            raise OutOfPlace(
                f"state {name!r}: {value} is a ReducerAggregator, which says not how what two batches made is combined; give a "
                "CombinerAggregator, or aggregate within the batch"
            )
        if not isinstance(aggregator, CombinerAggregator):
            raise InvalidArgument(
                f"state {name!r}: {value} is {aggregator!r}; give an aggregator, such as {value}=Count()"
            )
    for column in aggregate.columns:
        where = aggregate.aggregates[column.value].where
        if where is not None:
            check_where(f"state {name!r}: {column.value}", where, column.partial.aggregate)


def _check_repeats(aggregate: PersistentAggregate) -> None:
    """Refuse values that count a changed record once more, unless this is meant."""
    again = aggregate.counts_again
    if again and aggregate.guarantee == "exactly_once":
        spouts = [type(root.spout).__name__ for root in aggregate.stream.roots if root.spout.repeats]
        raise NotExactlyOnce(
            f"state {aggregate.state.name!r}: {list_first(again)} would count a row of {spouts[0]} again whenever the row "
            "changes; take values for which a row may come twice, such as Max, MaxBy or CollectSet, read rows that stay by "
            'PostgresSpout, or say guarantee="at_least_once"'
        )


def _check_columns(aggregate: PersistentAggregate) -> None:
    keys = [key.name for key in aggregate.keys or (GLOBAL_KEY,)]
    values = [column.name for column in aggregate.columns]
    previous = [PREVIOUS_PREFIX + name for name in values] if aggregate.state.kind is StateKind.OPAQUE else []
    for name in keys:
        checked_name(name, "key")
    for name in (*values, *previous):
        checked_name(name, "value")
    marks = [mark.name for mark in aggregate.partial_columns[len(values) :]]
    reported = [name for name in aggregate.aggregates if name not in values]  # such as an average
    reported += [*aggregate.window_end(dict.fromkeys(keys, ""))]
    names = [*keys, *values, *previous, *marks, *reported]
    for name in filter(RESERVED_COLUMNS.__contains__, names):
        raise NameTaken(f"column {name!r} of state {aggregate.state.name!r} is reserved; rename it")
    unique(names, "column")
