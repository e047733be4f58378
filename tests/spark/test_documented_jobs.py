"""The examples of docs/jobs.md and its neighbours, run on a few records each."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from doc_pages import example_jobs
from pyspark import cloudpickle

from txbatch import Interval
from txbatch.core.batch.transaction import Run
from txbatch.core.protocol import planning
from txbatch.core.protocol.ledger import Head
from txbatch.launch.job_file import load_job
from txbatch.spouts.partitioned_log import PartitionedLog

MONDAY = Interval(datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 1, 6, tzinfo=UTC))
NO_BATCH = Head("", 1, None, (), None, {})
EXAMPLES = example_jobs()


def write(file: Path, *lines: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def sales(data: Path) -> None:
    lines = [
        f"2026-01-05T{hour}:00:00Z,{sale}"
        for hour, sale in ((10, "Soho,1.50"), (11, "Soho,2.50"), (12, "Mayfair,7.00"))
    ]
    write(data / "sales" / "monday.csv", "sold_at,shop,price", *lines)


def sales_without_header(data: Path) -> None:
    write(data / "sales" / "monday.csv", "2026-01-05T10:00:00Z,Soho,1.50", '2026-01-05,"Mayf""air",7.00')


def priced(data: Path) -> None:
    write(data / "sales" / "monday.csv", "nut,1.50", "bolt,7.00", "nut,2.25")


def calls(data: Path) -> None:
    calls = ["Soho 4 true 1970-01-01T12", "Soho 10 true 1970-01-01T11", "Soho 70 false 1970-01-01T13"]
    write(data / "calls" / "1.txt", *calls, "Mayfair 60 false 1970-01-01T12")


def airports(data: Path) -> None:
    write(data / "airlines" / "airlines.csv", "AA,American", "UA,United")
    write(data / "newark" / "1.txt", "AA 5", "XX 70")
    write(data / "kennedy" / "1.txt", "   12AA", "     UA")


def stock(data: Path) -> None:
    PartitionedLog(data / "movements").append("a", ["nut 5", "bolt 7", "bolt gone", "nut -2", "cog gone", "cog 1"])


def sensors(data: Path) -> None:
    write(data / "sensors" / "1.txt", "a 1.5", "a 4", "b 7")
    write(data / "sensors" / "2.txt", "a -2")


def logs(data: Path) -> None:
    write(data / "logs" / "a.log", "x", "y", "x")


ONE = 2**40  # the bin of 1.0


def hashes(*numbers: int) -> list[int]:
    return sorted(int(hashlib.md5(str(each).encode(), usedforsecurity=False).hexdigest()[:15], 16) for each in numbers)


AT = [datetime(1970, 1, 1, hour, tzinfo=UTC) for hour in range(24)]
WHAT = {
    "sales": (sales, {"sales": {("Soho",): (2, 4, 4, 2, 2.5), ("Mayfair",): (1, 7, 7, 1, 7)}}),
    "sales_in_warehouse": (sales_without_header, {"shops": {("Soho",): (1, 1.5), ('Mayf"air',): (1, 7)}}),
    "priced": (priced, {"priced": {("nut",): (Decimal("3.75"),), ("bolt",): (7,)}}),
    "calls": (
        calls,
        {
            "calls": {
                ("Soho",): (
                    *(3, 2, False, True, 14, 2, *(84, 5016, 3) * 2, 1, 1, 1),
                    *(AT[11], 10, AT[13], 70, 4, AT[12], 10, AT[11]),
                    *([70, 10], [4, 10, 70], [ONE + 70, 1, ONE + 116, 1, ONE + 213, 1], hashes(4, 10, 70)),
                ),
                ("Mayfair",): (
                    *(1, 0, False, False, None, 0, *(60, 3600, 1) * 2, 0, 0, 1),
                    *(AT[12], 60, AT[12], 60, 60, AT[12], None, None, [60], [60], [ONE + 205, 1], hashes(60)),
                ),
            }
        },
    ),
    "airports": (
        airports,
        {
            "delays": {("American",): (2, 12), ("United",): (1, None), ("unknown",): (1, 70)},
            "all_flights": {(): (4, 70)},
        },
    ),
    "stock": (stock, {"stock": {("nut",): (3, False, True), ("bolt",): (7, True, True), ("cog",): (1, True, True)}}),
    "spans": (sensors, {"spans": {("a",): (3, -2, 4, 6), ("b",): (1, 7, 7, 0)}}),
    "numbered": (logs, {"numbered": {("x",): (2,), ("y",): (1,)}}),
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: re.findall(r'Topology\("(\w+)"\)', text)[0])
def test_an_example_counts_what_it_says(emit: Callable[..., Any], tmp_path: Path, example: str) -> None:
    job = tmp_path / "jobs" / "documented.py"
    write(job, example.replace('"/data/', f'"{tmp_path}/data/'))
    topology = load_job(str(job)).topology
    for name in [name for name in sys.modules if name.startswith("txbatch_job_")]:
        cloudpickle.register_pickle_by_value(sys.modules[name])  # as that of a submitted job, which is __main__, is
    if topology.name == "load":
        ((_, (looks, highest)),) = emit(topology).partials["load"].items()
        assert looks == 1
        assert highest >= 0
        return
    write_data, expected = WHAT[topology.name]
    write_data(tmp_path / "data")
    run = Run("test", interval=MONDAY)
    metadata = planning.plan_batch(topology, NO_BATCH, run) if topology.by_interval else None
    found: Mapping[str, Any] = emit(topology, metadata).partials
    assert found == expected
