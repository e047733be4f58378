"""Rows by COPY into Arrow: its text format, parsed with every type declared, each row whole or refused by its key.

A row is a line: PostgreSQL escapes what ends a line or a value within a text. Rows come one at a time. They are gathered into
chunks, a thread ahead of the parser, and no row is cut in two.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Full, Queue
from typing import TYPE_CHECKING, Any

from txbatch.arrow import arrow_type
from txbatch.core.errors import BadRecord, SourceChanged
from txbatch.core.records.fields import Field
from txbatch.core.text import repr_of
from txbatch.spouts.tables import server
from txbatch.spouts.tables.connection import Session, reading

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_BYTES = 4_000_000
_CHUNKS_AHEAD = 2
_WAIT_SECONDS = 1.0
_SHOWN_MAX = 100
# Before the rows, as Arrow takes a mark that is there for no part of the first value.
_MARK = b"\xef\xbb\xbf"
# What PostgreSQL writes, and what it means. Meanwhile U+0000, which no text of PostgreSQL has, stands for a backslash.
_ESCAPES = {r"\\": "\0", r"\b": "\b", r"\f": "\f", r"\n": "\n", r"\r": "\r", r"\t": "\t", r"\v": "\v", "\0": "\\"}

Rows = bytes | bytearray


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a task reads: a query on a leaf of the table. `filenode` is None if the stretch is all that is read of the leaf."""

    label: str
    query: str
    leaf: str
    oid: int
    filenode: int | None


@dataclass(frozen=True)
class Copy:
    """Reads stretches of a table. `key` are the fields by which a bad row is named. The URL may hold a password.

    `place` is how far the server was from which the stretches were cut; a task may meet another one.
    """

    source: str
    url: str = field(repr=False)
    table: str
    fields: Sequence[Field]
    key: Sequence[str]
    place: tuple[str, str] | None = None

    def read(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a stretch. Raise SourceChanged if the leaf was written anew since the stretches were cut, or if the
        query meets a row that was updated since.
        """
        with reading(self.source, self.url, self.table, fixed=True) as session:
            if self.place is not None:
                server.wait_for(session, self.place)
                session.renew()  # what is read is as of a moment after the wait
            if stretch.filenode is None:
                session.lock(stretch.leaf)
            else:
                self._check_file(session, stretch)
            for rows in copied(session, stretch.query):
                yield self.parsed(rows)

    def parsed(self, rows: Rows) -> pa.RecordBatch:
        """Return rows of a COPY in Arrow. Raise BadRecord, which names table, key and field, for a value that does not fit."""
        import pyarrow as pa

        try:
            return self._batch(rows)
        except pa.ArrowInvalid as error:
            raise self._bad_row(rows, error) from error

    def _check_file(self, session: Session, stretch: Stretch) -> None:
        """Lock the leaf against being written anew, and refuse another file than the one that was cut into stretches."""
        session.lock(f"ONLY {stretch.leaf}")
        if session.row("SELECT pg_relation_filenode(%s::oid)::bigint", stretch.oid)[0] != stretch.filenode:
            raise SourceChanged(
                f"{session.of} was written anew (TRUNCATE, CLUSTER, VACUUM FULL) while it was read; emit again"
            )

    def _batch(self, rows: Rows) -> pa.RecordBatch:
        import pyarrow as pa

        arrays = _columns(rows, self._names, list(map(_parsed_as, self.fields)))
        values = [_values(array, of.type) for array, of in zip(arrays, self.fields, strict=True)]
        return pa.record_batch(values, names=self._names)

    def _bad_row(self, rows: Rows, error: Exception) -> BadRecord:
        """Find the row and the field; return an error with Arrow's words if the rows fit one by one."""
        row = _first_bad(self._batch, bytes(rows).splitlines(keepends=True))
        names = self._names
        if row is None:
            return BadRecord(f"{self.table} (source {self.source!r}): {error}; declare the field a string")
        texts = _columns(row, names, [_text_type()] * len(names))
        told = {name: _unescaped(text)[0].as_py() for name, text in zip(names, texts, strict=True)}
        where = ", ".join(f"{name}={_shown(told[name])}" for name in self.key if name in told)
        written = zip(self.fields, row.rstrip(b"\n").split(b"\t"), strict=True)
        bad = next((each for each, value in written if self._misfits(each, value)), self.fields[0])
        place = ", ".join(filter(None, (self.table, where, bad.name)))
        return BadRecord(
            f"{place}: {_shown(told[bad.name], quote=True)} is no {bad.type}; mend the row, or declare the field a string and "
            "quarantine it"
        )

    @property
    def _names(self) -> list[str]:
        return [each.name for each in self.fields]

    def _misfits(self, of: Field, written: bytes) -> bool:
        import pyarrow as pa

        alone = Copy(self.source, "", self.table, [of], ())
        try:
            alone._batch(written + b"\n")
        except pa.ArrowInvalid:
            return True
        return False


def copied(session: Session, query: str) -> Iterator[Rows]:
    """Yield the rows of a query in chunks, of whole rows each. A query that is not read to its end is cancelled."""
    chunks = _Chunks()
    thread = threading.Thread(target=chunks.fill, args=(session, query), name="copy", daemon=True)
    thread.start()
    try:
        while rows := chunks.get():
            yield rows
    finally:
        chunks.stopped = True
        if thread.is_alive():
            session.cancel()
        thread.join()


class _Chunks:
    """A file that COPY writes rows to in one thread, and another thread takes chunks of rows from. `write` takes a row."""

    def __init__(self) -> None:
        self.stopped = False
        self._ready: Queue[Rows | BaseException] = Queue(_CHUNKS_AHEAD)
        self._rows = bytearray()
        gathering = self._gathering()
        next(gathering)
        # PostgreSQL sends each row alone. A generator takes a row in half the time of a method.
        self.write: Callable[[bytes], None] = gathering.send

    def fill(self, session: Session, query: str) -> None:
        """Copy to the end; then put the last chunk, and an empty chunk or the error."""
        try:
            session.copy(query, self)
            self._put(self._rows)
            if self._rows:
                self._put(b"")
        except BaseException as error:
            with suppress(InterruptedError):
                self._put(error)

    def _gathering(self) -> Generator[None, bytes, None]:
        """Gather the rows sent into chunks, and put each full chunk."""
        while True:
            rows = self._rows = bytearray()
            while len(rows) < CHUNK_BYTES:
                rows += yield
            self._put(rows)

    def get(self) -> Rows:
        """Return the next chunk; an empty chunk at the end. Raise the error of the COPY."""
        found = self._ready.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def _put(self, what: Rows | BaseException) -> None:
        while not self.stopped:
            with suppress(Full):
                self._ready.put(what, timeout=_WAIT_SECONDS)
                return
        raise InterruptedError("nobody reads on")


def _columns(rows: Rows, names: Sequence[str], types: Sequence[Any]) -> list[pa.Array]:
    """Return the columns of rows, with texts as PostgreSQL wrote the texts. A null is `\\N`; an empty value is empty text."""
    import pyarrow as pa
    from pyarrow import csv

    data = _MARK + rows if rows.startswith(_MARK) else rows
    table = csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(column_names=list(names), use_threads=False, block_size=len(data) + 1),
        # A row of a single empty text is an empty line.
        csv.ParseOptions(delimiter="\t", quote_char=False, double_quote=False, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict(zip(names, types, strict=True)),
            null_values=[r"\N"],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
        ),
    )
    return [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns]


