"""Topologies that read the states of others: as a source, and to look up, by the driver in the session of these tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cli_support import refused, rows
from click.testing import CliRunner, Result
from in_this_process import InThisProcess
from pyspark.sql import SparkSession
from sqlalchemy import Engine, text

from txbatch.cli.main import main
from txbatch.launch.job_file import LAST_LINES
from txbatch.spouts.partitioned_log import PartitionedLog

Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
WORDS = """
topology = Topology("words")
stream = topology.new_stream("log", PartitionedLogSpout({root!r}, max_records=4))
stream.group_by("line").persistent_aggregate(OpaqueState("words"), count=Count(), last=Max("record_offset"))
"""
TOTALS = """
topology = Topology("totals")
changes = topology.new_stream("changes", StateSpout("words", "line string, count_before bigint, count_after bigint"))
changed = changes.each("coalesce(count_after, 0) - coalesce(count_before, 0)", "more bigint")
grouped = changed.each("substr(line, 1, 1)", "letter string").group_by("letter")
grouped.persistent_aggregate(OpaqueState("totals"), count=Sum("more"))
"""
HOURS = """
from datetime import UTC, datetime
times = [(10, 5), (10, 50), (11, 20), (10, 6), (11, 30), (12, 5), (10, 7), (12, 6), (13, 30)]
topology = Topology("hours")
spout = FixedBatchSpout("at timestamp", 3, *(datetime(2026, 1, 5, *time, tzinfo=UTC) for time in times))
stream = topology.new_stream("log", spout).with_watermark("at", "10 minutes")
stream.group_by(window("at", "1 hour")).persistent_aggregate(OpaqueState("hours"), visits=Count())
"""
BEST = """
topology = Topology("best")
closed = topology.new_stream(
    "closed", StateSpout("hours", "window_start timestamp, window_end timestamp, visits bigint, closed_by bigint", emit="final")
)
closed.persist(AppendState("handed_on"))
closed.persistent_aggregate(OpaqueState("best"), hours=Count(), most=Max("visits"))
"""
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


@pytest.fixture
def txbatch(spark: SparkSession, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Txbatch:
    """Calls a command on a fresh migrated database."""
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(InThisProcess, "session", spark, raising=False)
    monkeypatch.setattr("txbatch.wiring.Application", InThisProcess)
    return lambda *arguments: CliRunner().invoke(main, list(arguments), prog_name="txbatch")


@pytest.fixture
def write_job(tmp_path: Path) -> WriteJob:
    """Writes a job file around these lines."""

    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(f"from txbatch import *\n{text}\n{LAST_LINES}\n")
        return str(tmp_path / name)

    return write


def ran(txbatch: Txbatch, *arguments: str) -> Any:
    """What a command says, as JSON."""
    done = txbatch(*arguments)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def totals(engine: Engine, letters: str) -> dict[str, int]:
    """By letter, what both states come to; they agree."""
    of_words = f"SELECT left(line, 1), sum(count)::bigint FROM report.words WHERE line ~ '^[{letters}]' GROUP BY 1"
    with engine.begin() as connection:
        expected = dict(tuple(row) for row in connection.execute(text(of_words)))
        found = dict(tuple(row) for row in connection.execute(text("SELECT letter, count FROM report.totals")))
    assert {letter: count for letter, count in found.items() if count} == expected
    return found


def orders(engine: Engine) -> dict[str, tuple[Any, ...]]:
    with engine.begin() as connection:
        return {
            row[0]: tuple(row[1:])
            for row in connection.execute(text("SELECT tag, orders, most, mean FROM report.orders"))
        }


def test_each_closed_window_is_handed_on_once(txbatch: Txbatch, write_job: WriteJob, engine: Engine) -> None:
    """As it was when it was closed: of two late records the first hour has none there."""
    hours, best = write_job("hours.py", HOURS), write_job("best.py", BEST)
    assert [each["txid"] for each in rows(txbatch("run", hours, "--json"))] == [1]
    assert [each["txid"] for each in ran(txbatch, "run", best, "--until-idle", "--json")] == [1]
    assert [each["txid"] for each in rows(txbatch("run", hours, "--until-idle", "--json"))] == [2, 3]
    assert [each["txid"] for each in ran(txbatch, "run", best, "--until-idle", "--json")] == [2]
    assert rows(txbatch("run", best, "--json")) == []
    with engine.begin() as connection:
        handed_on = "SELECT extract(hour FROM window_start)::int, visits, closed_by FROM report.handed_on ORDER BY 1"
        assert [*connection.execute(text(handed_on))] == [(10, 2, 1), (11, 2, 3), (12, 2, 3)]
        now = "SELECT extract(hour FROM window_start)::int, visits FROM report.closed_hours(0, 3) ORDER BY 1"
        assert [*connection.execute(text(now))] == [(10, 4), (11, 2), (12, 2)]
        assert [*connection.execute(text("SELECT hours, most FROM report.best"))] == [(3, 2)]


def test_a_chain_counts_exactly_once(txbatch: Txbatch, write_job: WriteJob, engine: Engine, tmp_path: Path) -> None:
    """Its reader, by Spark, sees each change once, also what a restate took away; nothing new starts none; verify says equal."""
    log = PartitionedLog(tmp_path / "log")
    log.append("0", ["ant", "ape", "bee", "ant", "cow", "bee"])
    words = write_job("words.py", WORDS.format(root=str(log.root)))
    chained = write_job("totals.py", TOTALS)
    refused(txbatch("run", chained), "no state 'words' is known: run the job that makes it first")
    assert [each["txid"] for each in rows(txbatch("run", words, "--until-idle", "--json"))] == [1, 2]
    planned = txbatch("plan", chained, "--json")
    assert planned.exit_code == 0, planned.stderr
    assert [each["txid"] for each in ran(txbatch, "run", chained, "--until-idle", "--json")] == [1]
    assert totals(engine, "abc") == {"a": 3, "b": 2, "c": 1}
    assert rows(txbatch("run", chained, "--json")) == []
    segment = next((log.root / "0").iterdir())
    segment.write_text(segment.read_text().replace("ape", "elk"))
    assert rows(txbatch("restate", "words", "1", "--why", "it was an elk", "--json"))[0]["txid"] == 3
    assert [each["txid"] for each in ran(txbatch, "run", chained, "--json")] == [2]
    assert totals(engine, "abce") == {"a": 2, "b": 2, "c": 1, "e": 1}
    found = ran(txbatch, "verify", "totals", "--json")
    assert {each["outcome"] for each in found} == {"EQUAL"}, found


def test_what_is_looked_up_stays_what_it_was(
    txbatch: Txbatch, write_job: WriteJob, engine: Engine, tmp_path: Path
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
    assert [each["txid"] for each in ran(txbatch, "run", visits, "--json")] == [1]
    (planned,) = json.loads(txbatch("plan", job, "--json").stdout)
    assert planned["next"]["metadata"]["as_of"]["visits"]["txid"] == 1
    assert [each["txid"] for each in ran(txbatch, "run", job, "--json")] == [1]
    first = {"old": (1, 3, Decimal("1.67")), "dear": (1, 3, Decimal("1.67")), "new": (2, None, None)}
    assert orders(engine) == first
    seen.append("0", ["eve", "ann"])
    assert [each["txid"] for each in ran(txbatch, "run", visits, "--json")] == [2]
    found = ran(txbatch, "verify", "orders", "--json")
    assert {each["outcome"] for each in found} == {"EQUAL"}, found
    ordered.append("0", ["eve"])
    (tags / "tags.csv").write_text("ann,dear\neve,new\n")
    assert [each["txid"] for each in ran(txbatch, "run", job, "--json")] == [2]
    assert orders(engine) == {**first, "new": (3, 1, Decimal("4.00"))}
