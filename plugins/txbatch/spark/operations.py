"""A stream's operations on DataFrames: SQL expressions stay in the JVM, Python functions run over Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from txbatch.arrow import arrow_array
from txbatch.core.aggregator import CombinerAggregator
from txbatch.core.batch_steps import Aggregate, Distinct, FirstN
from txbatch.core.declared import values_of
from txbatch.core.errors import BadRecord, DefinitionError
from txbatch.core.fields import Field
from txbatch.core.nodes import Join, Merged, Source
from txbatch.core.operations import (
    BatchStep,
    Each,
    Filter,
    FlatMap,
    Function,
    Lookup,
    Map,
    Node,
    Peek,
    Project,
    RecordStep,
    Repartition,
    Transform,
)
from txbatch.core.spark_sql import spark_name
from txbatch.core.where import Condition
from txbatch.spark.casts import check_kept
from txbatch.spark.failures import record_note, shown_record
from txbatch.spark.frames import ddl
from txbatch.spark.row_by_row import checked
from txbatch.spark.static import state_query
from txbatch.spark.within_batch import OF_FIELD, aggregate, carried, first_n, join

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


WHERE = "_txbatch_where_"  # with a number: whether a record counts for one of the values


class Read(Protocol):
    """Gives the records of a source; `parted`: with the field `OF_FIELD` in front, which says of which partition each is."""

    def __call__(self, source: Source, /, *, parted: bool = False) -> DataFrame:
        """Return the records."""


def run_operations(node: Node, read: Read) -> DataFrame:
    """Return the node's records, with exactly its fields and types, behind the partition where `read` gives it."""
    frame = _frame(node, read)
    kept = carried(frame)
    check_kept(node.name, frame.dtypes[len(kept) :], node.fields)
    names = ((spark_name(field.name), field.type) for field in node.fields)
    return frame.selectExpr(*kept, *(f"cast({name} as {type_}) as {name}" for name, type_ in names))


def _frame(node: Node, read: Read) -> DataFrame:
    match node:
        case Source():
            return read(node)
        case Merged(inputs=inputs):
            return reduce(lambda one, other: one.union(other), (run_operations(each, read) for each in inputs))
        case Join(left=left, right=right):
            return join(run_operations(left, read), run_operations(right, read), node)
        case Aggregate(partitions=True):
            return _run_batch_step(run_operations(node.before, partial(read, parted=True)), node)
        case Distinct() | FirstN() | Aggregate():
            return _run_batch_step(run_operations(node.before, read), node)
        case step:
            return run_step(_frame(step.before, read), step)


def _run_batch_step(frame: DataFrame, step: BatchStep) -> DataFrame:
    """Return what a step makes of all records of the batch, which have their declared types by now: they are compared."""
    match step:
        case Distinct():
            return frame.distinct()
        case FirstN():
            return first_n(frame, step)
        case Aggregate():
            return aggregate(*with_where(frame, step.aggregates), step)
        case other:
            assert_never(other)


def run_step(frame: DataFrame, step: RecordStep) -> DataFrame:
    """Return what one step makes of the records before it, one by one."""
    match step:
        case Filter(condition=condition):
            return _filter(frame, condition, step.fields)
        case Each(function=function):
            return _each(frame, function, step)
        case Map(function=function):
            return _map(frame, function, step.fields)
        case FlatMap(function=function):
            return _flat_map(frame, function, step.fields)
        case Transform(function=function):
            transformed: DataFrame = function(frame)
            return transformed
        case Project(fields=fields):
            return frame.select(*carried(frame), *(spark_name(field.name) for field in fields))
        case Lookup(query=query):
            return state_query(frame, query)
        case Peek(function=function):
            return _python(frame, step.fields, lambda record: _seen(function, record))
        case Repartition(number=number, by=by):
            return frame.repartition(number, *(spark_name(field.name) for field in by))
        case other:
            assert_never(other)


def with_condition(frame: DataFrame, condition: Condition, name: str, of: str = "remove") -> DataFrame:
    """The records with one more column: whether the condition `of` something is true for them (null is not)."""
    if isinstance(condition, str):
        marked = f"coalesce({condition}, false) as {spark_name(name)}"
        return checked(frame, of, [condition], lambda records: records.selectExpr("*", marked))
    holds = condition
    fields = [Field(column, type_) for column, type_ in frame.dtypes[len(carried(frame)) :]]
    return _python(frame, [*fields, Field(name, "boolean")], lambda record: [(*record.values(), bool(holds(record)))])


def with_where(frame: DataFrame, aggregates: Mapping[str, CombinerAggregator]) -> tuple[DataFrame, dict[str, str]]:
    """The records with a column for each value that has a condition, and how these columns are called."""
    names = {name: f"{WHERE}{number}" for number, name in enumerate(aggregates) if aggregates[name].where}
    for name, column in names.items():
        frame = with_condition(frame, aggregates[name].where or "", column, "where")
    return frame, names


def _filter(frame: DataFrame, condition: Condition, fields: Sequence[Field]) -> DataFrame:
    if isinstance(condition, str):
        return checked(frame, "filter", [condition], lambda records: records.filter(condition))
    holds = condition
    return _python(frame, fields, lambda record: [tuple(record.values())] if holds(record) else [])


