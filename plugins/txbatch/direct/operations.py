"""Runs a stream's Python operations on records in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import assert_never

from txbatch.arrow import arrow_array
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.errors import BadFunction, BadRecord, FunctionFailed, TxbatchError
from txbatch.core.records.functions import describe_error, is_of_record
from txbatch.core.records.time_buckets import time_of
from txbatch.core.text import describe_record
from txbatch.core.topology.nodes import (
    Aggregate,
    Arguments,
    BatchStep,
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
    RecordStep,
    Reduce,
    Repartition,
    Source,
    Step,
    Transform,
    Watermarked,
    Windowed,
)
from txbatch.core.topology.python_steps import MISFIT_UNSHOWN, Rows, operation_of, rows_of
from txbatch.core.topology.quarantine import FIELDS, failed_row
from txbatch.core.topology.walks import needs_ask, parted
from txbatch.direct.batch_operations import Record, aggregate, distinct, first_n, join, numbered, reduced
from txbatch.direct.functions import needs_spark, record_of
from txbatch.direct.look_up import NO_TABLES, Tables, state_query

# By stream the records of each of its partitions.
Read = Mapping[str, Mapping[str, Sequence[Record]]]
NO_PLAN = BatchPlan({})


def records(node: Node, read: Read, tables: Tables = NO_TABLES, plan: BatchPlan = NO_PLAN) -> Iterable[Record]:
    """Return the node's records. `read` holds the records of each source in the batch, `tables` the rows of live states.

    `plan` is the batch's plan, with the time of planning and the numbers of records.
    """
    match node:
        case Source(name=name):
            return chain.from_iterable(read.get(name, {}).values())
        case Arguments():
            raise needs_ask(node)
        case Merged(inputs=inputs):
            names = [field.name for field in node.fields]
            united = (record for each in inputs for record in records(each, read, tables, plan))
            return (dict(zip(names, record.values(), strict=True)) for record in united)
        case Join(left=left, right=right):
            one, other = (records(each, read, tables, plan) for each in (left, right))
            return join(one, other, node)
        case Failed(steps=steps):
            return chain.from_iterable(_failed(step, read, tables, plan) for step in steps)
        case Aggregate(partitions=True):
            parts = _parts(node.before, read, tables, plan)
            return chain.from_iterable(aggregate(part, node) for _, part in parts)
        case Watermarked(watermark=says) if says.planned:
            planned_at = None if plan.planned_at is None else time_of(plan.planned_at)
            return (record | {says.time: planned_at} for record in records(node.before, read, tables, plan))
        case step:
            return step_records(records(step.before, read, tables, plan), step, tables, plan)


def step_records(
    before: Iterable[Record], step: Step, tables: Tables = NO_TABLES, plan: BatchPlan = NO_PLAN
) -> Iterable[Record]:
    """Return the records a step makes from the records of a batch."""
    if isinstance(step, Distinct | Numbered | FirstN | Aggregate | Reduce):
        return _run_batch_step(before, step, plan)
    return _run(before, step, tables)


def _parts(
    node: Node, read: Read, tables: Tables, plan: BatchPlan
) -> Iterator[tuple[tuple[str, str], Iterable[Record]]]:
    """Yield (stream, partition) and the node's records, for each partition of the node's sources in the batch."""
    for root in node.roots:
        for partition, part in read.get(root.name, {}).items():
            yield (root.name, partition), records(node, {root.name: {partition: part}}, tables, plan)


def _failed(step: Node, read: Read, tables: Tables, plan: BatchPlan) -> Iterator[Record]:
    """Yield the rows of a quarantine: a row for each record for which a step's function fails."""
    rows, names = rows_of(step), [field.name for field in FIELDS]
    if isinstance(step, Source | Arguments | Merged | Join | Failed) or rows is None:
        return
    before, operation = step.before, operation_of(step)
    for place, part in (
        [((step.name, ""), records(before, read, tables, plan))]
        if parted(before)
        else _parts(before, read, tables, plan)
    ):
        for record in part:
            try:
                _tried(step, rows, record)
            except Exception as error:
                if not is_of_record(error):
                    raise
                row = failed_row(place, operation, record, error, show=step.show_records)
                yield dict(zip(names, row, strict=True))


def _run_batch_step(before: Iterable[Record], step: BatchStep, plan: BatchPlan) -> Iterable[Record]:
    """Return the records a step makes from all records of the batch."""
    match step:
        case Distinct():
            return distinct(before)
        case Numbered(name=name):
            return numbered(before, step, plan.base.get(name))
        case FirstN():
            return first_n(before, step)
        case Aggregate():
            return aggregate(before, step)
        case Reduce():
            return reduced(before, step)
        case other:
            assert_never(other)


def _run(before: Iterable[Record], step: RecordStep, tables: Tables) -> Iterable[Record]:
    """Return the records a step makes from each single record."""
    if (rows := rows_of(step)) is not None:
        return chain.from_iterable(_made(step, rows, record) for record in before)
    match step:
        case Filter(condition=function):
            raise needs_spark("filter", function)
        case Each(function=function):
            raise needs_spark("each", function)
        case Map(function=function):
            raise needs_spark("map", function)
        case FlatMap(function=function):
            raise needs_spark("flat_map", function)
        case Transform(function=function):
            raise needs_spark("transform", function)
        case Project(fields=fields):
            return ({field.name: record[field.name] for field in fields} for record in before)
        case Lookup(query=query):
            return state_query(before, query, tables, show=step.show_records)
        case Windowed(window=window):
            return (record | {window.name: start} for record in before for start in window.starts(record[window.time]))
        case LiveLookup():
            raise needs_ask(step)
        case Peek() | Repartition() | Watermarked():
            return before
        case other:
            assert_never(other)


def _made(step: RecordStep, rows: Rows, record: Record) -> list[Record]:
    """Return the records a step's function makes from a record. Raise like Spark's workers, also for a value Spark would
    refuse.
    """
    try:
        return _tried(step, rows, record)
    except Exception as error:
        if not is_of_record(error):
            raise
        if getattr(step, "quarantined", False):
            return []
        if isinstance(error, BadRecord):
            raise _misfit(step, record, error) from (error if step.show_records else None)
        raise _twice(step, rows, record, error) from (error if step.show_records else None)


def _misfit(step: RecordStep, record: Record, error: BadRecord) -> TxbatchError:
    what = f"{error.text}; the record is {describe_record(record)}" if step.show_records else MISFIT_UNSHOWN
    return error.retold(f"stream {step.name!r}: {operation_of(step)}: {what}")


def _twice(step: RecordStep, rows: Rows, record: Record, error: Exception) -> TxbatchError:
    """Return the error of a failed function: BadFunction if a second try fails too, FunctionFailed if the second try
    succeeds.
    """
    shown = f", for the record {describe_record(record)}" if step.show_records else ""
    what = f"stream {step.name!r}: {operation_of(step)} raised {describe_error(error, show=step.show_records)}{shown}"
    try:
        _tried(step, rows, record)
    except Exception:
        return BadFunction(f"{what}; tried again it failed again: mend the source or the function, or abort the batch")
    return FunctionFailed(f"{what}; tried again it did not: run again")


def _tried(step: Step, rows: Rows, record: Record) -> list[Record]:
    made = rows(dict(record))
    for row in made:
        for value, field in zip(row, step.fields, strict=True):
            arrow_array([value], field)
    return [record_of(row, step.fields) for row in made]
