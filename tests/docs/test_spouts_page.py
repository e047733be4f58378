"""The examples of docs/spouts.md: each job runs in memory, on a few records; the contract's example collects its tests."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from txbatch import Interval, Topology
from txbatch.launch.job_file import load_job
from txbatch.testing import SpoutContract, submit_topology

PAGE = (Path(__file__).parents[2] / "docs" / "spouts.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
JOBS = [block for block in BLOCKS if "Topology(" in block]
DAY = datetime(2026, 1, 1, tzinfo=UTC)
# What is fed to the stream of each job, and what its state then is.
RECORDS: dict[str, tuple[list[Any], Any]] = {
    "levels": (["WARN a", "INFO b", "WARN c"], [{"level": "INFO", "lines": 1}, {"level": "WARN", "lines": 2}]),
    "turnover": ([(DAY, "Soho", 3), (DAY, "Soho", 4)], [{"shop": "Soho", "sales": 2, "turnover": 7}]),
    "clicks": ([(0, "a"), (1, "b"), (2, "a")], [{"line": "a", "clicks": 2}, {"line": "b", "clicks": 1}]),
    "sales_by_shop": (
        [(1, "Soho", Decimal("1.50")), (2, "Soho", Decimal(2))],
        [{"shop": "Soho", "sales": 2, "amount": Decimal("3.50")}],
    ),
    "sales_by_day": (
        [(1, "Soho", Decimal("1.50"), DAY), (2, "Soho", Decimal(2), DAY)],
        [{"shop": "Soho", "sales": 2, "amount": Decimal("3.50")}],
    ),
    "order_status": (
        [(1, "new", DAY), (1, "paid", DAY + timedelta(hours=1)), (2, "new", DAY)],
        [{"id": 1, "status": "paid"}, {"id": 2, "status": "new"}],
    ),
    "clicks_by_page": (
        [("home", 1), ("cart", 2), ("home", 3)],
        [{"page": "cart", "clicks": 1}, {"page": "home", "clicks": 2}],
    ),
    "orders": ([(0, "a"), (1, "b")], [{"orders": 2}]),
}
# The Spark SQL of a job, in Python.
FUNCTIONS: dict[str, dict[str, Any]] = {
    "levels": {"split_part(line, ' ', 1)": lambda record: record["line"].split(" ")[0]},
    "sales_by_day": {"cast(sold_at as date)": lambda record: record["sold_at"].date()},
}


@pytest.mark.parametrize("block", JOBS, ids=lambda block: re.findall(r'Topology\("(\w+)"', block)[0])
def test_it_counts(block: str, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(block)
    topology: Topology = load_job(str(job)).topology
    (stream,) = topology.streams
    fed, expected = RECORDS[topology.name]
    by_time = topology.by_interval
    of = submit_topology(str(job), functions=FUNCTIONS.get(topology.name, {}))
    of.spouts[stream].feed(*fed, **({} if by_time else {"partition": "0"}))
    of.run(**({"interval": Interval(DAY, DAY + timedelta(days=1))} if by_time else {}))
    found = of.rows(topology.name)
    assert [{name: row[name] for name in expected[0]} for row in found] == expected


def test_each_job_and_each_spout_has_an_example() -> None:
    assert len(JOBS) == len(RECORDS)
    for name in (
        "FileSpout",
        "IntervalSpout",
        "PartitionedLogSpout",
        "OpaquePartitionedLogSpout",
        "PostgresSpout",
        "PostgresIntervalSpout",
        "OpaquePostgresSpout",
        "OpaqueKafkaSpout",
        "SpoutContract",
    ):
        assert any(name in block for block in BLOCKS), name


def test_the_example_of_the_contract_has_its_methods() -> None:
    names: dict[str, Any] = {}
    exec(compile(BLOCKS[-1], "spouts.md", "exec"), names)
    contract = names["TestClicks"]
    assert issubclass(contract, SpoutContract)
    for said in ("make", "append", "take_away", "give_back", "cut_off", "make_anew", "names", "intervals", "secret"):
        assert f"`{said}" in PAGE
        assert hasattr(contract, said)


def test_plans_of_the_example_of_the_contract(tmp_path: Path) -> None:
    """Without Spark; tests of Spark run the others."""
    names: dict[str, Any] = {}
    exec(compile(BLOCKS[-1], "spouts.md", "exec"), names)
    for number, test in enumerate(
        (
            "a_plan_is_json_and_two_looks_agree",
            "a_plan_goes_on_where_the_last_one_ended",
            "a_batch_is_counted_again_or_refused",
        )
    ):
        (tmp_path / str(number)).mkdir()
        getattr(names["TestClicks"](), f"test_{test}")(tmp_path / str(number))
