"""Makes rows of a state that keeps records from a batch's records, on DataFrames: each with a key for a retry to find again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txbatch.core.records.fields import Field
from txbatch.core.records.sql import spark_name
from txbatch.core.records.texts import text_sql
from txbatch.core.state.append import BATCH, COPY, RECORD, RECORD_CHARACTERS
from txbatch.core.topology.persistent_aggregate import RECORDS_COLUMN, PersistentAggregate
from txbatch.spark.within_batch import carried

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def appended(frame: DataFrame, aggregate: PersistentAggregate, position: str) -> DataFrame:
    """Return a row for each record: the key, the fields, and a count of 1 record. `position` is the SQL of the record's
    batch; what is carried with the records stays in front.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    fields = aggregate.rows_of
    told = ", ".join(map(_told, fields))
    record = F.expr(f"left(sha2(concat({told}), 256), {RECORD_CHARACTERS})").alias(RECORD.name)
    of, names = carried(frame), [F.col(spark_name(field.name)) for field in fields]
    with_record = frame.select(*of, F.expr(position).cast(BATCH.type).alias(BATCH.name), record, *names)
    equal = Window.partitionBy(*of, RECORD.name).orderBy(RECORD.name)
    copy = F.row_number().over(equal).cast(COPY.type).alias(COPY.name)
    one = F.lit(1).cast("bigint").alias(RECORDS_COLUMN)
    return with_record.select(*of, BATCH.name, RECORD.name, copy, *names, one)


def _told(field: Field) -> str:
    """Return the SQL of a field's text behind the text's length: different values of a field have different texts."""
    name = spark_name(field.name)
    null = f"{name} is null"
    text = text_sql(field)
    return f"if({null}, '-', concat(cast(octet_length({text}) as string), ':', {text}))"
