"""Looks fields up in a static state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txbatch.core.spark_sql import spark_name
from txbatch.core.static import StateQuery, StaticState
from txbatch.spark.frames import of_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def state_query(frame: DataFrame, query: StateQuery) -> DataFrame:
    """Each record once, with the values of its key; null where there is none. A key that is there twice is an error."""
    from pyspark.sql import functions as F

    columns = [F.col(spark_name(name)) for name in frame.columns]
    keys = [F.col(spark_name(key.name)).alias(f"_txbatch_key_{n}") for n, key in enumerate(query.keys)]
    values = [_single(query, value.name).alias(f"_txbatch_value_{n}") for n, value in enumerate(query.values)]
    rows = _rows(frame.sparkSession, query.static).groupBy(*keys).agg(F.lit(True).alias("_txbatch_found"), *values)
    same = [F.col(spark_name(key.name)) == F.col(f"_txbatch_key_{n}") for n, key in enumerate(query.keys)]
    found = [F.col(f"_txbatch_value_{n}").alias(value.name) for n, value in enumerate(query.values)]
    return frame.join(rows, same, "left").select(*columns, *found)


def _single(query: StateQuery, name: str) -> Column:
    from pyspark.sql import functions as F

    keys = ", ".join(key.name for key in query.keys)
    twice = F.raise_error(F.lit(f"{query.static} has two rows with one {keys}; a key has one"))
    return F.when(F.count(F.lit(1)) > 1, twice).otherwise(F.any_value(F.col(spark_name(name))))


def _rows(spark: SparkSession, static: StaticState) -> DataFrame:
    if not callable(static.reader):
        return of_rows(spark, static.fields, static.reader)
    names = [spark_name(field.name) for field in static.fields]
    casts = [f"cast({name} as {field.type}) as {name}" for name, field in zip(names, static.fields, strict=True)]
    return static.reader(spark).selectExpr(*casts)
