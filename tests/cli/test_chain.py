"""Topologies that read one another's states, through the command line and Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_support import refused, rows
from click.testing import Result
from sqlalchemy import Engine, text

from txbatch.spouts.partitioned_log import PartitionedLog

Process = Callable[..., Any]
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


def ran(process: Process, *arguments: str) -> Any:
    """What a command in a process of its own says, as JSON."""
    out, err = (running := process(*arguments)).communicate(timeout=170)
    assert running.returncode == 0, err
    return json.loads(out)


def totals(engine: Engine, letters: str) -> dict[str, int]:
    """By letter, what both states come to; they agree."""
    of_words = f"SELECT left(line, 1), sum(count)::bigint FROM report.words WHERE line ~ '^[{letters}]' GROUP BY 1"
    with engine.begin() as connection:
        expected = dict(tuple(row) for row in connection.execute(text(of_words)))
        found = dict(tuple(row) for row in connection.execute(text("SELECT letter, count FROM report.totals")))
    assert {letter: count for letter, count in found.items() if count} == expected
    return found


@pytest.mark.timeout(600)
def test_a_chain_counts_exactly_once(
    process: Process, txbatch: Txbatch, write_job: WriteJob, engine: Engine, tmp_path: Path
) -> None:
    """Its reader, by Spark, sees each change once, also what a restate took away; nothing new starts none; verify says equal."""
    log = PartitionedLog(tmp_path / "log")
    log.append("0", ["ant", "ape", "bee", "ant", "cow", "bee"])
    words = write_job("words.py", WORDS.format(root=str(log.root)))
    chained = write_job("totals.py", TOTALS)
    refused(txbatch("run", chained), "no state 'words' is known: run the job that makes it first")
    assert [each["txid"] for each in rows(txbatch("run", words, "--until-idle", "--json"))] == [1, 2]
    planned = txbatch("plan", chained, "--json")
    assert planned.exit_code == 0, planned.stderr
    assert [each["txid"] for each in ran(process, "run", chained, "--until-idle", "--json")] == [1]
    assert totals(engine, "abc") == {"a": 3, "b": 2, "c": 1}
    assert rows(txbatch("run", chained, "--json")) == []
    segment = next((log.root / "0").iterdir())
    segment.write_text(segment.read_text().replace("ape", "elk"))
    assert rows(txbatch("restate", "words", "1", "--why", "it was an elk", "--json"))[0]["txid"] == 3
    assert [each["txid"] for each in ran(process, "run", chained, "--json")] == [2]
    assert totals(engine, "abce") == {"a": 2, "b": 2, "c": 1, "e": 1}
    found = ran(process, "verify", "totals", "--json")
    assert {each["outcome"] for each in found} == {"EQUAL"}, found
