"""Tables for people: no wider than the terminal, and at full width without a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from rich.cells import cell_len, set_cell_size

from txbatch.core.text import LENGTH_MAX, one_line

# What stands above a column where a terminal is narrow.
SHORT_TITLES = {
    "committed_txid": "txid",
    "committed_at": "committed",
    "oldest_in_flight": "oldest",
    "interval_start": "from",
    "interval_end": "to",
    "started_at": "began",
}
_GAP = "  "
_CUT_TO = 16
_CUT = "…"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, with a title and cells. Numbers are aligned to the right."""

    name: str
    title: str
    cells: Sequence[str]
    numbers: bool = False

    @property
    def width(self) -> int:
        """The width of the widest cell."""
        return max(map(cell_len, (self.title, *self.cells)))

    def cut(self, width: int) -> Column:
        """Return the column with cells of at most `width`."""
        return replace(self, cells=[_cut(cell, width) for cell in self.cells])

    def lines(self) -> list[str]:
        """Return the title and the cells, padded to equal width."""
        width = self.width
        blanks = {cell: " " * (width - cell_len(cell)) for cell in (self.title, *self.cells)}
        return [blanks[cell] + cell if self.numbers else cell + blanks[cell] for cell in (self.title, *self.cells)]


def lines_of(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str] = (),
    *,
    drop: Sequence[str] = (),
    cut: Collection[str] = (),
    width: int | None = None,
    head: Callable[[str], str] = str,
) -> list[str]:
    """Return the lines of a table of rows: the named columns, or all columns, without empty columns.

    `head` highlights the first line, the titles. If no table fits into `width`, each row becomes a block of lines.
    """
    columns = columns or list(dict.fromkeys(name for row in rows for name in row))
    told = [name for name in columns if any(row.get(name) not in (None, []) for row in rows)]

    def made(short: bool) -> list[Column]:
        return [_column(name, [row.get(name) for row in rows], short) for name in told]

    lines = table(made, width, drop=drop, cut=cut)
    return records(made(False)) if lines is None else [head(lines[0]), *lines[1:]]


def _column(name: str, values: list[Any], short: bool) -> Column:
    numbers = all(value is None or type(value) is int for value in values)
    title = SHORT_TITLES.get(name, name) if short else name
    if short and name == "run":  # which topology's is known
        values = [(value and value.removeprefix("airflow:").partition(":")[2]) or value for value in values]
    return Column(name, plain(title), [(_short if short else plain)(value) for value in values], numbers)


def plain(value: Any) -> str:
    """Return a value in a line of bounded length, without characters that can affect a terminal."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ", "seconds")  # strftime writes the year 1 as 1
    if isinstance(value, timedelta):
        return str(timedelta(seconds=round(value.total_seconds())))
    if isinstance(value, Mapping):
        return ", ".join(f"{plain(name)} {plain(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(f"({plain(each)})" if isinstance(each, Mapping) else plain(each) for each in value)
    text = str(value)
    return one_line(text) if text.isprintable() or len(text) > LENGTH_MAX else json.dumps(text)


def _short(value: Any) -> str:
    """Return a moment of today without the day, a moment of another day without the seconds."""
    if isinstance(value, datetime):
        today = value.date() == datetime.now(value.tzinfo).date()
        return f"{value:%H:%M:%S}" if today else value.replace(tzinfo=None).isoformat(" ", "minutes")
    return plain(value)


def table(
    columns: Callable[[bool], list[Column]], width: int | None, *, drop: Sequence[str] = (), cut: Collection[str] = ()
) -> list[str] | None:
    """Return the lines of a table no wider than `width` (None: any width); None if no table fits.

    `columns` makes the columns, at length or in short. If the table is too wide, the texts of columns in `cut` are cut, and
    columns are left out in the order of `drop`.
    """
    full = columns(False)
    if width is None or _width(full) <= width:
        return _lines(full)
    kept = columns(True)
    for name in ("", *drop):
        kept = [column for column in kept if column.name != name]
        if _width([column.cut(_CUT_TO) if column.name in cut else column for column in kept]) <= width:
            return _lines(_fitted(kept, cut, width))
    return None


def records(columns: Sequence[Column]) -> list[str]:
    """Return rows too wide for a table: a line per cell, and an empty line between two rows."""
    titles = Column("", "", [column.title for column in columns]).lines()[1:]
    found: list[str] = []
    for cells in zip(*(column.cells for column in columns), strict=True):
        found += [""] * bool(found)
        found += [f"{title}{_GAP}{cell}".rstrip() for title, cell in zip(titles, cells, strict=True)]
    return found


def _width(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + len(_GAP) * (len(columns) - 1)


def _fitted(columns: Sequence[Column], cut: Collection[str], width: int) -> list[Column]:
    """Cut the widest text of the columns in `cut` first, until all columns fit."""
    fitted = list(columns)
    while (excess := _width(fitted) - width) > 0:
        widest = max((n for n, column in enumerate(fitted) if column.name in cut), key=lambda n: fitted[n].width)
        fitted[widest] = fitted[widest].cut(max(_CUT_TO, fitted[widest].width - excess))
    return fitted


def _lines(columns: Sequence[Column]) -> list[str]:
    return ["".join(f"{cell}{_GAP}" for cell in row).rstrip() for row in zip(*map(Column.lines, columns), strict=True)]


def _cut(cell: str, width: int) -> str:
    return cell if cell_len(cell) <= width else set_cell_size(cell, width - 1) + _CUT
