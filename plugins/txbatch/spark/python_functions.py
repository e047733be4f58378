"""Runs a job's Python functions on the executors, record by record, over Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from txbatch.arrow import arrow_array
from txbatch.core.errors import BadRecord, BadResult, TxbatchError
from txbatch.core.records.fields import Field
from txbatch.core.records.functions import is_of_record
from txbatch.core.sources.spout import PartitionedSpout
from txbatch.core.text import describe_record
from txbatch.core.topology import quarantine
from txbatch.core.topology.nodes import Node, Source
from txbatch.core.topology.python_steps import MISFIT_UNSHOWN, Row, Rows, operation_of
from txbatch.spark.failures import raise_for
from txbatch.spark.frames import ddl
from txbatch.spark.within_batch import OF_FIELD, carried

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Called:
    """A Python function of the job: the rows made of a record, and the function's name in errors.

    Errors show the record if `shown` is true. If `quarantined` is true, a failing record is left out.
    """

    of: str
    rows: Rows
    shown: bool = True
    quarantined: bool = False

    def outcome(self, record: dict[str, Any]) -> list[Row] | Exception:
        """Return the rows made of a record; if quarantined, return the failure. If not, raise the failure with the record."""
        try:
            return self.rows(dict(record))
        except Exception as error:
            if self.quarantined and is_of_record(error):
                return error
            if isinstance(error, BadRecord):
                raise self.refused(error, record) from (error if self.shown else None)
            raise_for(error, record, self.of, show=self.shown)

    def refused(self, error: BadRecord, record: dict[str, Any]) -> TxbatchError:
        """Return the error for a record with a result that fits no field."""
        what = f"{error}; the record is {describe_record(record)}" if self.shown else MISFIT_UNSHOWN
        return TxbatchError.by_code[error.code](f"{self.of}: {what}")


def run_python(frame: DataFrame, fields: Sequence[Field], called: Called) -> DataFrame:
    """Return the rows a function makes of every record."""
    kept = len(carried(frame))

    def made(records: list[dict[str, Any]]) -> pa.RecordBatch:
        unseen = [_popped(record, kept) for record in records]
        found = [called.outcome(record) for record in records]
        fitting = _fitting(found, fields) if called.quarantined else found
        good = [[] if isinstance(each, Exception) else each for each in fitting]
        own = [[(*first, *row) for row in each] for first, each in zip(unseen, good, strict=True)]
        return _batch(records, own, (*[OF_FIELD] * kept, *fields), called)

    return _mapped(frame, [*[OF_FIELD] * kept, *fields], made)


def run_failed(frame: DataFrame, step: Node, rows: Rows) -> DataFrame:
    """Return the rows of a quarantine: a row for each record for which a step's function fails."""
    name, show, fields = step.name, step.show_records, step.fields
    called = Called(operation_of(step), rows, show, quarantined=True)
    kept, names = len(carried(frame)), dict(filter(None, map(_naming, step.roots)))

    def made(records: list[dict[str, Any]]) -> pa.RecordBatch:
        places = [_place(_popped(record, kept), name, names) for record in records]
        found = _fitting([called.outcome(record) for record in records], fields)
        failed = [
            quarantine.failed_row(place, called.of, record, error, show=show)
            for place, record, error in zip(places, records, found, strict=True)
            if isinstance(error, Exception)
        ]
        return _batch([], [failed], quarantine.FIELDS, called)

    return _mapped(frame, quarantine.FIELDS, made)


def _mapped(frame: DataFrame, fields: Sequence[Field], made: Any) -> DataFrame:
    """Return the results of `made` for the records of each batch. Columns go by number: Spark splits a name at a dot."""
    before, numbered = list(frame.columns), [Field(f"c{number}", field.type) for number, field in enumerate(fields)]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            yield made([dict(zip(before, record, strict=True)) for record in values])

    by_number = frame.toDF(*(f"c{number}" for number in range(len(before))))
    return by_number.mapInArrow(run, ddl(numbered)).toDF(*(field.name for field in fields))


def _popped(record: dict[str, Any], kept: int) -> Row:
    """Take the first values, carried on and not shown to functions, off a record."""
    return tuple(record.pop(name) for name in list(record)[:kept])


def _naming(root: Source) -> tuple[str, Callable[[str], str]] | None:
    """Return a source and the naming of the source's partitions, if records have other names; if not, None."""
    spout = root.spout
    if not isinstance(spout, PartitionedSpout) or type(spout).partition_name is PartitionedSpout.partition_name:
        return None
    return root.name, spout.partition_name


def _place(unseen: Row, stream: str, names: Mapping[str, Callable[[str], str]]) -> tuple[str, str]:
    """Return the stream and the partition of a record, as far as known."""
    if not unseen:
        return stream, ""
    root, _, partition = unseen[0].partition("\0")
    return root, names[root](partition) if root in names else partition


def _fitting(found: Sequence[list[Row] | Exception], fields: Sequence[Field]) -> list[list[Row] | Exception]:
    """Return outcomes with the failure in place of each outcome with misfit values."""
    made = list(chain.from_iterable(each for each in found if not isinstance(each, Exception)))
    if _misfit(made, fields) is None:
        return list(found)
    return [each if isinstance(each, Exception) else _misfit(each, fields) or each for each in found]


def _misfit(rows: Sequence[Row], fields: Sequence[Field]) -> Exception | None:
    try:
        for column, field in zip(zip(*rows, strict=True), fields, strict=True):
            arrow_array(column, field)
    except Exception as error:
        return error
    return None


def _batch(
    records: Sequence[dict[str, Any]], made: Sequence[list[Row]], fields: Sequence[Field], called: Called
) -> pa.RecordBatch:
    """Return the results in a batch. If a value does not fit, check each record alone to name the record at fault."""
    import pyarrow as pa

    rows = list(chain.from_iterable(made))
    columns = list(zip(*rows, strict=True)) or [()] * len(fields)
    try:
        arrays = [arrow_array(column, field) for column, field in zip(columns, fields, strict=True)]
    except Exception:
        for record, own in zip(records, made, strict=True):
            _check(record, own, fields, called)
        raise
    return pa.record_batch(arrays, names=[f"c{number}" for number in range(len(fields))])


def _check(record: dict[str, Any], rows: list[Row], fields: Sequence[Field], called: Called) -> None:
    for row in rows:
        for value, field in zip(row, fields, strict=True):
            try:
                arrow_array([value], field)
            except BadRecord as error:
                if called.shown:
                    raise called.refused(BadResult(error), record) from error
                what = f"{called.of}: a function returned a {type(value).__name__} that does not fit {field.name!r}"
                raise BadResult(f"{what}, declared {field.type}; convert it there, or declare another type") from None
