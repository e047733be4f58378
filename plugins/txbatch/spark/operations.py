"""A stream's operations on DataFrames: SQL expressions stay in the JVM, Python functions run over Arrow batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Protocol, assert_never

from txbatch.core.aggregates.aggregator import CombinerAggregator
from txbatch.core.records.fields import Field
from txbatch.core.records.sql import spark_name
from txbatch.core.records.where import Condition
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
    Function,
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
    Transform,
    Watermarked,
    Windowed,
)
from txbatch.core.topology.python_steps import name_of, operation_of, rows_of
from txbatch.core.topology.walks import needs_ask, parted
from txbatch.spark.casts import check_kept
from txbatch.spark.python_functions import Called, run_failed, run_python
from txbatch.spark.reducers import reduced
from txbatch.spark.row_by_row import check_rows
from txbatch.spark.state_query import Tables, state_query
from txbatch.spark.within_batch import aggregate, carried, first_n, join, numbered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


NO_TABLES = Tables()
WHERE = "_txbatch_where_"  # with a number: whether a record counts for one of the values


class ReadRecords(Protocol):
    """Returns the records of a source; `parted`: with the field `OF_FIELD`, each record's partition, in front."""

    def __call__(self, source: Source, /, *, parted: bool = False) -> DataFrame:
        """Return the records."""


def run_operations(node: Node, read: ReadRecords, tables: Tables = NO_TABLES) -> DataFrame:
    """Return the node's records, with exactly the node's fields and types, behind the partition if `read` gives partitions.

    `tables` are the rows for look-ups.
    """
    frame = _frame(node, read, tables)
    kept = carried(frame)
    check_kept(node.name, frame.dtypes[len(kept) :], node.fields)
    names = ((spark_name(field.name), field.type) for field in node.fields)
    return frame.selectExpr(*kept, *(f"cast({name} as {type_}) as {name}" for name, type_ in names))


def _frame(node: Node, read: ReadRecords, tables: Tables) -> DataFrame:
    match node:
        case Source():
            return read(node)
        case Arguments():
            raise needs_ask(node)
        case Merged(inputs=inputs):
            return reduce(lambda one, other: one.union(other), (run_operations(each, read, tables) for each in inputs))
        case Join(left=left, right=right):
            return tables.joins.once(
                node, lambda: join(run_operations(left, read, tables), run_operations(right, read, tables), node)
            )
        case Failed(steps=steps):
            return reduce(lambda one, other: one.union(other), (_failed(each, read, tables) for each in steps))
        case Aggregate(partitions=True):
            return _run_batch_step(run_operations(node.before, partial(read, parted=True), tables), node, tables)
        case Distinct() | Numbered() | FirstN() | Aggregate() | Reduce():
            return _run_batch_step(run_operations(node.before, read, tables), node, tables)
        case step:
            return run_step(_frame(step.before, read, tables), step, tables)


def _failed(step: Node, read: ReadRecords, tables: Tables) -> DataFrame:
    """Return the rows of a quarantine: a row for each record for which a step's function fails."""
    rows = rows_of(step)
    if isinstance(step, Source | Arguments | Merged | Join | Failed) or rows is None:
        raise AssertionError(f"{step}: it has no function that could fail")
    before = _frame(step.before, read if parted(step.before) else partial(read, parted=True), tables)
    return run_failed(before, step, rows)


def _run_batch_step(frame: DataFrame, step: BatchStep, tables: Tables) -> DataFrame:
    """Return the records a step makes from all records of the batch; records have the declared types, to be compared."""
    match step:
        case Distinct():
            return frame.distinct()
        case Numbered(name=name):
            return numbered(frame, step, tables.base.get(name))
        case FirstN():
            return first_n(frame, step)
        case Aggregate():
            return aggregate(*with_where(frame, step.aggregates, show=step.show_records), step)
        case Reduce():
            return reduced(frame, step)
        case other:
            assert_never(other)


