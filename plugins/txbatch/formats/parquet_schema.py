"""Checks the footers of Parquet files against declared fields: refuses a misfit by name, before any record is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from txbatch.arrow import arrow_type
from txbatch.core.errors import DamagedFile, WrongColumns
from txbatch.core.records.fields import Field, decimal_scale
from txbatch.formats.folders import NOWHERE, folder_value, written

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# What Spark unpacks without libraries of the machine.
CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
WAY_OUT = "declare the column of the files, or write the file again"
_INTEGERS = {"smallint": "int16", "int": "int32", "bigint": "int64"}
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}


def check(folder: Path, name: str, fields: Sequence[Field], options: Mapping[str, Any] = NO_OPTIONS) -> bool:
    """Check a file's footer against the fields; return whether Spark reads the file exactly."""
    file = opened(folder / name)
    exact = True
    for field in fields:
        found = _column(file, folder / name, field)
        if found is None:
            exact = missing_value(name, field, folder, options, file.schema_arrow.names) is NOWHERE and exact
        else:
            exact = exact and not is_named(name, field)
            as_text = field.name in options.get("numbers_as_text", ())
            exact = _fits(file, folder / name, field, found, as_text=as_text) and _alone(file, field) and exact
    return exact


def opened(path: Path, **options: str) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path, memory_map=True, page_checksum_verification=True, **options)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise DamagedFile(
            f"{path} is no Parquet file, or is cut off ({str(error).splitlines()[0].rstrip('. ')}); write it again, or choose "
            "the files by pattern="
        ) from error


def _column(file: pq.ParquetFile, path: Path, field: Field) -> pa.DataType | None:
    """Return the type of a field's column in the file; None if the file lacks the column, perhaps named by folders."""
    schema = file.schema_arrow
    alike = [name for name in schema.names if name.strip().lower() == field.name.lower()]
    if alike.count(field.name) == 1:
        return _plain(schema.field(field.name).type)
    if field.name in alike:
        raise WrongColumns(
            f"{path}: the column {field.name!r} is there {alike.count(field.name)} times; write the file again"
        )
    if alike:
        raise WrongColumns(
            f"{path}: the column {field.name!r} is declared, the file has {', '.join(map(repr, alike))}; names mind case: "
            + WAY_OUT
        )
    return None


def _alone(file: pq.ParquetFile, field: Field) -> bool:
    """Return whether no other column of the file has the field's name in other capitals: Spark would mistake the two."""
    return [name.lower() for name in file.schema_arrow.names].count(field.name.lower()) == 1


def _plain(type_: pa.DataType) -> pa.DataType:
    """Return the type stored in the file; the writer's layout in memory does not matter."""
    import pyarrow as pa

    if pa.types.is_dictionary(type_):
        return _plain(type_.value_type)
    stored = {pa.large_string(): pa.string(), pa.string_view(): pa.string(), pa.large_binary(): pa.binary()}
    return stored.get(type_, type_)


def _fits(file: pq.ParquetFile, path: Path, field: Field, found: pa.DataType, *, as_text: bool) -> bool:
    """Return True if Spark reads the column exactly as declared, False if only Arrow does. Raise BadRecord if neither does."""
    import pyarrow as pa

    exactly = {arrow_type(field.type)}
    if field.type == "timestamp":
        exactly = {pa.timestamp(unit, found.tz) for unit in ("ms", "us")} if pa.types.is_timestamp(found) else set()
    if field.type == "string":
        exactly.add(pa.binary())
    if found in exactly or (int96(file, field) and b"org.apache.spark.version" in (file.metadata.metadata or {})):
        return _codec(file, path, field) in CODECS
    if not _widens(found, field.type) and not (as_text and (pa.types.is_integer(found) or has_whole(found))):
        raise WrongColumns(
            f"{path}: the column {field.name!r} is {found} in the file, declared as {field.type}; " + WAY_OUT
        )
    return False


