"""The cells of the matrix, as data: each pair of versions is in one of them at least."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from itertools import combinations, product

# A version of Airflow is exact: the first that shows the pages, the newest release, the newest preview. Of PostgreSQL it is the
# major one, of pyspark the minor one. The newest Python is the newest that is found.
NEWEST = "newest"
AXES = {
    "airflow": ("3.1.8", "3.3.2", "3.4.0b2"),
    "postgres": ("15", "18"),
    "python": ("3.11", NEWEST),
    "pyspark": ("4.2", "4.3"),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A combination of versions.

    >>> str(Cell("3.1.8", "15", "3.11", "4.2"))
    'airflow 3.1.8, postgres 15, python 3.11, pyspark 4.2'
    """

    airflow: str
    postgres: str
    python: str
    pyspark: str

    def __str__(self) -> str:
        return ", ".join(f"{axis} {version}" for axis, version in asdict(self).items())

    @property
    def folder(self) -> str:
        """The name of its folder, short: the path of a socket has 107 bytes at most."""
        return "-".join(asdict(self).values())


# The most valuable first: a run that is cut off has these.
CELLS = (
    Cell("3.4.0b2", "18", "3.11", "4.3"),
    Cell("3.1.8", "15", "3.11", "4.2"),
    Cell("3.3.2", "15", NEWEST, "4.3"),
    Cell("3.4.0b2", "15", NEWEST, "4.2"),
    Cell("3.3.2", "18", "3.11", "4.2"),
    Cell("3.1.8", "18", NEWEST, "4.3"),
)


# An Airflow is exchanged for the newest, below a ledger with runs in flight. Its folder is one of its own.
MOVED = Cell("3.1.8, then 3.4.0b2", "18", "3.11", "4.2, then 4.3")
MOVE = Cell("3.1.8", "18", "3.11", "4.2"), CELLS[0]
ROWS = (*CELLS, MOVED)


def missing_pairs(cells: tuple[Cell, ...] = CELLS) -> set[frozenset[tuple[str, str]]]:
    """The pairs of versions of two axes that no cell has."""
    pairs = {
        frozenset(((one, first), (other, second)))
        for one, other in combinations(AXES, 2)
        for first, second in product(AXES[one], AXES[other])
    }
    return pairs - {frozenset(pair) for cell in cells for pair in combinations(asdict(cell).items(), 2)}


def chosen(words: list[str]) -> tuple[Cell, ...]:
    """The cells that have each of these versions; all of them without one. Raise SystemExit if there is none.

    `moved` is the name of the one in which an Airflow is exchanged.
    """
    if words in (["moved"], []):
        return ROWS if not words else (MOVED,)
    found = tuple(cell for cell in CELLS if {*words} <= {*asdict(cell).values()})
    if not found:
        raise SystemExit(
            f"no cell has {' and '.join(words)}: {', '.join(field.name for field in fields(Cell))} are in cells.py"
        )
    return found
