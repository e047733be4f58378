"""A topology that looks up in the state of another one, and in files, through the command line and Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cli_support import refused
from click.testing import Result
from sqlalchemy import Engine, text

from txbatch.spouts.partitioned_log import PartitionedLog

Process = Callable[..., Any]
Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
VISITS = """
topology = Topology("visits")
visits = topology.new_stream("log", PartitionedLogSpout({root!r}))
visits.group_by("line").persistent_aggregate(OpaqueState("visits"), visits=Count(), mean=Avg("record_offset"))
"""
ORDERS = """
topology = Topology("orders")
orders = topology.new_stream("log", PartitionedLogSpout({root!r}))
known = orders.state_query(LiveState("visits", "line string, visits bigint, mean decimal(10,2)"), "line")
tags = topology.new_static_state(
    StaticState(
        "tags",
        StaticFiles({tags!r}, "*.csv", lambda spark, files: spark.read.csv(files, schema="line string, tag string")),
        "line string, tag string",
    )
)
tagged = known.state_query(tags, "line", how="inner", many=True)
tagged.group_by("tag").persistent_aggregate(OpaqueState("orders"), orders=Count(), most=Max("visits"), mean=Max("mean"))
"""


def ran(process: Process, *arguments: str, code: int = 0) -> Any:
    """What a command in a process of its own says, as JSON."""
    out, err = (running := process(*arguments)).communicate(timeout=170)
    assert running.returncode == code, (out, err)
    return json.loads(out)


def orders(engine: Engine) -> dict[str, tuple[Any, ...]]:
    with engine.begin() as connection:
        return {
            row[0]: tuple(row[1:])
            for row in connection.execute(text("SELECT tag, orders, most, mean FROM report.orders"))
        }


@pytest.mark.timeout(600)
def test_what_is_looked_up_stays_what_it_was(
    process: Process, txbatch: Txbatch, write_job: WriteJob, engine: Engine, tmp_path: Path
) -> None:
    """A restate and a verify look up as of then, though more was counted since, and corrected; files are as they are now."""
    seen, ordered, tags = PartitionedLog(tmp_path / "seen"), PartitionedLog(tmp_path / "ordered"), tmp_path / "tags"
    tags.mkdir()
    (tags / "tags.csv").write_text("ann,old\nann,dear\neve,new\n")
    seen.append("0", ["ann", "bob", "ann", "ann"])
    ordered.append("0", ["ann", "eve", "bob", "eve"])
    visits = write_job("visits.py", VISITS.format(root=str(seen.root)))
    job = write_job("orders.py", ORDERS.format(root=str(ordered.root), tags=str(tags)))
    refused(txbatch("run", job), "no state 'visits' is known: run the job that makes it first")
    assert [each["txid"] for each in ran(process, "run", visits, "--json")] == [1]
    planned = txbatch("plan", job, "--json")
    assert json.loads(planned.stdout)["next"]["metadata"]["as_of"]["visits"]["txid"] == 1
    assert [each["txid"] for each in ran(process, "run", job, "--json")] == [1]
    first = {"old": (1, 3, Decimal("1.67")), "dear": (1, 3, Decimal("1.67")), "new": (2, None, None)}
    assert orders(engine) == first
    seen.append("0", ["eve", "ann"])
    assert [each["txid"] for each in ran(process, "run", visits, "--json")] == [2]
    found = ran(process, "verify", "orders", "--json")
    assert {each["outcome"] for each in found} == {"EQUAL"}, found
    (tags / "tags.csv").write_text("ann,dear\neve,new\n")
    found = ran(process, "verify", "orders", "1", "--json", code=1)
    assert found[0]["outcome"] == "UNVERIFIABLE"
    assert found[0]["reason"].endswith("tags.csv had 25 bytes when it was planned, now 17; restore it"), found
    ran(process, "restate", "orders", "1", "--why", "ann is not old", "--json")
    del first["old"]
    assert orders(engine) == first
    ordered.append("0", ["eve"])
    assert [each["txid"] for each in ran(process, "run", job, "--json")] == [3]
    assert orders(engine) == {**first, "new": (3, 1, Decimal("4.00"))}
    told = json.loads(txbatch("why", "orders", "new", "--json").stdout)
    assert [each["reads"][-1] for each in told["versions"] if each["counts"]] == [
        "visits as of txid 1",
        "visits as of txid 2",
    ]
