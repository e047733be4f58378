"""An attempt's partials in Parquet files: described by the writing process, checked and read by the committing process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, assert_never

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txbatch.core.aggregates.merge import Total
from txbatch.core.batch.manifest import StagedFile, StagedState
from txbatch.core.errors import Incomplete, StagingUnreadable
from txbatch.core.topology.persistent_aggregate import RECORDS_COLUMN, PersistentAggregate, ValueColumn
from txbatch.storage.late import Late
from txbatch.storage.links import links_on

if TYPE_CHECKING:
    from txbatch.storage.folder import Folder

ROWS_PER_BATCH = 64 * 1024
# A file is read whole, to compare its digest: so many rows of partials it may have, however few files there are.
ROWS_PER_FILE_MAX = 2_000_000
NO_WATERMARK: Mapping[str, int] = MappingProxyType({})


def describe(
    folder: Folder, number: int, aggregate: PersistentAggregate, watermark: Mapping[str, int] = NO_WATERMARK
) -> StagedState:
    """Describe the files of a topology's n-th state, reading file after file. `watermark` is from the plan, by stream."""
    found = folder.filesystem.find(folder.path(f"partials/{number}"), detail=True)
    paths = sorted(name for name, of in found.items() if of["type"] == "file" and _is_partials(folder, name))
    return _staged(folder, aggregate, ((path, folder.filesystem.cat_file(path)) for path in paths), watermark)


def write(
    folder: Folder,
    number: int,
    aggregate: PersistentAggregate,
    partials: pa.Table,
    watermark: Mapping[str, int] = NO_WATERMARK,
) -> StagedState:
    """Write the partials of a topology's n-th state into a single file, and describe the file."""
    path, sink = folder.path(f"partials/{number}/part-0.parquet"), pa.BufferOutputStream()
    pq.write_table(partials, sink)
    content = sink.getvalue().to_pybytes()
    folder.filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
    folder.filesystem.pipe_file(path, content)
    return _staged(folder, aggregate, [(path, content)], watermark)


def _staged(
    folder: Folder,
    aggregate: PersistentAggregate,
    contents: Iterable[tuple[str, bytes]],
    watermark: Mapping[str, int],
) -> StagedState:
    columns, late = aggregate.partial_columns, Late.of(aggregate, watermark)
    files: list[StagedFile] = []
    totals: dict[str, list[Decimal | int | None]] = {column.name: [] for column in columns}
    kept, found = list[int](), 0
    for path, written in contents:
        name = path.removeprefix(folder.path(""))
        with _readable(folder, name):
            number, content = late.found(written) if late else (0, written)
            partials = pq.ParquetFile(pa.BufferReader(content))
            values = partials.read([name for name in partials.schema_arrow.names if name in (*totals, RECORDS_COLUMN)])
        found += number
        if content is not written:
            folder.filesystem.pipe_file(path, content)
        files.append(StagedFile(name, len(content), partials.metadata.num_rows, _sha256(content)))
        if RECORDS_COLUMN in values.column_names:
            kept.append(pc.sum(values[RECORDS_COLUMN]).as_py() or 0)
        for column in columns:
            totals[column.name].append(_total(column, values[column.name]))
    together = {column.name: column.partial.total.together(totals[column.name]) for column in columns}
    rows, known = sum(file.rows for file in files), sum(kept) if len(kept) == len(files) else None
    return StagedState(tuple(files), rows, together, known, found if late else None)


def read(folder: Folder, staged: StagedState) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a state's files. Raise Incomplete if a file differs from the manifest's description (R7a)."""
    for file in staged.files:
        content = _content(folder, file)
        with _readable(folder, file.name):
            partials = pq.ParquetFile(pa.BufferReader(content)) if _sha256(content) == file.sha256 else None
            if partials is None or (partials.metadata.num_rows, len(content)) != (file.rows, file.bytes):
                raise Incomplete(f"{folder.uri}/{file.name} is not the file that the manifest describes; emit again")
            columns = [name for name in partials.schema_arrow.names if name != RECORDS_COLUMN]
            threads = file.rows > ROWS_PER_BATCH  # of a small one they take longer to begin than to read
            yield from partials.iter_batches(ROWS_PER_BATCH, columns=columns, use_threads=threads)


@contextmanager
def _readable(folder: Folder, name: str) -> Iterator[None]:
    """Context manager. Raise Incomplete with the file's name if Arrow cannot read the file: a digest proves the writer, no
    content.
    """
    try:
        yield
    except pa.ArrowException as error:
        why = str(error).splitlines()[0].rstrip(". ")
        raise Incomplete(f"{folder.uri}/{name} is no Parquet that can be read ({why}); emit again") from error


def _is_partials(folder: Folder, path: str) -> bool:
    """Return whether a file holds partials. Unfinished tasks leave files below `_temporary`; Spark's readers skip the names
    too.
    """
    inside = path.removeprefix(folder.path("")).split("/")
    return path.endswith(".parquet") and not any(part.startswith(("_", ".")) for part in inside)


def _content(folder: Folder, file: StagedFile) -> bytes:
    """Return a file's content; nothing if the length differs from the manifest. Raise TransientError if reading fails."""
    path = folder.path(file.name)
    try:
        as_long = _is_here(folder, file.name) and folder.filesystem.size(path) == file.bytes
        return bytes(folder.filesystem.cat_file(path)) if as_long else b""
    except OSError as error:
        raise StagingUnreadable(f"{folder.uri}/{file.name} cannot be read ({error}); commit again") from error


def _is_here(folder: Folder, name: str) -> bool:
    """Return whether the path is a file of the attempt's folder, reached through no link."""
    parts = name.split("/")
    steps = [folder.path("/".join(parts[: n + 1])) for n in range(len(parts))]
    files = folder.filesystem
    return bool(files.isfile(steps[-1])) and not any(links_on(files, step) for step in steps)


def _total(column: ValueColumn, values: pa.ChunkedArray) -> Decimal | int | None:
    """Return a column's total in a file; None is a sum of nothing."""
    total: Decimal | int | None
    match column.partial.total:
        case Total.SUM:
            total = pc.sum(_as_decimal(values)).as_py()
        case Total.TRUE:
            total = pc.sum(values).as_py() or 0
        case Total.PRESENT:
            total = len(values) - values.null_count
        case Total.ELEMENTS:
            total = pc.sum(pc.list_value_length(values)).as_py() or 0
        case other:
            assert_never(other)
    return total


def _as_decimal(chunk: pa.ChunkedArray) -> pa.ChunkedArray:
    scale = chunk.type.scale if pa.types.is_decimal(chunk.type) else 0
    return chunk.cast(pa.decimal256(76, scale))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