def _widens(found: pa.DataType, declared: str) -> bool:
    """Return whether each value of the found type fits the declared type, or the cast fails for a misfit."""
    import pyarrow as pa

    types, scale = pa.types, decimal_scale(declared)
    if types.is_null(found):
        return True
    if declared == "timestamp":
        return bool(types.is_timestamp(found))
    if declared == "binary":
        return bool(types.is_fixed_size_binary(found))
    if declared in _INTEGERS:
        bits = pa.type_for_alias(_INTEGERS[declared]).bit_width
        if has_whole(found):
            return True
        return bool(types.is_integer(found) and (found.bit_width < bits or (found == pa.uint64() and bits == 64)))
    if declared in ("float", "double"):
        mantissa = 24 if declared == "float" else 53
        narrower = types.is_floating(found) and found.bit_width < arrow_type(declared).bit_width
        return bool(narrower or (types.is_integer(found) and found.bit_width < mantissa))
    if scale is not None:
        whole = arrow_type(declared).precision - scale
        if types.is_integer(found):
            return bool(whole >= (20 if found == pa.uint64() else _DIGITS[found.bit_width]))
        return bool(types.is_decimal(found) and found.scale <= scale and found.precision - found.scale <= whole)
    return False


def has_whole(found: pa.DataType) -> bool:
    """Return whether a type is floating, and its whole values are integers: pandas makes a double of integers with gaps."""
    import pyarrow as pa

    return found in (pa.float64(), pa.float32())


def _leaf(file: pq.ParquetFile, field: Field) -> int:
    return next(n for n in range(len(file.schema)) if file.schema.column(n).path == field.name)


def int96(file: pq.ParquetFile, field: Field) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_timestamp(file.schema_arrow.field(field.name).type)
        and file.schema.column(_leaf(file, field)).physical_type == "INT96"
    )


def _codec(file: pq.ParquetFile, path: Path, field: Field) -> str:
    """Return the codec of a column. Read a row first: for an unknown codec's number, Arrow would end the process."""
    if not file.metadata.num_row_groups:
        return "UNCOMPRESSED"
    with readable(path):
        next(file.iter_batches(1, row_groups=[0], columns=[field.name]), None)
    return str(file.metadata.row_group(0).column(_leaf(file, field)).compression)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Context manager. Turn errors of a file unreadable for Arrow into BadRecord."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None):
            raise
        raise DamagedFile(
            f"{path} cannot be read ({str(error).splitlines()[0].rstrip('. ')}); write it again"
        ) from error


def missing_value(
    name: str, field: Field, folder: Path, options: Mapping[str, Any] = NO_OPTIONS, columns: Sequence[str] = ()
) -> Any:
    """Return the value of a field without a column, typed, from a folder's name (`day=2024-01-01/`); NOWHERE for an optional
    field. Raise BadRecord if the value is missing or inexact.
    """
    value = folder_value(folder, name, field)
    if value is NOWHERE and field.name not in options.get("optional", ()):
        raise WrongColumns(
            f"{folder / name}: it has no column {field.name!r}, nor has a folder that name; it has "
            f"{', '.join(map(repr, columns))}: declare the fields as the files have them, say optional={field.name!r} if files "
            "may lack it, or write the file anew"
        )
    return value


def is_named(name: str, field: Field) -> bool:
    """Return whether a folder has the name of a field, and may contradict the field's column."""
    return any(key == field.name for key, _ in written(name))


def held_against(name: str, field: Field, folder: Path, options: Mapping[str, Any]) -> Any:
    """Return the value that a folder has for a field with a column; NOWHERE if there is none, or it is written in another way.

    A field named in the option `folders` must be written in the way of folders: BadRecord if not.
    """
    if not is_named(name, field):
        return NOWHERE
    try:
        return folder_value(folder, name, field)
    except WrongColumns:
        if field.name in options.get("folders", ()):
            raise
        return NOWHERE
