"""A stream's operations on records in memory: those that are Python functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, assert_never

from txbatch.arrow import arrow_array
from txbatch.core.batch_steps import Aggregate, Distinct, FirstN
from txbatch.core.declared import values_of
from txbatch.core.errors import BadRecord, DefinitionError
from txbatch.core.nodes import Join, Merged, Source
from txbatch.core.operations import (
    BatchStep,
    Each,
    Filter,
    FlatMap,
    Lookup,
    Map,
    Node,
    Peek,
    Project,
    RecordStep,
    Repartition,
    Transform,
)
from txbatch.core.static import StateQuery
from txbatch.memory.functions import called, needs_spark
from txbatch.memory.within_batch import Record, aggregate, distinct, first_n, join

# By stream the records of each of its partitions.
Read = Mapping[str, Mapping[str, Sequence[Record]]]


def records(node: Node, read: Read) -> Iterable[Record]:
    """Return the node's records; `read` holds those of the sources in the batch."""
    match node:
        case Source(name=name):
            return chain.from_iterable(read.get(name, {}).values())
        case Merged(inputs=inputs):
            names = [field.name for field in node.fields]
            united = (record for each in inputs for record in records(each, read))
            return (dict(zip(names, record.values(), strict=True)) for record in united)
        case Join(left=left, right=right):
            return join(records(left, read), records(right, read), node)
        case Aggregate(partitions=True):
            return chain.from_iterable(aggregate(part, node) for part in _parts(node, read))
        case Distinct() | FirstN() | Aggregate():
            return _run_batch_step(records(node.before, read), node)
        case step:
            return _run(records(step.before, read), step)


def _parts(node: Aggregate, read: Read) -> Iterator[Iterable[Record]]:
    """Yield the records that reach the node of each partition that its sources have in the batch."""
    for root in node.roots:
        for partition, part in read.get(root.name, {}).items():
            yield records(node.before, {root.name: {partition: part}})


def _run_batch_step(before: Iterable[Record], step: BatchStep) -> Iterable[Record]:
    """Return what a step makes of all records of the batch."""
    match step:
        case Distinct():
            return distinct(before)
        case FirstN():
            return first_n(before, step)
        case Aggregate():
            return aggregate(before, step)
        case other:
            assert_never(other)


def _run(before: Iterable[Record], step: RecordStep) -> Iterable[Record]:
    """Return what one step makes of the records before it, one by one."""
    match step:
        case Filter(condition=condition):
            holds = called("filter", condition)
            return (record for record in before if holds(record))
        case Each(function=function):
            names = [field.name for field in step.appended]
            append = called("each", function)
            made = ((record, each) for record in before for each in _listed(append(dict(record))))
            return (_record(step, (*record.values(), *values_of(each, names))) for record, each in made)
        case Map(function=function):
            names = [field.name for field in step.fields]
            change = called("map", function)
            return (_record(step, values_of(change(record), names)) for record in before)
        case FlatMap(function=function):
            names = [field.name for field in step.fields]
            split = called("flat_map", function)
            return (_record(step, values_of(each, names)) for record in before for each in split(record))
        case Transform(function=function):
            raise needs_spark("transform", function)
        case Project(fields=fields):
            return ({field.name: record[field.name] for field in fields} for record in before)
        case Lookup(query=query):
            return _looked_up(before, query)
        case Peek(function=function):
            return _seen(before, function)
        case Repartition():
            return before
        case other:
            assert_never(other)


def _record(step: RecordStep, values: tuple[Any, ...]) -> Record:
    """Return the values under the step's names; BadRecord for one that Spark would refuse, too."""
    record = dict(zip((field.name for field in step.fields), values, strict=True))
    for field in step.fields:
        arrow_array([record[field.name]], field)
    return record


def _listed(value: Any) -> list[Any]:
    """What a function of `each` returned: a list of results, or one."""
    return value if isinstance(value, list) else [value]


def _seen(before: Iterable[Record], function: Callable[[Record], object]) -> Iterator[Record]:
    for record in before:
        function(dict(record))
        yield record


def _looked_up(records: Iterable[Record], query: StateQuery) -> Iterator[Record]:
    static, keys = query.static, [key.name for key in query.keys]
    if callable(static.reader):
        raise DefinitionError(f"{static} is read by Spark; give its rows to run it in memory")
    rows: dict[Any, Record] = {}
    for row in static.reader:
        named = dict(zip((field.name for field in static.fields), row, strict=True))
        key = tuple(named[name] for name in keys)
        if key in rows:
            raise BadRecord(f"{static} has two rows with one {', '.join(keys)}; a key has one")
        rows[key] = named
    for record in records:
        key = tuple(record[name] for name in keys)
        found = {} if None in key else rows.get(key, {})
        yield {**record, **{value.name: found.get(value.name) for value in query.values}}