def _parsed_as(field: Field) -> pa.DataType:
    return _text_type() if field.type == "binary" else arrow_type(field.type)


def _text_type() -> pa.DataType:
    import pyarrow as pa

    return pa.string()


def _values(array: pa.Array, type_: str) -> pa.Array:
    """Return the values of a field's column as parsed. Raise ArrowInvalid for a value that does not fit."""
    if type_ == "string":
        return _unescaped(array)
    if type_ == "binary":
        return _unhexed(array)
    if type_.startswith("decimal"):
        array.validate(full=True)  # parsing looks at the scale alone
    return array


def _unescaped(texts: pa.Array) -> pa.Array:
    """Return texts in which backslashes of PostgreSQL stand for nothing else any more."""
    import pyarrow.compute as pc

    escaped = pc.match_substring(texts, "\\")
    if not pc.any(escaped).as_py():
        return texts
    found = texts.filter(escaped)
    for written, meant in _ESCAPES.items():
        found = pc.replace_substring(found, written, meant)
    return pc.replace_with_mask(texts, pc.fill_null(escaped, False), found)


def _unhexed(texts: pa.Array) -> pa.Array:
    """Return bytes from PostgreSQL's texts of bytes, such as `\\\\x00ff`, whose backslash is escaped."""
    import pyarrow as pa

    try:
        return pa.array([None if text is None else bytes.fromhex(text[3:]) for text in texts.to_pylist()], pa.binary())
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from error


def _first_bad(parse: Callable[[Rows], object], rows: Sequence[bytes]) -> bytes | None:
    """Return the first row that is refused, by halving; None if all are parsed one by one."""
    import pyarrow as pa

    while len(rows) > 1:
        half = len(rows) // 2
        try:
            parse(b"".join(rows[:half]))
        except pa.ArrowInvalid:
            rows = rows[:half]
        else:
            rows = rows[half:]
    try:
        parse(rows[0])
    except pa.ArrowInvalid:
        return rows[0]
    return None


def _shown(text: str | None, *, quote: bool = False) -> str:
    if text is None:
        return "null"
    cut = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
    return repr_of(cut) if quote else cut
