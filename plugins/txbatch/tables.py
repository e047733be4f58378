"""Tables for people: as wide as they are where no terminal shows them, else no wider than that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len, set_cell_size

_GAP = "  "
_CUT_TO = 16
_CUT = "…"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, what stands above it, and its cells; numbers stand to the right."""

    name: str
    title: str
    cells: Sequence[str]
    numbers: bool = False

    @property
    def width(self) -> int:
        """Of the widest cell."""
        return max(map(cell_len, (self.title, *self.cells)))

    def cut(self, width: int) -> Column:
        """With cells of at most this width."""
        return replace(self, cells=[_cut(cell, width) for cell in self.cells])

    def lines(self) -> list[str]:
        """The title and the cells, all of one width."""
        width = self.width
        blanks = {cell: " " * (width - cell_len(cell)) for cell in (self.title, *self.cells)}
        return [blanks[cell] + cell if self.numbers else cell + blanks[cell] for cell in (self.title, *self.cells)]


def table(
    columns: Callable[[bool], list[Column]], width: int | None, *, drop: Sequence[str] = (), cut: Collection[str] = ()
) -> list[str] | None:
    """The lines of a table that is no wider than `width` (None: of any width); None when there is none.

    `columns` makes them, at length or in short. Where that is too wide, the texts of those named `cut` are cut, and columns
    are left out, first what `drop` names first.
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
    """What is too wide for a table: a line per cell, and an empty one between two rows."""
    titles = Column("", "", [column.title for column in columns]).lines()[1:]
    found: list[str] = []
    for cells in zip(*(column.cells for column in columns), strict=True):
        found += [""] * bool(found)
        found += [f"{title}{_GAP}{cell}".rstrip() for title, cell in zip(titles, cells, strict=True)]
    return found


def _width(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + len(_GAP) * (len(columns) - 1)


def _fitted(columns: Sequence[Column], cut: Collection[str], width: int) -> list[Column]:
    """The widest of the texts that may be cut is cut first, until all fit."""
    fitted = list(columns)
    while (excess := _width(fitted) - width) > 0:
        widest = max((n for n, column in enumerate(fitted) if column.name in cut), key=lambda n: fitted[n].width)
        fitted[widest] = fitted[widest].cut(max(_CUT_TO, fitted[widest].width - excess))
    return fitted


def _lines(columns: Sequence[Column]) -> list[str]:
    return ["".join(f"{cell}{_GAP}" for cell in row).rstrip() for row in zip(*map(Column.lines, columns), strict=True)]


def _cut(cell: str, width: int) -> str:
    return cell if cell_len(cell) <= width else set_cell_size(cell, width - 1) + _CUT
