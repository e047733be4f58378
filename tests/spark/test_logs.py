"""Many batches of a log by few jobs: `txbatch run` and `txbatch rebuild`, by the driver in the session of these tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from in_this_process import InThisProcess
from pyspark.sql import SparkSession
from sizes import some_of
from sqlalchemy import Engine, text

from txbatch.cli.main import main
from txbatch.core.protocol.bulk import lengths
from txbatch.launch import driver as module
from txbatch.launch.job_file import LAST_LINES
from txbatch.spouts.partitioned_log import PartitionedLog

BATCHES, PARTITIONS = some_of(12, 1000), some_of(2, 16)
JOB = """from txbatch import *
topology = Topology("log", max_pending=9)
stream = topology.new_stream("in", OpaquePartitionedLogSpout({root!r}, max_records=2))
stream.group_by("line").persistent_aggregate(OpaqueState("log"), count=Count(){more})
"""


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches each job of several had."""
    found: list[int] = []
    stage = module.stage

    def counted(spark: SparkSession, topology: Any, attempts: Sequence[Any]) -> Any:
        found.append(len(attempts))
        return stage(spark, topology, attempts)

    monkeypatch.setattr(module, "stage", counted)
    return found


def trains(left: int) -> Iterator[int]:
    """Yield how many batches each job of a rebuild has."""
    for length in lengths():
        if left <= 0:
            return
        yield min(length, left)
        left -= length


@pytest.mark.timeout(some_of(600, 3_000))
@pytest.mark.rule("R10", "R13", "R23")
def test_batches_of_the_same_partitions_are_run_and_rebuilt_by_a_handful_of_jobs(
    spark: SparkSession,
    postgres_url: str,
    engine: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    jobs: list[int],
) -> None:
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(InThisProcess, "session", spark, raising=False)
    monkeypatch.setattr("txbatch.wiring.Application", InThisProcess)
    log, said = PartitionedLog(tmp_path / "log"), Counter[str]()
    for partition in range(PARTITIONS):
        lines = [f"line {(7 * n + partition) % 5}" for n in range(2 * BATCHES - partition)]
        log.append(f"{partition}", lines)
        said.update(lines)

    def call(command: str, name: str, more: str, *given: str) -> None:
        job = tmp_path / name
        job.write_text(f"{JOB.format(root=str(log.root), more=more)}\n{LAST_LINES}\n")
        done = CliRunner().invoke(main, [command, str(job), *given])
        assert done.exit_code == 0, done.output

    def report(columns: str) -> dict[str, tuple[Any, ...]]:
        with engine.connect() as connection:
            return {
                row[0]: tuple(row[1:]) for row in connection.execute(text(f"SELECT line, {columns} FROM report.log"))
            }

    call("run", "log.py", "", "--until-idle")
    assert report("count") == {line: (number,) for line, number in said.items()}
    assert sum(jobs) >= BATCHES - 1
    assert len(jobs) <= 8
    jobs.clear()
    call("rebuild", "more.py", ', last=Max("record_offset")', "--why", "the last one, too")
    assert report("count") == {line: (number,) for line, number in said.items()}
    assert max(last for (last,) in report("last").values()) == 2 * BATCHES - 1
    assert jobs == list(trains(BATCHES)), "one train after another, each begun while the one before is counted"
