"""CSV by RFC 4180, from bytes to typed columns: refuses text of any other form, with the line."""

from __future__ import annotations

import csv
import io
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from txbatch.arrow import arrow_type
from txbatch.core.errors import RUN_AGAIN, BadRecord, BadText, WrongColumns
from txbatch.core.records.fields import Field
from txbatch.formats import cells
from txbatch.formats.misfit import BadValue, Misfit, describe_value

# The field of times, and which of a block's times are wanted.
Keep = tuple[str, Callable[[pa.Array], pa.Array]]
MARK = b"\xef\xbb\xbf"
_PIECE_BYTES = 1_000_000
_STRAY = (
    "a quote stands within a cell; quote the cell and double it, or say quote='' if quotes are characters like others"
)
_QUOTES = (_STRAY, _STRAY, "it ends within quotes; say multiline=True if cells may hold line ends")


def decode(
    data: bytes,
    fields: Sequence[Field],
    options: Mapping[str, Any],
    keep: Keep | None = None,
    given: Mapping[str, Any] = MappingProxyType({}),
    columns: Sequence[str] | None = None,
) -> pa.RecordBatch:
    """Return the records of whole lines of UTF-8. Cells stand in the order of `columns`, or of the fields if `columns` is
    None. A column that is no field is not read; a field without a column is what `given` has, or null.

    `keep` chooses records by time; the fields of unwanted records are not checked, except for the time. Misfit names the
    first faulty line.
    """
    names = list(columns or (field.name for field in fields))
    _check_line_ends(data, options)
    found = _Cells.of(data, names, [field.name for field in fields], options, given)
    types = {field.name: field.type for field in fields}
    done: dict[str, pa.Array] = {}
    rows = None
    if keep is not None:
        time, wanted = keep
        values = found.values(Field(time, types[time]))
        rows = pc.indices_nonzero(found.checked(time, lambda: wanted(values)))
        rows = None if len(rows) == len(values) else rows
        done[time] = values if rows is None else values.take(rows)
    for field in fields:
        if field.name not in done:
            done[field.name] = found.values(field, rows)
    return pa.record_batch([done[field.name] for field in fields], names=[field.name for field in fields])


def header(data: bytes, fields: Sequence[Field], options: Mapping[str, Any]) -> tuple[list[str], int]:
    """Return the columns named in the first record of `data`, and the record's bytes. Raise Misfit if the columns misfit the
    fields.
    """
    end = _first_record(data, options)
    line = data[:end]
    _check_line_ends(line, options)
    if not line.strip(b"\r\n"):
        raise Misfit(
            0, "it is blank where the header should be; say header=False, or take it out of the file", kind=WrongColumns
        )
    found = next(_records(line, options))[1]
    if fault := _unlike_fields(found, [field.name for field in fields], options):
        raise Misfit(0, fault, kind=WrongColumns)
    return found, end


def _unlike_fields(found: Sequence[str], expected: Sequence[str], options: Mapping[str, Any]) -> str | None:
    """Return the fault of a header; None if the columns are the fields, as far as the options demand."""
    known, refuses = set(expected), options["extra"] == "refuse"
    extra = [name for name in found if name not in known]
    counts = Counter(name for name in found if name in known or refuses)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        return f"the header names {listed(twice)} twice; mend the file, then {RUN_AGAIN}"
    missing = {name.lower(): name for name in expected if name not in counts}
    alike = [name for name in extra if name.strip().lower() in missing]
    misspelt = {name.strip().lower() for name in alike}
    lacks = [name for each, name in missing.items() if each in misspelt or name not in options["optional"]]
    wrong = extra if refuses else alike
    if not (lacks or wrong):
        return None
    return f"the header {' and '.join(_differences(lacks, wrong))}; {_ways(lacks, wrong, alike, refuses=refuses)}"


def _ways(lacks: Sequence[str], extra: Sequence[str], alike: Sequence[str], *, refuses: bool) -> str:
    """Return the ways out for a header that lacks columns, or has columns that are no fields."""
    if alike:
        return "names mind case and blanks: write them alike"
    ways = ["`fields` names every column"] if refuses else ["declare the fields as the files have them"]
    if lacks:
        ways.append(f"say optional={describe_value(lacks[0])} if files may lack it")
    if extra:
        ways.append("say extra='ignore' to pass over columns that are no fields")
    return ", or ".join(ways)


def whole_records(data: bytes, options: Mapping[str, Any], *, within: bool = False) -> int:
    """Return the number of bytes in whole records, out of whole lines; `within`: the data begins within quotes."""
    quote = options["quote"].encode()
    if not (options["multiline"] and quote):
        return len(data)
    return max(_record_ends(data, quote, within=within), default=0)


