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
SEEN = """
topology = Topology("seen")
seen = topology.new_stream("log", PartitionedLogSpout({root!r}))
known = seen.state_query(LiveState("visits", "line string, visits bigint"), "line")
known.project("record_offset", "line").group_by("line").persistent_aggregate(OpaqueState("seen"), seen=Count())
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
    """A verify looks up as of then, though more was counted since; the next batch as of now, in files as they are now."""
    seen, ordered, tags = PartitionedLog(tmp_path / "seen"), PartitionedLog(tmp_path / "ordered"), tmp_path / "tags"
    tags.mkdir()
    (tags / "tags.csv").write_text("ann,old\nann,dear\neve,new\n")
    seen.append("0", ["ann", "bob", "ann", "ann"])
    ordered.append("0", ["ann", "eve", "bob", "eve"])
    visits = write_job("visits.py", VISITS.format(root=str(seen.root)))
    job = write_job("orders.py", ORDERS.format(root=str(ordered.root), tags=str(tags)))
    refused(txbatch("run", job), "no state 'visits' is known: run the job that makes it first")
    assert [each["txid"] for each in ran(process, "run", visits, "--json")] == [1]
    (planned,) = json.loads(txbatch("plan", job, "--json").stdout)
    assert planned["next"]["metadata"]["as_of"]["visits"]["txid"] == 1
    assert [each["txid"] for each in ran(process, "run", job, "--json")] == [1]
    first = {"old": (1, 3, Decimal("1.67")), "dear": (1, 3, Decimal("1.67")), "new": (2, None, None)}
    assert orders(engine) == first
    seen.append("0", ["eve", "ann"])
    assert [each["txid"] for each in ran(process, "run", visits, "--json")] == [2]
    found = ran(process, "verify", "orders", "--json")
    assert {each["outcome"] for each in found} == {"EQUAL"}, found
    ordered.append("0", ["eve"])
    (tags / "tags.csv").write_text("ann,dear\neve,new\n")
    assert [each["txid"] for each in ran(process, "run", job, "--json")] == [2]
    assert orders(engine) == {**first, "new": (3, 1, Decimal("4.00"))}


def test_a_batch_says_what_it_looked_up(txbatch: Txbatch, write_job: WriteJob, tmp_path: Path) -> None:
    """A restate too, which looks up as of then."""
    log = PartitionedLog(tmp_path / "log")
    log.append("0", ["ann", "bob"])
    visits = write_job("visits.py", VISITS.format(root=str(log.root)).replace(', mean=Avg("record_offset")', ""))
    job = write_job("seen.py", SEEN.format(root=str(log.root)))
    for each in (visits, job):
        assert txbatch("run", each).exit_code == 0
    log.append("0", ["ann"])
    for each in (visits, job):
        assert txbatch("run", each).exit_code == 0
    done = txbatch("restate", "seen", "1", "--why", "ann was eve")
    assert done.exit_code == 0, done.output
    (told,) = json.loads(txbatch("why", "seen", "ann", "--json").stdout)
    assert [(each["txid"], each["reads"][-1]) for each in told["versions"]] == [
        (1, "visits as of txid 1"),
        (3, "visits as of txid 1"),
        (2, "visits as of txid 2"),
    ]
