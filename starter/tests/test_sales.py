"""The job sales, run for real on a few records, with a PostgreSQL of the test's own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[1]
DAY = ("--interval", "2026-01-01T00:00Z", "2026-01-02T00:00Z")
SALES = """\
sold_at,shop,price
2026-01-01T09:00:00Z,Bergen,5.00
2026-01-01T10:00:00Z,Oslo,2.50
2026-01-01T11:00:00Z,Bergen,7.25
2026-01-02T09:00:00Z,Oslo,100.00
"""
Txbatch = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def txbatch(tmp_path: Path) -> Iterator[Txbatch]:
    """Calls the command on an empty database; what it starts is stopped in the end."""
    (tmp_path / "sales").mkdir()
    (tmp_path / "sales" / "all.csv").write_text(SALES)
    ours = {"TXBATCH_HOME": str(tmp_path / "home"), "SALES_FOLDER": str(tmp_path / "sales")}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TXBATCH")} | ours

    def call(*arguments: str) -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "txbatch", *arguments, "--json"]
        done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    yield call
    subprocess.run([sys.executable, "-m", "txbatch", "down"], cwd=PROJECT, env=environment, check=True)


def test_each_sale_of_the_day_counts_once(txbatch: Txbatch) -> None:
    for _ in range(2):
        txbatch("run", "jobs/sales.py", *DAY)
    bergen, oslo = txbatch("query", "sales", "Bergen", "Oslo")
    assert (bergen["sales"], bergen["turnover"], bergen["dearest"]) == (2, "12.25", "7.25")
    assert (oslo["sales"], oslo["turnover"]) == (1, "2.50")
    assert [batch["status"] for batch in txbatch("batches", "sales")] == ["committed"]