def _first_record(data: bytes, options: Mapping[str, Any]) -> int:
    quote = options["quote"].encode()
    if options["multiline"] and quote:
        return next(_record_ends(data, quote), len(data))
    return data.find(b"\n") + 1 or len(data)


def _record_ends(data: bytes, quote: bytes, *, within: bool = False) -> Iterator[int]:
    """Yield, for each piece of data with line ends outside quotes, the place after the first and after the last line end."""
    for start in range(0, len(data), _PIECE_BYTES):
        piece = data[start : start + _PIECE_BYTES]
        newlines, quotes = _places(piece, b"\n"), _places(piece, quote)
        outside = newlines[(np.searchsorted(quotes, newlines) + within) % 2 == 0]
        if len(outside):
            yield from (start + int(outside[end]) + 1 for end in (0, -1))
        within ^= len(quotes) % 2 == 1


def _places(data: bytes, of: bytes) -> Any:
    """Return the places of a byte: found piece by piece, in the narrowest numbers, because a record may consist of the byte."""
    pieces = [
        (start + np.flatnonzero(np.frombuffer(data, np.uint8, count, start) == ord(of))).astype(np.uint32)
        for start in range(0, len(data), _PIECE_BYTES)
        for count in [min(_PIECE_BYTES, len(data) - start)]
    ]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.uint32)


def _differences(lacks: Collection[str], extra: Collection[str]) -> Iterator[str]:
    if lacks:
        yield f"lacks {listed(lacks)}"
    if extra:
        yield f"has {listed(extra)}, which is no field"


def listed(names: Collection[str]) -> str:
    """Return the first of some names, and how many more there are."""
    return ", ".join(map(describe_value, list(names)[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _check_line_ends(data: bytes, options: Mapping[str, Any]) -> None:
    """Check the data: lines end with \\n or \\r\\n, quotes follow RFC 4180, and U+0000 stands only if permitted by options."""
    quote = options["quote"].encode()
    quotes = _places(data, quote) if quote and quote in data else None
    if quotes is not None:
        _check_quotes(data, quotes, options)
    if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
        _check_returns(data, quotes if options["multiline"] else None)
    if (mark := 0 if data.startswith(MARK) else data.find(b"\n" + MARK) + 1) or data.startswith(MARK):
        raise _at(data, mark, "a mark of byte order begins it; files were joined, take it out")
    if not options["nul"] and (place := data.find(b"\0")) >= 0:
        raise _at(
            data,
            place,
            "U+0000 stands in it, as UTF-16 has it; write the file as UTF-8, or say nul=True if texts may hold it",
            BadText,
        )


def _check_returns(data: bytes, quotes: Any) -> None:
    """Refuse a carriage return without a newline behind, unless the carriage return stands within the quotes."""
    returns = _places(data, b"\r")
    alone = returns[np.frombuffer(data + b" ", np.uint8)[returns + 1] != 10]
    if quotes is not None:
        alone = alone[np.searchsorted(quotes, alone) % 2 == 0]
    if len(alone):
        raise _at(data, int(alone[0]), "a carriage return stands alone; end lines with \\n or \\r\\n")


def _check_quotes(data: bytes, quotes: Any, options: Mapping[str, Any]) -> None:
    """Check quotes: each odd quote opens a cell, each even quote closes the cell; two touching within a cell are one."""
    text = np.frombuffer(b"\n" + data + b"\n", np.uint8)
    borders = np.zeros(256, bool)
    borders[[ord(options["quote"]), ord(options["sep"]), 10]] = True
    stray = [quotes[::2][~borders[text[quotes[::2]]]]]
    borders[13] = True
    stray.append(quotes[1::2][~borders[text[quotes[1::2] + 2]]])
    newlines = quotes[:0] if options["multiline"] else _places(data, b"\n")
    broken = newlines[np.searchsorted(quotes, newlines) % 2 == 1]
    found = [(int(places[0]), reason) for places, reason in zip([*stray, broken], _QUOTES, strict=True) if len(places)]
    if found:
        raise _at(data, *min(found))
    if len(quotes) % 2:
        raise _at(data, int(quotes[-1]), "a quote is not closed")


def _at(data: bytes, place: int, reason: str, kind: type[BadRecord] = BadRecord) -> Misfit:
    return Misfit(data.count(b"\n", 0, place), reason, kind=kind)


@dataclass(frozen=True, slots=True)
class _Cells:
    """Whole lines of `width` cells each, and the cells of wanted columns as text, in one chunk a column."""

    data: bytes
    width: int
    table: pa.Table
    options: Mapping[str, Any]
    given: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        data: bytes,
        names: Sequence[str],
        wanted: Collection[str],
        options: Mapping[str, Any],
        given: Mapping[str, Any],
    ) -> _Cells:
        """Return the cells of the wanted among all columns. The bytes of the others must be UTF-8, too."""
        unnamed = [str(number) for number in range(len(names))]
        read = [number for number in unnamed if names[int(number)] in wanted]
        null_values = options["null_value"]
        settings = (
            arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=unnamed),
            arrow_csv.ParseOptions(
                delimiter=options["sep"],
                quote_char=options["quote"] or False,
                newlines_in_values=options["multiline"],
                ignore_empty_lines=len(names) > 1,
            ),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(read, pa.string()),
                include_columns=read,
                null_values=list(null_values),
                strings_can_be_null=bool(null_values),
                quoted_strings_can_be_null=False,
            ),
        )
        if len(read) < len(names):
            _check_utf8(data, options)
        try:
            table = arrow_csv.read_csv(pa.BufferReader(data), *settings).combine_chunks()
        except pa.ArrowInvalid as error:
            raise _why(data, names, options) or Misfit(0, f"cannot be read: {error}") from None
        table = table.rename_columns([names[int(each)] for each in table.column_names])
        return cls(data, len(names), table, options, given)

    def values(self, field: Field, rows: pa.Array | None = None) -> pa.Array:
        """Return a field's values of the rows, or of all rows; without a column what is given, or null."""
        if field.name not in self.table.column_names:
            value = pa.scalar(self.given.get(field.name), arrow_type(field.type))
            return pa.repeat(value, len(self.table) if rows is None else len(rows))
        column = self.table.column(field.name)
        strings = column.chunk(0) if column.num_chunks else pa.array([], pa.string())
        if rows is not None:
            strings = strings.take(rows)
        return self.checked(field.name, lambda: self._cast(strings, field), rows)

    def _cast(self, strings: pa.Array, field: Field) -> pa.Array:
        values = cells.cast(strings, field.type, self.options)
        return cells.agreeing(values, self.given[field.name]) if field.name in self.given else values

    def checked(self, name: str, make: Callable[[], pa.Array], rows: pa.Array | None = None) -> pa.Array:
        """Return a column's values. An error names the misfit value and the value's line."""
        try:
            return make()
        except BadValue as bad:
            row = bad.index if rows is None else rows[bad.index].as_py()
            raise Misfit(self._line(row), bad.reason, name, self.table.column(name)[row].as_py()) from None

    def _line(self, row: int) -> int:
        """Return the line where a record begins."""
        records = enumerate(_records(self.data, self.options, blank=self.width == 1))
        return next(line for number, (line, _) in records if number == row)


