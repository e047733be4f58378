"""Operations on all records of a batch, on DataFrames with columns of the declared types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, assert_never

from txbatch.core.records.fields import Field
from txbatch.core.records.python_types import fitted
from txbatch.core.records.sql import spark_name
from txbatch.core.topology.look_up import How
from txbatch.core.topology.nodes import Aggregate, BatchValue, FirstN, Join, Numbered
from txbatch.core.topology.persistent_aggregate import ValueColumn
from txbatch.spark.own_combiners import IS_RECORD, own_values, together, with_partials
from txbatch.spark.two_step_aggregate import counted_first

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# In front of a frame's columns where the spouts' partitions are asked for: the stream and the partition of each record. Where
# several batches are read in one pass: the txid of the batch that it belongs to.
OF_FIELD = Field("_txbatch_of", "string")
_RANK = "_txbatch_rank"


def first_n(frame: DataFrame, step: FirstN) -> DataFrame:
    """Return the first records of the batch, or of each group."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    by, names = F.col(spark_name(step.by.name)), [spark_name(field.name) for field in step.fields]
    order = [by.desc_nulls_last() if step.descending else by.asc_nulls_last()]
    order += [F.col(name).asc_nulls_last() for name in names]
    records = frame.filter(by.isNotNull()) if step.known else frame
    if not step.keys:
        return records.orderBy(*order).limit(step.number)
    group = Window.partitionBy(*(spark_name(key.name) for key in step.keys)).orderBy(*order)
    ranked = records.select(*names, F.row_number().over(group).alias(_RANK))
    return ranked.filter(F.col(_RANK) <= step.number).select(*names)


def numbered(frame: DataFrame, step: Numbered, base: int | None) -> DataFrame:
    """Return the records numbered from `base` on, in the order of all fields. The number is null if `base` is None."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if base is None:
        return frame.withColumn(step.number, F.lit(None).cast("bigint"))
    order = Window.orderBy(*(F.col(spark_name(field.name)).asc_nulls_last() for field in step.before.fields))
    return frame.withColumn(step.number, F.row_number().over(order).cast("bigint") + F.lit(base - 1))


def carried(frame: DataFrame) -> list[str]:
    """Return the columns carried with records through every step, unseen by the step: partition or batch, if asked for."""
    return [OF_FIELD.name] if OF_FIELD.name in frame.columns else []


def of_each_batch(frame: DataFrame, numbers: Mapping[int, int | None]) -> str:
    """Return the SQL of a number that each batch has, by txid: the number of the record's batch."""
    told = {txid: f"cast('{number}' as bigint)" for txid, number in numbers.items()}
    if not carried(frame):
        return next(iter(told.values()))
    entries = ", ".join(f"'{txid}', {number}" for txid, number in told.items())
    return f"map({entries})[{OF_FIELD.name}]"


def aggregate(frame: DataFrame, where: Mapping[str, str], step: Aggregate) -> DataFrame:
    """Return a record for each key, in each partition if the frame has partitions.

    `where` names, for each value with a condition, the column of counting records.
    """
    keys, of_partition = [spark_name(key.name) for key in step.keys], carried(frame)
    names = {value.name: _partials(number, value) for number, value in enumerate(step.values)}
    owns = own_values(step.aggregates, where, names)
    if owns:
        by = [*of_partition, *(key.name for key in step.keys)]
        frame = with_partials(frame, by, owns, records=len(owns) < len(names))
        where = {name: where.get(name, IS_RECORD) for name in names}
    columns = [
        ValueColumn(name, value.name, partial)
        for value in step.values
        for name, partial in zip(names[value.name], value.partials, strict=True)
    ]
    grouped = counted_first(frame, [*of_partition, *keys], columns, step.aggregates, where, owns)
    values = [_finished(number, value) for number, value in enumerate(step.values)]
    return together(grouped, owns).select(*keys, *values)


def join(left: DataFrame, right: DataFrame, node: Join) -> DataFrame:
    """Return the joined records of both sides with equal fields; columns go by number: sides may share a source."""
    from pyspark.sql import functions as F

    ours, theirs = ([field.name for field in side.fields] for side in (node.left, node.right))
    condition = " and ".join(f"l{ours.index(key)} = r{theirs.index(key)}" for key in node.on)
    keys = [_key(node.how, f"l{ours.index(key)}", f"r{theirs.index(key)}") for key in node.on]
    rest = [f"l{n}" for n, name in enumerate(ours) if name not in node.on]
    rest += [f"r{n}" for n, name in enumerate(theirs) if name not in node.on]
    both = _numbered(left, "l").join(_numbered(right, "r"), F.expr(condition), node.how.value)
    columns = zip([*keys, *rest], node.fields, strict=True)
    return both.selectExpr(*(f"{column} as {spark_name(field.name)}" for column, field in columns))


def _numbered(side: DataFrame, letter: str) -> DataFrame:
    return side.toDF(*(f"{letter}{number}" for number in range(len(side.columns))))


def _key(how: How, left: str, right: str) -> str:
    """Return a key's column: from the side with all records kept, or from either side."""
    match how:
        case How.INNER | How.LEFT:
            return left
        case How.RIGHT:
            return right
        case How.FULL:
            return f"coalesce({left}, {right})"
        case other:
            assert_never(other)


def _finished(number: int, value: BatchValue) -> Column:
    from pyspark.sql import functions as F

    partials, type_ = _partials(number, value), value.type
    in_sql, finish = value.aggregator.finish_spark(partials, type_), value.aggregator.finish
    if in_sql is None:
        called = F.udf(lambda *partial: fitted(finish(partial), type_), type_, useArrow=False)
        return called(*partials).alias(value.name)
    return F.expr(f"cast({in_sql} as {type_})").alias(value.name)


def _partials(number: int, value: BatchValue) -> list[str]:
    return [f"_txbatch_{number}_{n}" for n in range(len(value.partials))]