def _each(frame: DataFrame, function: Function, step: Each) -> DataFrame:
    appended = step.appended
    if not callable(function):
        columns = _expressions(function, appended)
        after = checked(frame, "each", _listed(function), lambda records: records.selectExpr("*", *columns))
        _check_kept(frame, "each", function, appended)
        return after
    called, names = function, [field.name for field in appended]
    return _python(frame, step.fields, lambda record: _appended(record, called(record), names))


def _appended(record: dict[str, Any], made: Any, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The record with what a function returned for it, as often as that is a list of."""
    before = tuple(record.values())
    return [(*before, *as_tuple(each, names)) for each in (made if isinstance(made, list) else [made])]


def _seen(function: Callable[[dict[str, Any]], object], record: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The record as it was, after the function saw it."""
    before = tuple(record.values())
    function(record)
    return [before]


def _map(frame: DataFrame, function: Function, fields: Sequence[Field]) -> DataFrame:
    if not callable(function):
        columns = _expressions(function, fields)
        after = checked(frame, "map", _listed(function), lambda records: records.selectExpr(*carried(frame), *columns))
        _check_kept(frame, "map", function, fields)
        return after
    called, names = function, [field.name for field in fields]
    return _python(frame, fields, lambda record: [as_tuple(called(record), names)])


def _flat_map(frame: DataFrame, function: Function, fields: Sequence[Field]) -> DataFrame:
    if callable(function):
        called, fields_made = function, [field.name for field in fields]
        return _python(frame, fields, lambda record: [as_tuple(each, fields_made) for each in called(record)])
    generator = "inline" if len(fields) > 1 else "explode"
    names = ", ".join(spark_name(field.name) for field in fields)
    (expression,) = _listed(function)
    checked(frame, "flat_map", [expression], lambda records: records.selectExpr(expression))
    return frame.selectExpr(*carried(frame), f"{generator}({expression}) as ({names})")


def _expressions(function: str | Sequence[str], fields: Sequence[Field]) -> list[str]:
    return [
        f"cast({expression} as {field.type}) as {spark_name(field.name)}"
        for expression, field in zip(_listed(function), fields, strict=True)
    ]


def _check_kept(frame: DataFrame, what: str, function: str | Sequence[str], fields: Sequence[Field]) -> None:
    expressions = _listed(function)
    types = [type_ for _, type_ in frame.selectExpr(*expressions).dtypes]
    check_kept(what, list(zip(expressions, types, strict=True)), fields)


def _listed(function: str | Sequence[str]) -> list[str]:
    return [function] if isinstance(function, str) else list(function)


def as_tuple(value: Any, names: Sequence[str]) -> tuple[Any, ...]:
    """Return what a Python function returned, as one value per field."""
    values = values_of(value, names)
    if len(values) != len(names):
        raise DefinitionError(f"a function returned {value!r}; expected a tuple of {len(names)} values")
    return values


def _python(
    frame: DataFrame, fields: Sequence[Field], rows: Callable[[dict[str, Any]], list[tuple[Any, ...]]]
) -> DataFrame:
    """`rows` of every record, on the executors. Columns go by number: Spark takes a name with a dot apart on this way."""
    kept = [OF_FIELD] * len(carried(frame))
    before, after = list(frame.columns), [field.name for field in (*kept, *fields)]
    made = [Field(f"c{number}", field.type) for number, field in enumerate((*kept, *fields))]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            records = [dict(zip(before, record, strict=True)) for record in values]
            yield _batch(records, [_told(rows, record, len(kept)) for record in records], (*kept, *fields))

    return frame.toDF(*(f"c{number}" for number in range(len(before)))).mapInArrow(run, ddl(made)).toDF(*after)


def _told(
    rows: Callable[[dict[str, Any]], list[tuple[Any, ...]]], record: dict[str, Any], kept: int
) -> list[tuple[Any, ...]]:
    """`rows` of a record, behind the columns that are kept and not shown; an exception says which record it was."""
    unseen = tuple(record.pop(name) for name in list(record)[:kept])
    try:
        return [(*unseen, *row) for row in rows(record)]
    except Exception as error:
        error.add_note(record_note(record))
        raise


def _batch(
    records: Sequence[dict[str, Any]], made: Sequence[list[tuple[Any, ...]]], fields: Sequence[Field]
) -> pa.RecordBatch:
    """Return the results as a batch. If a value does not fit, look at each record by itself, to name the one that has it."""
    import pyarrow as pa

    rows = list(chain.from_iterable(made))
    columns = list(zip(*rows, strict=True)) or [()] * len(fields)
    try:
        arrays = [arrow_array(column, field) for column, field in zip(columns, fields, strict=True)]
    except Exception:
        for record, own in zip(records, made, strict=True):
            _check(record, own, fields)
        raise
    return pa.record_batch(arrays, names=[f"c{number}" for number in range(len(fields))])


def _check(record: dict[str, Any], rows: list[tuple[Any, ...]], fields: Sequence[Field]) -> None:
    for row in rows:
        for value, field in zip(row, fields, strict=True):
            try:
                arrow_array([value], field)
            except BadRecord as error:
                raise BadRecord(f"{error}; the record is {shown_record(record)}") from error
