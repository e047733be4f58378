"""Copy Arrow record batches into PostgreSQL by COPY, without a Python object per row."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg2
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from sqlalchemy import Connection

from txbatch.core.errors import BadText, OutOfRange

# As many are sorted at a time: a client's memory is bounded, and what PostgreSQL sorts is nearly sorted.
SORTED_ROWS = 2_000_000
SORTED_BYTES = 128 << 20
# Of these, as many are sorted before the first goes to PostgreSQL.
SORTED_ROWS_FIRST = 128 * 1024
ROWS_PER_CHUNK = 64 * 1024
CHUNKS_AHEAD = 4
# From this chunk on a thread makes them.
FIRST_BY_THREAD = 3
_SAMPLE_ROWS = 1_000
# All that is not null is quoted, so that an empty string differs from null.
_OPTIONS = csv.WriteOptions(include_header=False, quoting_style="all_valid")


class CsvStream(io.RawIOBase):
    """A file of CSV for psycopg2, made one record batch at a time.

    From the third record batch on, a thread reads, sorts and writes chunks a few chunks ahead of PostgreSQL: most batches
    have one record batch. `bytes_read` is the number of bytes read.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], columns: list[str]) -> None:
        self._chunks: Iterator[bytes] = (to_csv(batch.select(columns)) for batch in batches if batch.num_rows)
        self._chunk, self._taken = memoryview(b""), 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="txbatch csv")
        self._ahead = deque[Future[bytes]]()
        self.error: Exception | None = None
        self.bytes_read = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size`; empty at the end. Keep exceptions in `error`: the driver hides them."""
        try:
            self._chunk = self._chunk or self._take()
        except Exception as error:
            self.error = error
            raise
        taken, self._chunk = self._chunk[:size], self._chunk[size:]
        self.bytes_read += len(taken)
        return bytes(taken)

    def close(self) -> None:
        """End the thread after the current chunk."""
        self._thread.shutdown(cancel_futures=True)
        super().close()

    def _take(self) -> memoryview:
        self._taken += 1
        if self._taken < FIRST_BY_THREAD:
            return memoryview(next(self._chunks, b""))
        while len(self._ahead) <= CHUNKS_AHEAD:
            self._ahead.append(self._thread.submit(next, self._chunks, b""))
        return memoryview(self._ahead.popleft().result())


def copy_in(
    connection: Connection,
    statement: str,
    batches: Iterable[pa.RecordBatch],
    keys: list[str],
    columns: list[str],
) -> int:
    """COPY the columns, in runs in key order (see `in_key_order`); return the number of bytes sent."""
    with closing(CsvStream(in_key_order(batches, keys), columns)) as stream:
        try:
            connection.connection.cursor().copy_expert(statement, stream, size=1 << 20)
        except psycopg2.Error as error:
            raise stream.error or error from error
    return stream.bytes_read


def in_key_order(batches: Iterable[pa.RecordBatch], keys: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in runs in key order, by bytes as `COLLATE "C"`: if sorted here, text is not sorted again by PostgreSQL.

    Without keys the rows keep their order.
    """
    run: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        run.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= SORTED_ROWS or size >= SORTED_BYTES:
            yield from _run(run, keys)
            run, rows, size = [], 0, 0
    yield from _run(run, keys)


def _run(run: list[pa.RecordBatch], keys: list[str]) -> Iterator[pa.RecordBatch]:
    if not keys:
        yield from run
    elif run:
        yield from _sorted(pa.Table.from_batches(run).combine_chunks(), keys)


def _sorted(table: pa.Table, keys: list[str]) -> Iterator[pa.RecordBatch]:
    """Quicksort while the parts are large: the first part is ready long before the last part."""
    first = table[keys[0]]
    below = None
    if len(first) > SORTED_ROWS_FIRST:
        below = pc.fill_null(pc.less(first, _middle(first)), False)
    if below is None or not pc.any(below).as_py():
        ordered = table.sort_by([(key, "ascending") for key in keys])
        yield from ordered.combine_chunks().to_batches(ROWS_PER_CHUNK)
        return
    yield from _sorted(table.filter(below), keys)
    yield from _sorted(table.filter(pc.invert(below)), keys)


def _middle(column: pa.ChunkedArray) -> pa.Scalar:
    """Return about the median; null if most values are null."""
    sample = column.take(pa.array(range(0, len(column), len(column) // _SAMPLE_ROWS)))
    return sample.take(pc.sort_indices(sample))[len(sample) // 2]


def to_csv(batch: pa.RecordBatch) -> bytes:
    """Return a record batch as CSV for COPY. Raise BadRecord if a string holds U+0000: PostgreSQL cannot store U+0000."""
    columns = [_printable(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
    sink = io.BytesIO()
    csv.write_csv(pa.table(columns, names=[str(i) for i in range(len(columns))]), sink, _OPTIONS)
    return sink.getvalue()


def _printable(name: str, column: Any) -> Any:
    type_ = column.type
    if pa.types.is_list(type_):
        return _array_literals(name, column)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        if pc.any(pc.match_substring(column, "\0")).as_py():
            raise BadText(f"column {name!r} holds U+0000, which PostgreSQL cannot store; filter it out in the job")
        return column
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return pa.array([None if value is None else "\\x" + value.hex() for value in column.to_pylist()], pa.string())
    if pa.types.is_decimal(type_) or pa.types.is_temporal(type_):
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise OutOfRange(f"column {name!r} cannot be written: {error}; filter it out in the job") from error
    return column


def _array_literals(name: str, column: Any) -> Any:
    """Return arrays as PostgreSQL reads them, `{"a","b"}`; no element is null."""
    texts = _printable(name, column.flatten()).cast(pa.string())
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    quoted = pc.binary_join_element_wise('"', escaped, '"', "")
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(column), 0))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, quoted), ",")
    return pc.if_else(
        column.is_valid(), pc.binary_join_element_wise("{", joined, "}", ""), pa.scalar(None, pa.string())
    )
