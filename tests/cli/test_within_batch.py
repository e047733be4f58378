"""A state behind operations per batch is counted, verified and restated as any other; other operations are another definition."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_support import MAIN, refused
from click.testing import Result
from sqlalchemy import Engine, text
from without_spark import LikeTheDriver

from txbatch import settings
from txbatch.launch.job_file import load_job
from txbatch.spouts.partitioned_log import PartitionedLog
from txbatch.wiring import open_runner

Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
# How many orders a shop has that pays, in its busiest batch, and in how many batches.
JOB = """
topology = Topology("busiest")
orders = topology.new_stream("orders", PartitionedLogSpout({orders!r}, max_records=4)).project("line")
paid = topology.new_stream("paid", PartitionedLogSpout({paid!r}, max_records=4))
paid = paid.map(lambda record: tuple(record["line"].split()), "line string, how string")
both = topology.join(orders, paid, on="line", how="left", name="both")
each = both.group_by("line").aggregate(orders=Count(), paid=Count("how"))
each.group_by("line").persistent_aggregate(
    OpaqueState("busiest"), remove=lambda record: record["line"] == "-", most=Max("orders"), paid=Sum("paid"), batches=Count()
)
"""


def report(engine: Engine) -> dict[str, tuple[Any, ...]]:
    with engine.begin() as connection:
        found = connection.execute(text("SELECT line, most, paid, batches FROM report.busiest"))
        return {line: tuple(values) for line, *values in found}


def outcomes(result: Result) -> set[str]:
    assert result.exit_code == 0, result.output
    return {row["outcome"] for row in json.loads(result.stdout)}


@pytest.mark.rule("R17", "R23", "R24")
def test_results_of_batches_are_verified_and_restated_and_changed_by_no_accident(
    tmp_path: Path, txbatch: Txbatch, write_job: WriteJob, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second batch has nothing of who paid: an empty side. The restate makes a result of its own of what is there now."""
    monkeypatch.setattr("txbatch.wiring.Application", LikeTheDriver)
    orders, paid = PartitionedLog(tmp_path / "orders"), PartitionedLog(tmp_path / "paid")
    orders.append("0", ["a", "b", "a", "a", "a", "b", "b", "-"])
    paid.append("0", ["a cash"])
    written = JOB.format(orders=str(orders.root), paid=str(paid.root)) + MAIN
    job = write_job("busiest.py", written)
    done = txbatch("run", job, "--until-idle")
    assert done.exit_code == 0, done.output
    assert report(engine) == {"a": (3, 3, 2), "b": (2, 0, 2)}
    assert outcomes(txbatch("verify", job, "--json")) == {"EQUAL"}
    next((orders.root / "0").iterdir()).write_text("a\nc\nb\nc\na\nb\nb\n-\n")
    with open_runner(load_job(job), settings.resolve()) as runner:
        assert [batch.txid for batch in runner.restate([1], "orders were wrong")] == [3]
    assert report(engine) == {"a": (1, 1, 2), "b": (2, 0, 2), "c": (2, 0, 1)}
    assert outcomes(txbatch("verify", job, "--json")) == {"EQUAL"}
    orders.append("0", ["a"])
    write_job("busiest.py", written.replace('how="left"', 'how="inner"'))
    told = "to counting per batch: inner join of orders and paid on line; aggregate orders Count, paid Count of how"
    refused(txbatch("run", job), told)
