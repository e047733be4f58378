"""Reducers of a batch, on DataFrames: Python goes through the sorted records of each key."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from txbatch.arrow import arrow_array
from txbatch.core.records.fields import Field
from txbatch.core.topology.nodes import Reduce
from txbatch.spark.frames import ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_IS_RECORD = "is_record"
_ROWS_PER_BATCH = 10_000


def reduced(frame: DataFrame, step: Reduce) -> DataFrame:
    """Return a record for each key; without keys always a record. Columns go by number: Spark splits a name at a dot."""
    from pyspark.sql import functions as F

    names, reducing = [field.name for field in step.before.fields], step.reducing
    made = [Field(f"c{number}", field.type) for number, field in enumerate(step.fields)]
    keys = [f"c{names.index(key.name)}" for key in step.keys]
    numbered = frame.toDF(*(f"c{number}" for number in range(len(names)))).withColumn(_IS_RECORD, F.lit(True))
    spread = numbered.repartition(*keys) if keys else _with_another(numbered, step).repartition(1)
    order = [F.col(name).asc_nulls_last() for name in (*keys, *numbered.columns)]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        values = (row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))
        rows = reducing.rows(dict(zip(names, row, strict=False)) for row in values if row[-1])
        while some := list(islice(rows, _ROWS_PER_BATCH)):
            arrays = [arrow_array(column, field) for column, field in zip(zip(*some, strict=True), made, strict=True)]
            yield pa.record_batch(arrays, names=[field.name for field in made])

    return spread.sortWithinPartitions(*order).mapInArrow(run, ddl(made)).toDF(*(field.name for field in step.fields))


def _with_another(numbered: DataFrame, step: Reduce) -> DataFrame:
    """Return the records, and a row that is no record, to have a partition in any case."""
    nulls = [f"cast(null as {field.type}) as c{number}" for number, field in enumerate(step.before.fields)]
    return numbered.union(numbered.sparkSession.range(1).selectExpr(*nulls, f"false as {_IS_RECORD}"))
