"""Reads Parquet files as declared fields: first checks each footer against the fields, and refuses a misfit by name.

Spark reads the columns that Spark reads exactly. Arrow reads the rest: other widths, nanoseconds, folder columns, some
codecs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from functools import partial, reduce
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txbatch.arrow import arrow_type
from txbatch.core.errors import AmbiguousFiles, BadRecord, BadText, OutOfRange
from txbatch.core.records.fields import INTEGER_TYPES, Field
from txbatch.core.records.sql import spark_name
from txbatch.formats import old_calendar, parquet_schema
from txbatch.formats.folders import NOWHERE, FolderTimes, not_of_folder, outside
from txbatch.formats.listing import check_size, escaped, relative_path
from txbatch.formats.misfit import BadValue, describe_value
from txbatch.formats.parquet_schema import (
    NO_OPTIONS,
    WAY_OUT,
    check,
    has_whole,
    held_against,
    missing_value,
    opened,
    readable,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

_BATCH_ROWS = 65_536
# Of the pages whose writer noted one; a damaged page may be numbers like others.
CHECKSUMS = {"parquet.page.verify-checksum.enabled": "true"}


def read(
    spark: SparkSession,
    folder: Path,
    files: Mapping[str, int],
    fields: Sequence[Field],
    options: Mapping[str, Any] = NO_OPTIONS,
    time: str = "",
) -> DataFrame:
    """Return the records of files, with the declared fields. `files` has the names below `folder`, with the planned sizes.

    With the option `folder_time` the times in the field `time` are held against the names of the files' folders.

    Raise BadRecord with the file, the column and both types, TransientError if a file has changed since the planning.
    """
    for_spark: list[str] = []
    for_arrow: list[str] = []
    times = FolderTimes.of(options)
    for name, size in files.items():
        check_size(folder / name, size)
        exact = check(folder, name, fields, options) and (times is None or times.is_plain(name))
        (for_spark if exact else for_arrow).append(name)
    schema = _schema(fields)
    frames = _by_spark(spark, folder, for_spark, fields, times, time)
    if for_arrow:
        named = spark.createDataFrame([(name,) for name in for_arrow], "name string")
        one_each = named.repartition(len(for_arrow), "name")
        frames.append(
            one_each.mapInArrow(partial(_read, str(folder.resolve()), list(fields), dict(options), time), schema)
        )
    return reduce(lambda one, other: one.union(other), frames) if frames else spark.createDataFrame([], schema)


def _by_spark(
    spark: SparkSession,
    folder: Path,
    names: Sequence[str],
    fields: Sequence[Field],
    times: FolderTimes | None,
    time: str,
) -> list[DataFrame]:
    """Return the records of files that Spark reads exactly: apart those of files whose folders bound their times."""
    bounded = [name for name in names if times is not None and times.span(name)]
    frames = []
    if bounded and times is not None:
        frames.append(_bounded(_native(spark, folder, bounded, fields), bounded, fields, times, time))
    if others := sorted({*names} - {*bounded}):
        frames.append(_native(spark, folder, others, fields))
    return frames


def _native(spark: SparkSession, folder: Path, names: Sequence[str], fields: Sequence[Field]) -> DataFrame:
    paths = [escaped(folder.resolve() / name) for name in names]
    found = spark.read.options(**CHECKSUMS).schema(_schema(fields)).parquet(*paths)
    _check_opened(found, folder, names)
    return found


def _schema(fields: Sequence[Field]) -> str:
    return ", ".join(f"{spark_name(field.name)} {field.type}" for field in fields)


def check_texts(
    folder: Path,
    name: str,
    fields: Sequence[Field],
    time: str,
    within: tuple[date, date],
    options: Mapping[str, Any] = NO_OPTIONS,
) -> None:
    """Refuse a file with a text that is no UTF-8, in a record with a time from the first to before the second of `within`.

    BadRecord names column and row. Spark and Arrow would read the bytes unchecked.
    """
    first = 1
    for batch in read_batches(folder, name, fields, options):
        for field in fields:
            if field.type == "string" and (row := _no_text(batch, field.name, time, within)) is not None:
                raise BadText(
                    f"{folder / name}: the column {field.name!r} is not UTF-8 in row {first + row:,}; {WAY_OUT}"
                )
        first += len(batch)


def _no_text(batch: pa.RecordBatch, name: str, time: str, within: tuple[date, date]) -> int | None:
    """Return a batch's first row with a time within `within` and a text that is no UTF-8; None if there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column, times = batch.column(name), batch.column(time)
    with suppress(pa.ArrowInvalid):
        column.validate(full=True)
        return None
    first, last = (pa.scalar(each, times.type) for each in within)
    asked = pc.and_(pc.greater_equal(times, first), pc.less(times, last)).to_pylist()
    texts = enumerate(zip(column.cast(pa.binary()).to_pylist(), asked, strict=True))
    return next((row for row, (text, wanted) in texts if wanted and text is not None and not _is_utf8(text)), None)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check_opened(records: DataFrame, folder: Path, names: Sequence[str]) -> None:
    opened_ = {relative_path(uri, folder) for uri in records.inputFiles()}
    left_out = [name for name in names if name not in opened_]
    if left_out:
        raise AmbiguousFiles(f"{folder}: Spark does not read {', '.join(left_out[:5])}; rename them")


