"""Writes streams' records from states of the ledger, in Parquet, into an attempt's folder: Spark gets no password."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from txbatch.arrow import arrow_array, arrow_type
from txbatch.core.records.fields import Field

if TYPE_CHECKING:
    from txbatch.storage.folder import Folder

ROWS_PER_GROUP = 100_000


def write(folder: Folder, number: int, fields: Sequence[Field], records: Iterable[tuple[Any, ...]]) -> None:
    """Write the records of the n-th exported stream, however many. Raise BadRecord if a value misfits the field's type."""
    folder.filesystem.makedirs(folder.path("exports"), exist_ok=True)
    with folder.filesystem.open(folder.path(f"exports/{number}.parquet"), "wb") as file:
        write_parquet(file, fields, records)


def write_parquet(file: Any, fields: Sequence[Field], records: Iterable[tuple[Any, ...]]) -> None:
    """Write records into an open file. Raise BadRecord if a value misfits the field's type."""
    schema = pa.schema([(field.name, arrow_type(field.type)) for field in fields])
    rows = iter(records)
    with pq.ParquetWriter(file, schema) as writer:
        while some := list(islice(rows, ROWS_PER_GROUP)):
            columns = zip(*some, strict=True)
            arrays = [
                arrow_array(column, field, "the state has") for column, field in zip(columns, fields, strict=True)
            ]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
