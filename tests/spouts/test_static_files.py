"""StaticFiles: which version of its files a plan fixes, and what an attempt says of another one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from txbatch import Count, FixedBatchSpout, OpaqueState, StaticFiles, StaticState, Topology
from txbatch.core.batch.transaction import Batch, BatchStatus, Restate, Run
from txbatch.core.protocol.ledger import Head
from txbatch.core.protocol.planning import plan_batch
from txbatch.core.protocol.planning_again import plan_again
from txbatch.core.protocol.restate import PositionVersion

RATES = "currency string, rate bigint"


def files(root: Path) -> StaticFiles:
    return StaticFiles(root, "*.csv", lambda spark, paths: paths)


def topology_of(root: Path, *, used: bool = True) -> Topology:
    topology = Topology("sales")
    rates = topology.new_static_state(StaticState("rates", files(root), RATES))
    sales = topology.new_stream("sales", FixedBatchSpout("currency string", 9, "EUR"))
    found = sales.state_query(rates, "currency") if used else sales
    found.group_by("currency").persistent_aggregate(OpaqueState("sales"), n=Count())
    return topology


def planned(topology: Topology) -> Any:
    return plan_batch(topology, Head("sales", 1, None, (), None, {}), Run("run"))


def test_a_plan_fixes_the_files_by_their_contents(tmp_path: Path) -> None:
    for name, text in (("b.csv", "EUR,3"), ("a.csv", ""), ("_a.csv", "hidden"), ("c.txt", "other")):
        (tmp_path / name).write_text(text)
    plan = planned(topology_of(tmp_path))
    assert plan["format"] == 4
    assert {name: each["bytes"] for name, each in plan["static"]["rates"].items()} == {"a.csv": 0, "b.csv": 5}
    os.utime(tmp_path / "b.csv", ns=(1, 1))
    assert planned(topology_of(tmp_path)) == plan  # what was copied back is the same
    assert "static" not in planned(topology_of(tmp_path, used=False))


def test_what_is_counted_again_looks_up_in_the_files_as_they_are_now(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("EUR,3")
    topology = topology_of(tmp_path)
    then = planned(topology)
    (tmp_path / "a.csv").write_text("EUR,4")
    first = Batch("sales", 1, BatchStatus.COMMITTED, then, "run:1")
    version = PositionVersion(first, first, first, {}, {"sales": {}})
    again = plan_again(topology, Head("sales", 2, None, (), None, {}), version, Restate(1, "another rate"))
    assert again["static"] == planned(topology)["static"] != then["static"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda file: file.write_text("EUR,3\n"),
            ("TX204", "a.csv", "5", "planned", "6"),
        ),
        (
            lambda file: file.write_text("EUR,4"),
            ("TX204", "a.csv", "planned", "5"),
        ),
        (
            lambda file: file.unlink(),
            ("TX202", "a.csv"),
        ),
    ],
)
def test_another_version_is_refused_by_name(tmp_path: Path, change: Any, says: tuple[str, ...]) -> None:
    (tmp_path / "a.csv").write_text("EUR,3")
    static = files(tmp_path)
    version = static.version()
    change(tmp_path / "a.csv")
    for read in (static.check, lambda version: static.read(None, version)):  # type: ignore[arg-type]
        with refused(*says):
            read(version)


def test_what_came_since_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("EUR,3")
    static = files(tmp_path)
    version = static.version()
    (tmp_path / "{b}.csv").write_text("USD,4")
    assert static.read(None, version) == [str(tmp_path.resolve() / "a.csv")]  # type: ignore[arg-type]
    assert static.read(None, static.version())[1].endswith(r"\{b\}.csv")  # type: ignore[arg-type]


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with refused("TX202", "'*.csv'"):
        planned(topology_of(tmp_path))
    with refused("TX208", "StaticFiles", "'data'"):
        files(Path("data"))
    with refused("TX110", "StaticFiles", "'csv'", "function"):
        StaticFiles(tmp_path, "*", "csv")  # type: ignore[arg-type]
