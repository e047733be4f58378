"""A wide CSV of which three columns are wanted: these alone as fields, against all of them, by the decoder of Spark's tasks."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from bench.measure import Figure, Stopwatch, interleaved
from bench.results import Results
from txbatch.core.records.fields import parse_fields
from txbatch.formats.options import check_options
from txbatch.formats.scan import Format, Range, Times

COLUMNS, LINES = 3_000, 500
FIRST, LAST = datetime(1971, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
DAY = datetime(2026, 1, 1, tzinfo=UTC)
WANTED = "at timestamp, shop string, price decimal(10,2)"


def measure(section: str, results: Results) -> None:
    """Read the file whole, and count the records: what goes to Spark is less by as much again, and is not timed."""
    others = [f"reading_{number}" for number in range(COLUMNS - 3)]
    with tempfile.TemporaryDirectory(prefix="txbatch-bench.") as home:
        file = Path(home) / "wide.csv"
        _write(file, others)
        everything = f"{WANTED}, {', '.join(f'{name} double' for name in others)}"
        runs = interleaved(
            {
                "three columns": partial(_read, file, WANTED, {"header": True, "extra": "ignore"}),
                "all columns": partial(_read, file, everything, {"header": True}),
            }
        )
    results.add(section, runs, FIGURES, columns=COLUMNS, lines=LINES)


def _write(file: Path, others: list[str]) -> None:
    with file.open("w", encoding="utf-8") as out:
        out.write(f"at,{','.join(others)},shop,price\n")
        for line in range(LINES):
            readings = ",".join(f"{(line * number) % 9_973 / 8}" for number in range(len(others)))
            out.write(f"{(DAY + timedelta(minutes=line)).isoformat()},{readings},shop {line % 7},{line}.50\n")


def _read(file: Path, fields: str, options: dict[str, Any], watch: Stopwatch) -> None:
    times = Times("at", FIRST, LAST, FIRST, LAST)
    with watch.timed():
        format_ = Format("csv", parse_fields(fields), check_options("csv", options), times)
        found = sum(len(batch) for batch in format_.read(Range(file, 0, None, file.stat().st_size)))
    if found != LINES:
        raise RuntimeError(f"{found} records were read, not {LINES}")


FIGURES = [Figure("three of 3,000 columns of CSV / all of them", "three columns", "all columns", 0.2, 0.15)]
SECTIONS = {"wide files": measure}
