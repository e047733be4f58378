"""Python functions of a job on the executors, record by record, over Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from txbatch.arrow import arrow_array
from txbatch.core.errors import BadRecord, TxbatchError
from txbatch.core.fields import Field
from txbatch.core.python_steps import Row, Rows
from txbatch.spark.failures import Unshown, record_note, shown_record
from txbatch.spark.frames import ddl
from txbatch.spark.within_batch import OF_FIELD, carried

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def run_python(frame: DataFrame, fields: Sequence[Field], rows: Rows, *, show: bool = True) -> DataFrame:
    """Return `rows` of every record. Errors have the record, unless it is not to be shown.

    Columns go by number: Spark takes a name with a dot apart on this way.
    """
    kept = [OF_FIELD] * len(carried(frame))
    before, after = list(frame.columns), [field.name for field in (*kept, *fields)]
    made = [Field(f"c{number}", field.type) for number, field in enumerate((*kept, *fields))]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            records = [dict(zip(before, record, strict=True)) for record in values]
            yield _batch(records, [_made(rows, record, len(kept), show) for record in records], (*kept, *fields), show)

    return frame.toDF(*(f"c{number}" for number in range(len(before)))).mapInArrow(run, ddl(made)).toDF(*after)


def _made(rows: Rows, record: dict[str, Any], kept: int, show: bool) -> list[Row]:
    """Return `rows` of a record, behind the columns that are kept and not shown; an exception says which record it was."""
    unseen = tuple(record.pop(name) for name in list(record)[:kept])
    try:
        return [(*unseen, *row) for row in rows(record)]
    except Exception as error:
        if not show and not isinstance(error, TxbatchError):
            raise Unshown(error, record).with_traceback(error.__traceback__) from None
        error.add_note(record_note(error, record, show=show))
        raise


def _batch(
    records: Sequence[dict[str, Any]], made: Sequence[list[Row]], fields: Sequence[Field], show: bool
) -> pa.RecordBatch:
    """Return the results as a batch. If a value does not fit, look at each record by itself, to name the one that has it."""
    import pyarrow as pa

    rows = list(chain.from_iterable(made))
    columns = list(zip(*rows, strict=True)) or [()] * len(fields)
    try:
        arrays = [arrow_array(column, field) for column, field in zip(columns, fields, strict=True)]
    except Exception:
        for record, own in zip(records, made, strict=True):
            _check(record, own, fields, show)
        raise
    return pa.record_batch(arrays, names=[f"c{number}" for number in range(len(fields))])


def _check(record: dict[str, Any], rows: list[Row], fields: Sequence[Field], show: bool) -> None:
    for row in rows:
        for value, field in zip(row, fields, strict=True):
            try:
                arrow_array([value], field)
            except BadRecord as error:
                if show:
                    raise BadRecord(f"{error}; the record is {shown_record(record)}") from error
                what = f"a function returned a {type(value).__name__} that does not fit {field.name!r}"
                raise BadRecord(f"{what}, declared {field.type}; convert it there, or declare another type") from None
