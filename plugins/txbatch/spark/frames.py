"""Fields as Spark and Arrow have them, and DataFrames of given rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from txbatch.core.aggregator import quoted
from txbatch.core.fields import Field, decimal_scale

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_ARROW = {
    "string": "string",
    "bigint": "int64",
    "int": "int32",
    "smallint": "int16",
    "boolean": "bool",
    "double": "float64",
    "float": "float32",
    "date": "date32",
    "binary": "binary",
}


def ddl(fields: Iterable[Field]) -> str:
    """Fields as a Spark schema."""
    return ", ".join(f"{quoted(field.name)} {field.type}" for field in fields)


def arrow_type(type_: str) -> pa.DataType:
    """The Arrow type of a field's type."""
    import pyarrow as pa

    if type_ == "timestamp":
        return pa.timestamp("us", "UTC")
    if decimal_scale(type_) is not None:
        return pa.decimal128(*map(int, re.findall(r"\d+", type_)))
    return pa.type_for_alias(_ARROW[type_])


def nothing(spark: SparkSession, fields: Iterable[Field]) -> DataFrame:
    """No records, with these fields."""
    return spark.range(0).selectExpr(*(f"cast(null as {field.type}) as {quoted(field.name)}" for field in fields))


def of_rows(spark: SparkSession, fields: Sequence[Field], rows: Iterable[Sequence[Any]]) -> DataFrame:
    """These rows, through Arrow: a list of tuples would go through Python workers."""
    import pyarrow as pa

    columns = list(zip(*rows, strict=True)) or [() for _ in fields]
    arrays = [pa.array(column, arrow_type(field.type)) for column, field in zip(columns, fields, strict=True)]
    return spark.createDataFrame(pa.table(arrays, names=[field.name for field in fields]), ddl(fields))
