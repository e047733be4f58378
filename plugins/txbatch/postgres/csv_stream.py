"""Arrow record batches into COPY, without a Python object per row."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from txbatch.core.errors import BadRecord

# Rows that are sorted at a time: a client's memory is bounded, and what PostgreSQL sorts is nearly sorted.
SORTED_ROWS = 2_000_000
ROWS_PER_CHUNK = 64 * 1024
# All that is not null is quoted, so that an empty string differs from null.
_OPTIONS = csv.WriteOptions(include_header=False, quoting_style="all_valid")


class CsvStream(io.RawIOBase):
    """A file that psycopg2 reads CSV from, made one record batch at a time."""

    def __init__(self, batches: Iterable[pa.RecordBatch], columns: list[str]) -> None:
        self._chunks: Iterator[bytes] = (to_csv(batch.select(columns)) for batch in batches if batch.num_rows)
        self._chunk = memoryview(b"")
        self.error: Exception | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most `size`; empty at the end. What goes wrong is kept in `error`: the driver hides it."""
        try:
            self._chunk = self._chunk or memoryview(next(self._chunks, b""))
        except Exception as error:
            self.error = error
            raise
        taken, self._chunk = self._chunk[:size], self._chunk[size:]
        return bytes(taken)


def in_key_order(batches: Iterable[pa.RecordBatch], keys: list[str]) -> Iterator[pa.RecordBatch]:
    """The same rows in runs in key order, by bytes as `COLLATE "C"`: sorted once here, PostgreSQL sorts no text twice.

    Without keys they come as they are.
    """
    run: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        run.append(batch)
        rows += batch.num_rows
        if rows >= SORTED_ROWS:
            yield from _sorted(run, keys)
            run, rows = [], 0
    yield from _sorted(run, keys)


def _sorted(run: list[pa.RecordBatch], keys: list[str]) -> Iterator[pa.RecordBatch]:
    if not keys:
        yield from run
    elif run:
        ordered = pa.Table.from_batches(run).sort_by([(key, "ascending") for key in keys])
        yield from ordered.to_batches(ROWS_PER_CHUNK)


def to_csv(batch: pa.RecordBatch) -> bytes:
    """A record batch as CSV for COPY. BadRecord when a string holds U+0000, which PostgreSQL cannot store."""
    columns = [_printable(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
    sink = io.BytesIO()
    csv.write_csv(pa.table(columns, names=[str(i) for i in range(len(columns))]), sink, _OPTIONS)
    return sink.getvalue()


def _printable(name: str, column: Any) -> Any:
    type_ = column.type
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        if pc.any(pc.match_substring(column, "\0")).as_py():
            raise BadRecord(f"column {name!r} holds U+0000, which PostgreSQL cannot store; filter it out in the job")
        return column
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return pa.array([None if value is None else "\\x" + value.hex() for value in column.to_pylist()], pa.string())
    if pa.types.is_decimal(type_) or pa.types.is_temporal(type_):
        return column.cast(pa.string())
    return column