def _read(
    folder: str,
    fields: Sequence[Field],
    options: Mapping[str, Any],
    time: str,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for name in batch.column(0).to_pylist():
            yield from read_batches(Path(folder), name, fields, options, time)


def _bounded(
    records: DataFrame, names: Sequence[str], fields: Sequence[Field], of: FolderTimes, time: str
) -> DataFrame:
    """Return the records, whose times are held against the names of the files' folders: each file has one."""
    from pyspark.sql import functions as F

    spans = {str(of.text(name)): span for name in names if (span := of.span(name))}
    file, at = F.col("_metadata.file_path"), F.col(spark_name(time))
    text = F.regexp_extract(file, f"^.*/{re.escape(of.key)}=([^/]*)/", 1)
    whole_days = any((field.name, field.type) == (time, "date") for field in fields)
    low, high = (
        F.create_map(*(F.lit(each) for text_, span in spans.items() for each in (text_, _bound(span[end], whole_days))))
        for end in (0, 1)
    )
    right = (at >= F.try_element_at(low, text)) & (at < F.try_element_at(high, text))
    told = F.concat(file, F.lit(": "), at.cast("string"), F.lit(" "), _not_of_folder(of.key, text))
    checked = F.when(at.isNull() | right, at).otherwise(F.raise_error(told))
    return records.withColumn(time, checked.cast("date" if whole_days else "timestamp"))


def _bound(moment: datetime, whole_days: bool) -> date:
    return moment.date() if whole_days else moment


def _not_of_folder(key: str, text: Column) -> Column:
    from pyspark.sql import functions as F

    before, behind = not_of_folder("\0").split("\0")
    return F.concat(F.lit(f"{before}{key}="), text, F.lit(behind))


def read_batches(
    folder: Path, name: str, fields: Sequence[Field], options: Mapping[str, Any] = NO_OPTIONS, time: str = ""
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a file, cast without loss. If a cast would lose, BadRecord names the column.

    A value that contradicts the name of the file's folder is refused, and so is a time by the option `folder_time`.
    """
    import pyarrow as pa

    path, file = folder / name, opened(folder / name)
    own = [field for field in fields if field.name in file.schema_arrow.names]
    held = {field.name: held_against(name, field, folder, options) for field in own}
    missing = (field for field in fields if field not in own)
    given = {field.name: missing_value(name, field, folder, options) for field in missing}
    int96 = [field.name for field in own if parquet_schema.int96(file, field)]
    old = old_calendar.old(file.metadata.metadata)
    # Arrow reads INT96 as nanoseconds, from 1678 to 2262, or as microseconds, cut: refused unless both say the same.
    source = opened(path, coerce_int96_timestamp_unit="us") if int96 else file
    nanoseconds = file.iter_batches(_BATCH_ROWS, columns=int96) if int96 else repeat(None)
    with readable(path):
        records = source.iter_batches(_BATCH_ROWS, columns=[field.name for field in own])
        for batch, exact in zip(records, nanoseconds, strict=False):
            columns = []
            for field in fields:
                if field.name in given:
                    columns.append(_repeated(given[field.name], field, len(batch)))
                    continue
                column = _cast(batch.column(field.name), field, path)
                if field.name in int96 and _cast(exact.column(field.name), field, path) != column:
                    raise OutOfRange(
                        f"{path}: the column {field.name!r} holds times before 1678 or after 2261 as INT96; {WAY_OUT}"
                    )
                if field.type in old:
                    column = _in_our_calendar(path, field, column)
                if held[field.name] is not NOWHERE:
                    _check_agrees(path, field, column, held[field.name])
                columns.append(column)
            batch = pa.record_batch(columns, names=[field.name for field in fields])
            _check_folder_time(folder, name, batch, options, time)
            yield batch


def _in_our_calendar(path: Path, field: Field, column: pa.Array) -> pa.Array:
    try:
        return old_calendar.in_our_calendar(column, field.type)
    except BadValue as bad:
        value = describe_value(column[bad.index].as_py())
        raise OutOfRange(f"{path}: the column {field.name!r} has {value}, which {bad.reason}; {WAY_OUT}") from None


def _check_agrees(path: Path, field: Field, column: pa.Array, given: Any) -> None:
    from txbatch.formats.cells import agreeing

    try:
        agreeing(column, given)
    except BadValue as bad:
        value = describe_value(column[bad.index].as_py())
        raise BadRecord(f"{path}: the column {field.name!r} has {value}, which {bad.reason}") from None


def _check_folder_time(folder: Path, name: str, batch: pa.RecordBatch, options: Mapping[str, Any], time: str) -> None:
    """Refuse a time that is not of the file's folder: BadRecord."""
    of = FolderTimes.of(options)
    if not (of and time and (span := of.span(name))):
        return
    times = batch.column(time)
    if (index := outside(times, *span)) is not None:
        value = describe_value(times[index].as_py())
        raise BadRecord(f"{folder / name}: the column {time!r} has {value}, which {not_of_folder(of.named(name))}")


def _repeated(value: Any, field: Field, times: int) -> pa.Array:
    """Return a column of one value, which a folder's name has; of null, if the value is nowhere."""
    import pyarrow as pa

    return pa.repeat(pa.scalar(None if value is NOWHERE else value, arrow_type(field.type)), times)


def _cast(column: pa.Array, field: Field, path: Path) -> pa.Array:
    import pyarrow as pa

    type_ = arrow_type(field.type)
    try:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if field.type == "timestamp" and not pa.types.is_null(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz))
        if has_whole(column.type) and field.type in INTEGER_TYPES | {"string"}:
            column = _integers(column)
        return column.cast(type_)
    except pa.ArrowInvalid as error:
        why = str(error).splitlines()[0].rstrip(". ")
        raise BadRecord(
            f"{path}: a value of the column {field.name!r} is no {field.type} ({why}); {WAY_OUT}"
        ) from error


def _integers(column: pa.Array) -> pa.Array:
    """Return floating numbers as integers. Raise ArrowInvalid for a number with a fraction, or of no exact size.

    From 2^53 on, or 2^24 of a float, not every integer has a number of its own: another one may have been written.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    bits = 53 if column.type == pa.float64() else 24
    whole = pc.and_(pc.equal(pc.floor(column), column), pc.less(pc.abs(column), pa.scalar(2.0**bits, column.type)))
    if pc.all(whole).as_py() is False:
        value = column[pc.index(whole, False).as_py()].as_py()
        raise pa.ArrowInvalid(f"{value!r} is not a whole number below 2^{bits}, up to which each integer has its own")
    return column.cast(pa.int64())
