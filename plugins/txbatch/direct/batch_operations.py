"""Operations on all records of a batch, in memory. Values compare by Spark's rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from txbatch.core.aggregates.aggregator import CombinerAggregator
from txbatch.core.aggregates.merge import Partial
from txbatch.core.aggregates.merger import Merger
from txbatch.core.errors import BadFunction, BadRecord
from txbatch.core.records.comparing import grouped_by, key_of, order_of
from txbatch.core.records.fields import Field
from txbatch.core.records.python_types import fitted
from txbatch.core.text import describe_record
from txbatch.core.topology.look_up import How
from txbatch.core.topology.nodes import Aggregate, BatchValue, FirstN, Join, Numbered, Reduce
from txbatch.direct.functions import init_of, record_of, refused

Record = dict[str, Any]


def distinct(records: Iterable[Record]) -> Iterable[Record]:
    """Return the different records, each once."""
    found: dict[tuple[Any, ...], Record] = {}
    for record in records:
        found.setdefault(key_of(record.values()), {name: grouped_by(value) for name, value in record.items()})
    return found.values()


def first_n(records: Iterable[Record], step: FirstN) -> list[Record]:
    """Return the first records of the batch, or of each group."""
    by = step.by.name
    known = (record for record in records if not (step.known and record[by] is None))
    return [each for group in grouped(known, step.keys).values() for each in _ordered(group, step)[: step.number]]


def numbered(records: Iterable[Record], step: Numbered, base: int | None) -> Iterator[Record]:
    """Yield the records in the order of all fields, numbered from `base` on. The number is null if `base` is None."""
    for at, record in enumerate(sorted(records, key=lambda record: order_of(record.values()))):
        yield {**record, step.number: None if base is None else base + at}


def grouped(records: Iterable[Record], keys: Sequence[Field]) -> dict[tuple[Any, ...], list[Record]]:
    """Return the records by key; null is an ordinary key."""
    found: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        found.setdefault(key_of(record[key.name] for key in keys), []).append(record)
    return found


def _ordered(records: list[Record], step: FirstN) -> list[Record]:
    """Return the records by the step's field, nulls last, and then by all fields."""
    known, null = ([each for each in records if (each[step.by.name] is None) is is_null] for is_null in (False, True))
    known.sort(key=lambda record: order_of(record.values()))
    known.sort(key=lambda record: order_of([record[step.by.name]]), reverse=step.descending)
    return [*known, *sorted(null, key=lambda record: order_of(record.values()))]


def aggregate(records: Iterable[Record], step: Aggregate) -> Iterator[Record]:
    """Yield a record for each key. Without keys, an empty batch gives a record too, except for an aggregate per partition."""
    return aggregated(records, step, step.values)


def aggregated(records: Iterable[Record], step: Aggregate, values: Sequence[BatchValue]) -> Iterator[Record]:
    """Yield the records of `aggregate`, with the given values in place of the step's values."""
    groups = grouped(records, step.keys)
    if not (step.keys or step.partitions):
        groups.setdefault((), [])
    for group in groups.values():
        key = {key.name: grouped_by(group[0][key.name]) for key in step.keys}
        yield key | {value.name: _value(value, group, step) for value in values}


def reduced(records: Iterable[Record], step: Reduce) -> Iterator[Record]:
    """Yield a record for each key; without keys, an empty batch gives a record too. Records are sorted by all fields."""
    keys = [key.name for key in step.keys]

    def order(record: Record) -> tuple[Any, ...]:
        return order_of([*(record[key] for key in keys), *record.values()])

    for row in step.reducing.rows(sorted(records, key=order)):
        yield record_of(row, step.fields)


def join(left: Iterable[Record], right: Iterable[Record], node: Join) -> Iterator[Record]:
    """Yield the joined records of both sides with equal values in the join's fields; null equals nothing."""
    ours, theirs = list(left), list(right)
    found: dict[tuple[Any, ...], list[Record]] = {}
    for other in theirs:
        found.setdefault(_match(other, node), []).append(other)
    matched = {key for one in ours if (key := _match(one, node)) in found and None not in key}
    for one in ours:
        key = _match(one, node)
        yield from (_joined(one, other, node) for other in (found[key] if key in matched else ()))
        if key not in matched and node.how in (How.LEFT, How.FULL):
            yield _joined(one, {}, node)
    if node.how in (How.RIGHT, How.FULL):
        yield from (_joined({}, other, node) for other in theirs if _match(other, node) not in matched)


def _init(aggregator: CombinerAggregator, record: Record, *, show: bool) -> Partial:
    """Return a record's partial. BadFunction shows the record if `show` is true."""
    try:
        return init_of(aggregator, record, show=show)
    except BadFunction as error:
        raise BadFunction(f"{error.text}; the record is {describe_record(record)}" if show else error.text) from error


def _match(record: Record, node: Join) -> tuple[Any, ...]:
    return key_of(record[name] for name in node.on)


def _joined(one: Record, other: Record, node: Join) -> Record:
    return {field.name: one.get(field.name, other.get(field.name)) for field in node.fields}


def _value(value: BatchValue, group: Sequence[Record], step: Aggregate) -> Any:
    """Return the finished value of some records; BadRecord names the stream and the value."""
    aggregator, combine = value.aggregator, Merger([column.merge for column in value.partials])
    try:
        made = (_init(aggregator, record, show=step.show_records) for record in group)
        partial: Partial = combine.whole([aggregator.zero(), *made])
        return fitted(aggregator.finish(partial), value.type)
    except BadRecord as error:
        told = refused(error, show=step.show_records)
        raise error.retold(f"stream {step.name!r}: aggregate {value.name}: {told}") from (
            error if step.show_records else None
        )
