"""The way of records through nodes: the sources, look-ups and windows of a node and of all nodes before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from txbatch.core.errors import OutOfPlace
from txbatch.core.records.where import Condition as Condition
from txbatch.core.topology.look_up import StateQuery
from txbatch.core.topology.nodes import (
    Aggregate,
    Arguments,
    Distinct,
    Each,
    Failed,
    Filter,
    FirstN,
    FlatMap,
    Join,
    LiveLookup,
    Lookup,
    Map,
    Merged,
    Node,
    Numbered,
    Peek,
    Project,
    Reduce,
    Repartition,
    Source,
    Transform,
    Watermarked,
    Windowed,
)
from txbatch.core.windows.timed import Timed

Origin = Source | Arguments | Merged | Join | Failed


def origin_of(node: Node) -> Origin:
    """Return the node before the first step."""
    while not isinstance(node, Origin):
        node = node.before
    return node


def one_for_one(node: Node) -> tuple[Source, ...] | None:
    """Return the sources if the node has exactly as many records as the sources; None if a step may drop or add records."""
    match node:
        case Source():
            return (node,)
        case Merged(inputs=inputs):
            parts = [one_for_one(each) for each in inputs]
            return None if None in parts else tuple(source for part in parts for source in part or ())
        case Each(function=function) if callable(function):
            return None
        case Lookup(query=query) if not query.one_for_one:
            return None
        case Windowed(window=window) if window.per_record > 1:
            return None
        case Map(quarantined=True) | Peek(quarantined=True):
            return None
        case Filter() | FlatMap() | Transform() | Distinct() | FirstN() | Aggregate() | Reduce() | Join() | Failed():
            return None
        case Arguments() | LiveLookup():
            return None
        case Each() | Map() | Project() | Lookup() | Peek() | Repartition() | Windowed() | Watermarked() | Numbered():
            return one_for_one(node.before)
        case other:
            assert_never(other)


def per_batch(node: Node) -> tuple[str, ...]:
    """Return the operations, up to a node, with results that depend on where batches end, in order; empty without any."""
    match node:
        case Source() | Arguments() | Failed():
            return ()
        case Merged(inputs=inputs):
            return tuple(each for part in inputs for each in per_batch(part))
        case Join(left=left, right=right):
            return (*per_batch(left), *per_batch(right), str(node))
        case Distinct() | Numbered() | FirstN() | Aggregate() | Reduce():
            return (*per_batch(node.before), str(node))
        case step:
            return per_batch(step.before)


def queries(node: Node) -> tuple[StateQuery, ...]:
    """Return the look-ups of the node's records, in order."""
    match node:
        case Source() | Arguments():
            return ()
        case Merged(inputs=inputs):
            return tuple(each for part in inputs for each in queries(part))
        case Join(left=left, right=right):
            return (*queries(left), *queries(right))
        case Failed(steps=steps):
            return tuple(each for step in steps for each in queries(step))
        case Lookup(query=query):
            return (*queries(node.before), query)
        case step:
            return queries(step.before)


def makes_records(node: Node) -> bool:
    """True if the node has a record even if its sources have no records: an aggregate without keys always has one."""
    match node:
        case Source() | Arguments() | Failed():
            return False
        case Merged(inputs=inputs):
            return any(map(makes_records, inputs))
        case Join(left=left, right=right):
            return makes_records(left) or makes_records(right)
        case Aggregate(keys=(), partitions=False) | Reduce(keys=()):
            return True
        case step:
            return makes_records(step.before)


def parted(node: Node) -> Node | None:
    """Return the last node on the way that loses the spout's partition of a record; None if no node does."""
    match node:
        case Source():
            return None
        case Merged(inputs=inputs):
            return next((found for each in inputs if (found := parted(each))), None)
        case (
            Arguments() | Join() | Transform() | Distinct() | Numbered() | FirstN() | Aggregate() | Reduce() | Failed()
        ):
            return node
        case step:
            return parted(step.before)


def needs_ask(node: Node) -> OutOfPlace:
    """Return the error for a query stream in the place of a stream of batches."""
    return OutOfPlace(f"query stream {node.name!r} is no stream of batches: it is answered by ask, without Spark")


def on_the_way(node: Node) -> Iterator[Node]:
    """Yield all nodes on the way of the node's records, in the order in which records meet the nodes, the node itself last."""
    match node:
        case Source() | Arguments() | Failed():
            return
        case Merged(inputs=inputs):
            for each in inputs:
                yield from on_the_way(each)
        case Join(left=left, right=right):
            yield from on_the_way(left)
            yield from on_the_way(right)
        case step:
            yield from on_the_way(step.before)
    yield node


def windows(node: Node) -> tuple[Timed, ...]:
    """Return the windows by which the node's records are, or were, grouped, in order."""
    return tuple(each.window for each in on_the_way(node) if isinstance(each, Windowed))
