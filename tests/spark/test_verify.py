"""`txbatch verify` of files that stayed, were touched, changed or went since, by the driver in the session of these tests."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cli_support import contents
from click.testing import CliRunner
from in_this_process import InThisProcess
from pyspark.sql import SparkSession
from sqlalchemy import Engine, text

from txbatch.cli.main import main
from txbatch.launch.job_file import LAST_LINES
from txbatch.spouts.partitioned_log import PartitionedLog

JOB = """
topology = Topology("lines", max_pending=9)
stream = topology.new_stream("in", FileSpout({root!r}, files_per_batch=1)).each("length(line) / 3", "third double")
stream.group_by("line").persistent_aggregate(
    TransactionalState("lines"), count=Count(), thirds=Sum("third", approximate=True)
)
stream.persistent_aggregate(TransactionalState("all", contributions=False), guarantee="at_least_once", count=Count())
"""
LOG = """
topology = Topology("log")
stream = topology.new_stream("in", OpaquePartitionedLogSpout({root!r}))
stream.group_by("line").persistent_aggregate(OpaqueState("log"), count=Count())
"""


def started(spark: SparkSession, postgres_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """A job that reads the folder `in`, and whatever emits it."""
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setenv("TXBATCH_HOME", str(folder / "home"))
    monkeypatch.setattr(InThisProcess, "session", spark, raising=False)
    monkeypatch.setattr("txbatch.wiring.Application", InThisProcess)
    job = folder / "job.py"
    job.write_text(f"from txbatch import *\n{text.format(root=str(folder / 'in'))}\n{LAST_LINES}\n")
    return str(job)


@pytest.mark.rule("R24")
def test_each_batch_is_judged_by_its_own_file(
    spark: SparkSession, postgres_url: str, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "in"
    root.mkdir()
    for name in "abcdef":
        (root / name).write_text(f"{name} one\nof all\nof all\n")
    job = started(spark, postgres_url, tmp_path, monkeypatch, JOB)
    runner = CliRunner()
    done = runner.invoke(main, ["run", job, "--until-idle"])
    assert done.exit_code == 0, done.output
    with engine.begin() as connection:
        connection.execute(text("UPDATE contribution.lines SET count = 7 WHERE txid = 2 AND line = 'of all'"))
        connection.execute(text("UPDATE contribution.lines SET thirds = thirds * (1 + 1e-12) WHERE txid = 1"))
        connection.execute(text("UPDATE state.lines SET count = count + 1 WHERE line = 'f one'"))
    os.utime(root / "a", (1, 1))
    (root / "c").write_text("c one\nof all\nof ALL\n")
    (root / "d").write_text("more than it was\n" * 3)
    (root / "e").unlink()
    (root / "g").write_text("not counted yet\n")
    before = contents(engine)
    result = runner.invoke(main, ["verify", job, "--json"])
    assert result.exit_code == 1, result.output
    found = {row["what"]: row for row in json.loads(result.stdout)}
    assert {what: row["outcome"] for what, row in found.items()} == {
        "txid 1": "EQUAL",
        "txid 2": "DIFFERENT",
        "txid 3": "UNVERIFIABLE",
        "txid 4": "UNVERIFIABLE",
        "txid 5": "UNVERIFIABLE",
        "txid 6": "EQUAL",
        "state lines": "DIFFERENT",
        "state all": "UNVERIFIABLE",
    }
    assert (found["txid 1"]["reason"], found["txid 1"]["changed"]) == (None, [])
    (example,) = found["txid 2"]["compared"][0]["examples"]
    assert (example["key"], example["stored"]["count"], example["recomputed"]["count"]) == (
        {"line": "of all"},
        "7",
        "2",
    )
    assert "partition 'c' of stream 'in' has changed since" in found["txid 3"]["reason"]
    for txid, file, change in ((4, "d", "grown from 20 to 51 bytes"), (5, "e", "gone")):
        told = found[f"txid {txid}"]
        assert [(each["file"], each["change"]) for each in told["changed"]] == [(file, change)]
        assert told["restate"] is None  # one of its states has no contributions
    keys = [each["key"]["line"] for each in found["state lines"]["compared"][0]["examples"]]
    assert sorted(keys) == ["f one", "of all"]
    assert found["state all"]["reason"] == "it keeps no contributions, and txid 3 cannot be read again"
    assert contents(engine) == before
    assert list((tmp_path / "home" / "staging").rglob("verify-*")) == []


@pytest.mark.rule("R13", "R24")
def test_a_hole_is_no_part_of_its_batch_and_is_told_until_it_is_filled(
    spark: SparkSession, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = started(spark, postgres_url, tmp_path, monkeypatch, LOG)
    log = PartitionedLog(tmp_path / "in")
    for partition in "01":
        log.append(partition, ["a", partition])
    log.take_away("1")
    runner = CliRunner()
    assert runner.invoke(main, ["run", job]).exit_code == 0
    log.give_back("1")
    holed = runner.invoke(main, ["verify", job])
    assert holed.exit_code == 1
    assert [line.split()[:3] for line in holed.stdout.partition("what")[2].splitlines()[1:]] == [
        ["txid", "1", "EQUAL"],
        ["state", "log", "EQUAL"],
        ["missing", "NOT", "COUNTED"],
    ]
    assert "partition '1' of stream 'in' could not be read in txid 1, and is not read since" in holed.stdout
    assert runner.invoke(main, ["run", job]).exit_code == 0
    whole = runner.invoke(main, ["verify", job])
    assert (whole.exit_code, "NOT COUNTED" in whole.stdout) == (0, False)
    log.take_away("0")
    gone = runner.invoke(main, ["verify", job, "1"])
    assert gone.exit_code == 1
    assert "UNVERIFIABLE" in gone.stdout
    assert "partition '0' of" in gone.stdout
