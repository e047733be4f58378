"""The golden files: what each of tests/files/ is read as, or why it is refused; and the tables in docs/files.md.

    .venv/bin/python tests/file_cases.py    # writes the tables of cases and of options anew

`tests/files/<format>/cases.json` lists the files of its folder. A case has

- `file`, and in a data engineer's words `what` is in it
- `rows`, in the file's order, or the `code` of the error and the values that its text `names` (see refusals.py)
- `fields`, where they are not FIELDS; the first is the time by which a spout reads
- `options` of IntervalSpout, where some are given; `way_out`, words for the table

Values of rows: numbers and booleans as JSON has them, decimals as texts with their scale, timestamps as
`2026-01-01T00:00:00Z`, dates as `2026-01-01`, bytes in hex.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from txbatch.formats.options import CSV, JSON, PARQUET
from txbatch.formats.options import FORMATS as OPTIONS

FILES = Path(__file__).parent / "files"
DOCUMENT = Path(__file__).parents[1] / "docs" / "files.md"
FIELDS = "at timestamp, name string, amount decimal(10,2)"
FORMATS = ("csv", "json", "parquet", "text")


@dataclass(frozen=True)
class Case:
    """A golden file."""

    format: str
    file: str
    what: str
    rows: Sequence[Sequence[Any]] | None = None
    code: str | None = None
    names: Sequence[str] = ()
    fields: str = FIELDS
    options: Mapping[str, Any] = field(default_factory=dict)
    way_out: str = ""

    def __post_init__(self) -> None:
        if (self.rows is None) == (self.code is None):
            raise ValueError(f"{self}: a case has either rows or a code")

    @property
    def path(self) -> Path:
        return FILES / self.format / self.file

    def __str__(self) -> str:
        said = ",".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.format}/{self.file}" + (f" {said}" if said else "")


def cases(*formats: str) -> list[Case]:
    """All cases of these formats, in the order of their lists."""
    return [Case(format_, **case) for format_ in formats or FORMATS for case in _listed(format_)]


def _listed(format_: str) -> list[dict[str, Any]]:
    path = FILES / format_ / "cases.json"
    listed: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return listed


def told(value: Any) -> Any:
    """A value as cases write it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    return value.hex() if isinstance(value, bytes | bytearray) else value


def cases_table() -> str:
    """The cases as docs/files.md shows them."""
    return "\n".join(line for format_ in FORMATS if cases(format_) for line in _section(format_))


def _section(format_: str) -> Iterator[str]:
    listed = cases(format_)
    yield from ("", f"### {format_}: {len(listed)} cases", "")
    yield from ("| file | what is in it | options | becomes |", "|---|---|---|---|")
    for case in listed:
        said = ", ".join(f"`{name}={value!r}`" for name, value in case.options.items())
        yield f"| `{case.file}` | {_cell(case.what)} | {_cell(said)} | {_cell(_outcome(case))} |"


def _outcome(case: Case) -> str:
    if case.rows is None:
        return "refused" + (f": {case.way_out}" if case.way_out else "")
    count = f"{len(case.rows)} record" + ("s" if len(case.rows) != 1 else "")
    return f"{count}: {case.way_out}" if case.way_out else count


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def options_table() -> str:
    """The options of the formats as docs/files.md shows them."""
    options = {name: option for each in (CSV, JSON, PARQUET) for name, option in each.items()}
    lines = ["", "| option | of | default | what it changes |", "|---|---|---|---|"]
    for name, option in options.items():
        of = " ".join(format_ for format_, table in OPTIONS.items() if name in table)
        default = "" if option.default in (None, ()) else f"`{option.default!r}`"
        lines.append(f"| `{name}` | {of} | {default} | {_cell(option.changes)} |")
    return "\n".join(lines)


def with_tables(document: str) -> str:
    """The document with the tables as they are now."""
    for name, table in (("options", options_table()), ("cases", cases_table())):
        begin, end = f"<!-- {name}: made by tests/file_cases.py -->", f"<!-- end of {name} -->"
        before, rest = document.split(begin)
        document = f"{before}{begin}\n{table}\n\n{end}{rest.split(end)[1]}"
    return document


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{DOCUMENT.name}: {len(cases())} cases\n")
