"""Quarantine through the command line: rows in a report, begun by a change, restated, verified, as those of any state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_support import MAIN, refused, rows
from click.testing import Result
from sqlalchemy import Engine, text
from without_spark import LikeTheDriver

from txbatch.spouts.partitioned_log import PartitionedLog

Txbatch = Callable[..., Result]
JOB = """
def number(record):
    return {number}
topology = Topology("numbers"{options})
stream = topology.new_stream("log", PartitionedLogSpout({root!r}, max_records=2))
stream.map(number, "n bigint").persist(AppendState("numbers"))
"""


@pytest.fixture
def write(
    tmp_path: Path, txbatch: Txbatch, monkeypatch: pytest.MonkeyPatch, write_job: Callable[[str, str], str]
) -> Callable[..., str]:
    """Writes the job: how it makes a number of a record, and what its topology says."""
    monkeypatch.setattr("txbatch.wiring.Application", LikeTheDriver)
    log = PartitionedLog(tmp_path / "log")
    log.append("0", ["1", "x", "2", "y"])

    def job(number: str = 'int(record["line"])', options: str = ", quarantine=5") -> str:
        return write_job("numbering.py", JOB.format(root=str(log.root), number=number, options=options) + MAIN)

    return job


def failed(engine: Engine, relation: str = "report.numbers_quarantine") -> list[tuple[Any, ...]]:
    with engine.begin() as connection:
        found = connection.execute(text(f"SELECT batch, operation, data, txid FROM {relation} ORDER BY batch"))
        return [tuple(row) for row in found]


def numbers(engine: Engine) -> list[int]:
    with engine.begin() as connection:
        return sorted(connection.execute(text("SELECT n FROM report.numbers")).scalars())


X, Y = ('{"line": "x", "record_offset": 1}', '{"line": "y", "record_offset": 3}')
MENDED = 'int(record["line"]) if record["line"].isdigit() else 0'


@pytest.mark.rule("R17")
def test_what_failed_is_a_report_until_a_restate_by_the_mended_job(
    txbatch: Txbatch, write: Callable[..., str], engine: Engine
) -> None:
    rows(txbatch("run", write(), "--until-idle", "--json"))
    each = "1. map number"
    found = failed(engine)
    assert [(batch, operation, txid) for batch, operation, _, txid in found] == [(1, each, 1), (2, each, 2)]
    assert ["x" in data for _, _, data, _ in found] == [True, False]
    assert numbers(engine) == [1, 2]
    assert {row["outcome"] for row in rows(txbatch("verify", "numbers", "--json"))} == {"EQUAL"}
    write(MENDED)
    rows(txbatch("restate", "numbers", "1", "--why", "mended", "--json"))
    assert [(batch, txid) for batch, _, _, txid in failed(engine)] == [(2, 2)]
    assert [row[0] for row in failed(engine, "report.as_of_numbers_quarantine(2)")] == [1, 2]
    assert numbers(engine) == [0, 1, 2]


@pytest.mark.rule("R23")
def test_a_topology_with_history_begins_and_ends_one(
    txbatch: Txbatch, write: Callable[..., str], engine: Engine
) -> None:
    job = write(MENDED, "")
    rows(txbatch("run", job, "--json"))
    write()
    refused(txbatch("run", job), "state 'numbers_quarantine' is new")
    rows(txbatch("change", job, "--why", "bad lines", "--yes", "--json"))
    rows(txbatch("run", job, "--until-idle", "--json"))
    assert [(row[0], row[3]) for row in failed(engine)] == [(2, 2)]
    refused(txbatch("restate", "numbers", "1", "--why", "by the new job"), "the quarantine counts from txid 2 on")
    assert (len(failed(engine)), numbers(engine)) == (1, [0, 1, 2])
    rows(txbatch("abort", "numbers", "3", "--why", "x is no number", "--json"))
    write(MENDED, "")
    rows(txbatch("change", job, "--why", "no bad lines", "--yes", "--json"))
    rows(txbatch("run", job, "--json"))