def _check_utf8(data: bytes, options: Mapping[str, Any]) -> None:
    """Refuse bytes that are no UTF-8: Misfit names the cell."""
    try:
        if not data.isascii():
            data.decode()
    except UnicodeDecodeError:
        deque(_records(data, options), maxlen=0)


def _why(data: bytes, names: Sequence[str], options: Mapping[str, Any]) -> Misfit | None:
    """Return the fault refused by Arrow's parser, by reading record after record."""
    for line, record in _records(data, options, blank=len(names) == 1):
        if len(record) != len(names):
            return Misfit(
                line,
                f"{_count(len(record), 'cell')} instead of {len(names)}: {describe_value(options['sep'].join(record))}",
            )
    return None


def _records(data: bytes, options: Mapping[str, Any], *, blank: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield the line where a record begins, and the record's cells. Raise Misfit for bytes that are no UTF-8.

    A blank line is a record of a single empty cell, or no record.
    """
    csv.field_size_limit(1 << 31)
    text = io.StringIO(data.decode("utf-8", "surrogateescape"), newline="")
    quotes: dict[str, Any] = {"quotechar": options["quote"]} if options["quote"] else {"quoting": csv.QUOTE_NONE}
    reader = csv.reader(text, delimiter=options["sep"], **quotes)
    line = 0
    for record in reader:
        for number, cell in enumerate(record):
            if not _is_unicode(cell):
                raw = cell.encode("utf-8", "surrogateescape")
                raise Misfit(
                    line,
                    f"cell {number + 1}: {describe_value(raw)} is not UTF-8; say encoding=, or write the file as UTF-8",
                    kind=BadText,
                )
        if record or blank:
            yield line, record or [""]
        line = reader.line_num


def _is_unicode(cell: str) -> bool:
    try:
        cell.encode()
    except UnicodeEncodeError:
        return False
    return True


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