def run_step(frame: DataFrame, step: RecordStep, tables: Tables = NO_TABLES) -> DataFrame:
    """Return the records a step makes from each single record."""
    if (rows := rows_of(step)) is not None:
        quarantined = getattr(step, "quarantined", False)
        return run_python(frame, step.fields, Called(operation_of(step), rows, step.show_records, quarantined))
    match step:
        case Filter(condition=str(condition)):
            return check_rows(frame, "filter", [condition], lambda records: records.filter(condition))
        case Each(function=function):
            return _each(frame, _listed(function), step.appended)
        case Map(function=function):
            return _map(frame, _listed(function), step.fields)
        case FlatMap(function=function):
            return _flat_map(frame, _listed(function), step.fields)
        case Transform(function=function):
            transformed: DataFrame = function(frame)
            return transformed
        case Project(fields=fields):
            return frame.select(*carried(frame), *(spark_name(field.name) for field in fields))
        case Lookup(query=query):
            return state_query(frame, query, tables, show=step.show_records)
        case LiveLookup():
            raise needs_ask(step)
        case Windowed(window=window):
            starts = window.spark if window.per_record == 1 else f"explode({window.spark})"
            return frame.selectExpr("*", f"{starts} as {spark_name(window.name)}")
        case Watermarked(watermark=says) if says.planned:
            return frame.selectExpr("*", f"{_instant(tables.planned_at)} as {spark_name(says.time)}")
        case Watermarked():
            return frame
        case Repartition(number=number, by=by):
            return frame.repartition(number, *(spark_name(field.name) for field in by))
        case Filter() | Peek():
            raise AssertionError(f"{step}: Python functions are run above")
        case other:
            assert_never(other)


def with_condition(
    frame: DataFrame, condition: Condition, name: str, of: str = "remove", *, show: bool = True
) -> DataFrame:
    """Return the records with a further column: whether the condition of `of` is true for a record (null is not)."""
    if isinstance(condition, str):
        marked = f"coalesce({condition}, false) as {spark_name(name)}"
        return check_rows(frame, of, [condition], lambda records: records.selectExpr("*", marked))
    holds = condition
    fields = [Field(column, type_) for column, type_ in frame.dtypes[len(carried(frame)) :]]
    made = [*fields, Field(name, "boolean")]
    called = Called(f"{of} {name_of(holds)}", lambda record: [(*record.values(), bool(holds(record)))], show)
    return run_python(frame, made, called)


def with_where(
    frame: DataFrame, aggregates: Mapping[str, CombinerAggregator], *, show: bool = True
) -> tuple[DataFrame, dict[str, str]]:
    """Return the records with a column for each value with a condition, and the names of the columns."""
    names = {name: f"{WHERE}{number}" for number, name in enumerate(aggregates) if aggregates[name].where}
    for name, column in names.items():
        frame = with_condition(frame, aggregates[name].where or "", column, "where", show=show)
    return frame, names


def _instant(micros: int | None) -> str:
    return "cast(null as timestamp)" if micros is None else f"timestamp_micros({micros})"


def _each(frame: DataFrame, function: Sequence[str], appended: Sequence[Field]) -> DataFrame:
    columns = _expressions(function, appended)
    after = check_rows(frame, "each", function, lambda records: records.selectExpr("*", *columns))
    _check_kept(frame, "each", function, appended)
    return after


def _map(frame: DataFrame, function: Sequence[str], fields: Sequence[Field]) -> DataFrame:
    columns = _expressions(function, fields)
    after = check_rows(frame, "map", function, lambda records: records.selectExpr(*carried(frame), *columns))
    _check_kept(frame, "map", function, fields)
    return after


def _flat_map(frame: DataFrame, function: Sequence[str], fields: Sequence[Field]) -> DataFrame:
    generator = "inline" if len(fields) > 1 else "explode"
    names = ", ".join(spark_name(field.name) for field in fields)
    (expression,) = function
    check_rows(frame, "flat_map", [expression], lambda records: records.selectExpr(expression))
    return frame.selectExpr(*carried(frame), f"{generator}({expression}) as ({names})")


def _expressions(expressions: Sequence[str], fields: Sequence[Field]) -> list[str]:
    return [
        f"cast({expression} as {field.type}) as {spark_name(field.name)}"
        for expression, field in zip(expressions, fields, strict=True)
    ]


def _check_kept(frame: DataFrame, what: str, expressions: Sequence[str], fields: Sequence[Field]) -> None:
    types = [type_ for _, type_ in frame.selectExpr(*expressions).dtypes]
    check_kept(what, list(zip(expressions, types, strict=True)), fields)


def _listed(function: Function) -> list[str]:
    """Return the expressions of an operation; none for a Python function."""
    if callable(function):
        return []
    return [function] if isinstance(function, str) else list(function)
