"""Reads one file as Spark's tasks do, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from txbatch.arrow import arrow_type
from txbatch.core.records.fields import Field
from txbatch.formats import parquet_files
from txbatch.formats.parquet_schema import NO_OPTIONS, check
from txbatch.formats.scan import Format, Range


def read_text(path: Path, format_: Format) -> pa.Table:
    """The records of a CSV or of JSON lines."""
    batches = format_.read(Range(path, 0, None, path.stat().st_size))
    return pa.Table.from_batches(batches, _schema(format_.fields))


def read_parquet(
    path: Path,
    fields: Sequence[Field],
    folder: Path | None = None,
    options: Mapping[str, Any] = NO_OPTIONS,
    time: str = "",
) -> pa.Table:
    """The records of a Parquet file below a folder, else below its own; what does not fit is refused."""
    folder = folder or path.parent
    name = str(path.relative_to(folder))
    check(folder, name, fields, options)
    return pa.Table.from_batches(list(parquet_files.read_batches(folder, name, fields, options, time)), _schema(fields))


def _schema(fields: Sequence[Field]) -> pa.Schema:
    return pa.schema([(field.name, arrow_type(field.type)) for field in fields])
