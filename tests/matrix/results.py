"""What came of each cell, stored as JSON, and the table of docs/run/versions.md, which is written from it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from matrix.cells import ROWS, Cell

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "run" / "versions.md"
BEGIN, END = "<!-- matrix: written by `make matrix` -->\n", "<!-- end of the matrix -->\n"
GREEN, FAILED, NOT_RUN = "green", "failed", "not run"
NOT_TRIED = "not tried yet"
COLUMNS = {"airflow": "Airflow", "postgres": "PostgreSQL", "python": "Python", "pyspark": "pyspark"}


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a cell: its steps with their seconds, and the exact versions of a cell that ran; else the reason."""

    cell: Cell
    outcome: str = NOT_RUN
    why: str = NOT_TRIED
    day: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    steps: dict[str, float] = field(default_factory=dict)


def stored() -> list[Result]:
    """The last result of each cell, in the order of the cells."""
    told = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []
    found = [Result(**{**each, "cell": Cell(**each["cell"])}) for each in told]
    last = {result.cell: result for result in found}
    return [last.get(cell, Result(cell)) for cell in ROWS]


def store(*news: Result) -> None:
    """Keep results in the place of earlier ones, and write the table."""
    new = {result.cell: result for result in news}
    kept = [new.get(result.cell, result) for result in stored()]
    text = json.dumps([asdict(result) for result in kept], indent=2, ensure_ascii=False)
    FILE.write_text(f"{text}\n", encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), kept), encoding="utf-8")


def with_table(page: str, results: list[Result]) -> str:
    """The page, with the table of these results between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(results)}\n{END}{after}"


def table(results: list[Result]) -> str:
    """The table: exact versions of what ran. What did not run names the versions that were asked for, and the reason."""
    heads = (*COLUMNS.values(), "smoke tier")
    lines = [heads, ("---",) * len(heads), *map(_row, results)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _row(result: Result) -> tuple[str, ...]:
    asked: dict[str, Any] = asdict(result.cell)
    return (*(result.versions.get(axis, asked[axis]) for axis in COLUMNS), _outcome(result))


def _outcome(result: Result) -> str:
    if result.outcome == NOT_RUN:
        return f"not run: {_cell_of_table(result.why)}"
    seconds = f"{', '.join(result.steps)} in {sum(result.steps.values()):.0f} s, {result.day}"
    if result.outcome == GREEN:
        return f"green: {seconds}"
    return f"failed at {_cell_of_table(result.why)}; before: {seconds}"


def _cell_of_table(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")[:200]
