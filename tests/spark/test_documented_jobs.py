"""The examples of docs/jobs.md, run on a few records each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from txbatch.job_file import load_job
from txbatch.spouts.partitioned_log import PartitionedLog

DOCUMENT = Path(__file__).parents[2] / "docs" / "jobs.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)


def write(file: Path, *lines: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def sales(data: Path) -> None:
    write(data / "sales" / "monday.csv", "Soho,1.50", "Soho,2.50", "Mayfair,7.00", "broken")


def airports(data: Path) -> None:
    write(data / "airlines.csv", "AA,American", "UA,United")
    write(data / "newark" / "1.csv", "AA,5", "XX,70")
    write(data / "kennedy" / "1.txt", "   12AA", "     UA")


def stock(data: Path) -> None:
    PartitionedLog(data / "movements").append("a", ["nut 5", "bolt 7", "bolt gone", "nut -2", "cog gone", "cog 1"])


def logs(data: Path) -> None:
    write(data / "logs" / "a.log", "x", "y", "x")


WHAT = {
    "sales": (sales, {"sales": {("Soho",): (2, 4, 4, 2, 2.5), ("Mayfair",): (1, 7, 7, 1, 7)}}),
    "sales_in_warehouse": (sales, {"shops": {("Soho",): (2, 4), ("Mayfair",): (1, 7)}}),
    "airports": (
        airports,
        {
            "delays": {("American",): (2, 12), ("United",): (1, None), ("unknown",): (1, 70)},
            "all_flights": {(): (4, 70)},
        },
    ),
    "stock": (stock, {"stock": {("nut",): (3, False, True), ("bolt",): (7, True, True), ("cog",): (1, True, True)}}),
    "numbered": (logs, {"numbered": {("x",): (2,), ("y",): (1,)}}),
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: re.findall(r'Topology\("(\w+)"\)', text)[0])
def test_an_example_counts_what_it_says(emit: Callable[..., Any], tmp_path: Path, example: str) -> None:
    job = tmp_path / "jobs" / "documented.py"
    write(job, example.replace('"/data/', f'"{tmp_path}/data/'))
    topology = load_job(str(job)).topology
    if topology.name == "load":
        ((_, (looks, highest)),) = emit(topology).partials["load"].items()
        assert looks == 1
        assert highest >= 0
        return
    write_data, expected = WHAT[topology.name]
    write_data(tmp_path / "data")
    found: Mapping[str, Any] = emit(topology).partials
    assert found == expected
