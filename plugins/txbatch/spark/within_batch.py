"""What is made of all records of a batch, on DataFrames whose columns have their declared types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txbatch.core.operations import FirstN
from txbatch.core.spark_sql import spark_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
