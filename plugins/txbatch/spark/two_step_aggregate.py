"""Partials of grouped records: at once; or, if an aggregate counts how often each value is present, first by value.

By value, a record stands once for all other values, and again for each counted value. So memory is bounded by the number of
different values in a task, never by the number of a key's records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from txbatch.core.aggregates.aggregator import CombinerAggregator
from txbatch.core.records.sql import spark_name
from txbatch.core.topology.persistent_aggregate import RECORDS_COLUMN, ValueColumn
from txbatch.spark.own_combiners import STANDS_FOR, Own

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# In so many arrays the values of a key stand of which the least are kept.
_ARRAYS = 64
# Of which value a row is: 0 for all that are aggregated at once; the value; and how often it is there. (Of which batch or
# partition it is says another column, `within_batch.OF_FIELD`.)
_OF, _EACH, _NUMBER = "_txbatch_which", "_txbatch_each", "_txbatch_number"


def counted_first(
    frame: DataFrame,
    keys: Sequence[str],
    columns: Sequence[ValueColumn],
    aggregates: Mapping[str, CombinerAggregator],
    where: Mapping[str, str],
    owns: Sequence[Own] = (),
) -> DataFrame:
    """Return a row per group: the partials, and the number of records. `where` has, for a value, the column of counting rows.

    For the values of `owns` there is a list of partials.
    """
    from pyspark.sql import functions as F

    in_sql = [column for column in columns if column.partial.merge.in_sql]
    at_once = [column for column in in_sql if column.partial.each is None]
    made = [F.expr(each.partial.spark(where.get(each.value))).alias(each.name) for each in at_once]
    made += [F.expr(own.collected).alias(own.column) for own in owns]
    made.append(F.expr(f"{_records(owns)} AS {RECORDS_COLUMN}"))
    counted = [column for column in in_sql if column.partial.each is not None]
    if not counted:
        return frame.groupBy(*keys).agg(*made)
    by = [f"{_EACH}{n}" for n in range(len(counted))]
    by_value = _repeated(frame, counted, where).groupBy(*keys, _OF, *by)
    zeros = {} if keys else _zeros(columns, aggregates)
    again = {column.name: _kept(column.name, zeros) for column in at_once}
    again |= {column.name: _of_values(column, n) for n, column in enumerate(counted)}
    kept = [*(again[column.name] for column in in_sql), *(_kept(own.column, {}) for own in owns)]
    first = by_value.agg(*made, F.expr(f"count(1) AS {_NUMBER}"))
    others = [*(column.name for column in at_once), *(own.column for own in owns), RECORDS_COLUMN, _NUMBER]
    first = _in_arrays(first, keys, counted, others)
    return first.groupBy(*keys).agg(*kept, _kept(RECORDS_COLUMN, zeros))


def _in_arrays(
    first: DataFrame, keys: Sequence[str], counted: Sequence[ValueColumn], others: Sequence[str]
) -> DataFrame:
    """Return rows with the values in arrays if only the least values are kept; a key has several arrays.

    One array of all values could outgrow memory; and Spark's own min_by sends, for each key, room for as many values as may
    be kept.
    """
    from pyspark.sql import functions as F

    if not any(column.partial.smallest for column in counted):
        return first
    by, made = list[str](), [f"any_value({spark_name(name)}) AS {spark_name(name)}" for name in others]
    for n, column in enumerate(counted):
        value, kept = f"{_EACH}{n}", column.partial.smallest
        by.append(f"pmod({value}, {_ARRAYS}) AS {value}_array" if kept else value)
        if kept:
            made.append(f"if(count({value}) > 0, slice(sort_array(collect_list({value})), 1, {kept}), null) AS {value}")
    return first.groupBy(*keys, _OF, *map(F.expr, by)).agg(*map(F.expr, made))


def _records(owns: Sequence[Own]) -> str:
    return f"coalesce(sum({STANDS_FOR}), 0L)" if owns else "count(1)"


def _repeated(frame: DataFrame, counted: Sequence[ValueColumn], where: Mapping[str, str]) -> DataFrame:
    """Return each record once for all values at once, and once for each counted value."""
    values = [_value(column, where.get(column.value)) for column in counted]
    rows = []
    for of in range(len(values) + 1):
        parts = [f"if({of - 1} = {n}, {value}, null) as {_EACH}{n}" for n, value in enumerate(values)]
        rows.append(f"struct({', '.join([f'{of} as {_OF}', *parts])})")
    return frame.selectExpr("*", f"inline(array({', '.join(rows)}))")


def _value(column: ValueColumn, where: str | None) -> str:
    return f"if({where}, {column.partial.each}, null)" if where else str(column.partial.each)


def _kept(name: str, zeros: Mapping[str, int]) -> Column:
    from pyspark.sql import functions as F

    kept = f"any_value({spark_name(name)}) FILTER (WHERE {_OF} = 0)"
    return F.expr(f"coalesce({kept}, {zeros[name]}L)" if name in zeros else kept).alias(name)


def _of_values(column: ValueColumn, number: int) -> Column:
    from pyspark.sql import functions as F

    value, only = f"{_EACH}{number}", f"{_OF} = {number + 1} AND {_EACH}{number} is not null"
    text = column.partial.spark(only).replace("{value}", value).replace("{number}", _NUMBER)
    return F.expr(text).alias(column.name)


def _zeros(columns: Sequence[ValueColumn], aggregates: Mapping[str, CombinerAggregator]) -> dict[str, int]:
    """Return the partials of a global value that are 0, not null, for a batch without records."""
    values = [part for each in aggregates.values() for part in each.zero()]
    zeros = {each.name: zero for each, zero in zip(columns, values, strict=True) if isinstance(zero, int)}
    return {**zeros, RECORDS_COLUMN: 0}
