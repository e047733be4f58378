"""Fields in Spark's form, and DataFrames of given rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from txbatch.arrow import arrow_array
from txbatch.core.records.fields import Field
from txbatch.core.records.sql import spark_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def ddl(fields: Iterable[Field]) -> str:
    """Fields as a Spark schema."""
    return ", ".join(f"{spark_name(field.name)} {field.type}" for field in fields)


def nothing(spark: SparkSession, fields: Iterable[Field]) -> DataFrame:
    """Return no records, with the given fields."""
    return spark.range(0).selectExpr(*(f"cast(null as {field.type}) as {spark_name(field.name)}" for field in fields))


def of_rows(
    spark: SparkSession, fields: Sequence[Field], rows: Iterable[Sequence[Any]], who: str = "a row has"
) -> DataFrame:
    """Return a DataFrame of rows, through Arrow: a list of tuples would go through Python workers.

    Raise BadRecord, with a text from `who`, for a value of the wrong type.
    """
    import pyarrow as pa

    columns = list(zip(*rows, strict=True)) or [() for _ in fields]
    arrays = [arrow_array(column, field, who) for column, field in zip(columns, fields, strict=True)]
    return spark.createDataFrame(pa.table(arrays, names=[field.name for field in fields]), ddl(fields))
