"""`txbatch verify` reads many batches by one job of Spark, and looks at a source by time once for all of them (R24)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from cli_support import MAIN, WORDS_OF_LOG
from click.testing import Result
from source_intervals import DAY, sales_in
from without_spark import LikeTheDriver

from txbatch.core.batch.transaction import Assignment
from txbatch.spouts.partitioned_log import PartitionedLog
from txbatch.spouts.tables.intervals import IntervalPlanner
from txbatch.storage.staging import AttemptFolder

Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
ROWS = """
from source_intervals import FIELDS, read
class Rows(PostgresIntervalSpout):
    def batch(self, plan):
        return [(row["shop"],) for row in read(self, plan)]
topology = Topology("by_day")
stream = topology.new_stream("sales", Rows("shop.sale", FIELDS, time="sold_at", source="shop"))
stream.project("shop").group_by("shop").persistent_aggregate(OpaqueState("by_day"), sales=Count())
"""


class Jobs(LikeTheDriver):
    """Notes which txids each job reads."""

    read: list[list[int]]

    def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        self.read.append([assignment.attempt.txid])
        super().emit(folder, assignment)

    def emit_bulk(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        before = list(self.read)
        super().emit_bulk(attempts)
        self.read[:] = [*before, [assignment.attempt.txid for _, assignment in attempts]]


@pytest.fixture
def jobs(txbatch: Txbatch, monkeypatch: pytest.MonkeyPatch) -> type[Jobs]:
    monkeypatch.setattr("txbatch.wiring.Application", Jobs)
    monkeypatch.setattr(Jobs, "read", [], raising=False)
    return Jobs


def outcomes(result: Result) -> dict[str, str]:
    return {row["what"]: row["outcome"] for row in json.loads(result.stdout)}


@pytest.mark.rule("R24")
def test_batches_of_a_log_are_read_by_one_job_and_judged_one_by_one(
    jobs: type[Jobs], txbatch: Txbatch, write_job: WriteJob, tmp_path: Path
) -> None:
    log = PartitionedLog(tmp_path / "log")
    job = write_job("words.py", WORDS_OF_LOG.format(root=str(log.root)) + MAIN)
    for partition in "01":
        log.append(partition, "abcdefgh")
    assert txbatch("run", job, "--until-idle").exit_code == 0
    jobs.read.clear()
    whole = dict.fromkeys(("txid 1", "txid 2", "txid 3", "txid 4", "state words"), "EQUAL")
    assert outcomes(txbatch("verify", job, "--json")) == whole
    assert jobs.read == [[1, 2, 3, 4]]
    jobs.read.clear()
    assert list(outcomes(txbatch("verify", job, "2", "4", "--json"))) == ["txid 2", "txid 4", "state words"]
    assert jobs.read == [[2, 4]]
    jobs.read.clear()
    segment = next((log.root / "0").iterdir())
    segment.write_text(segment.read_text().replace("c", "z"))
    assert outcomes(txbatch("verify", job, "--json")) == {**whole, "txid 2": "UNVERIFIABLE"}
    assert jobs.read == [[1, 2, 3, 4]]


@pytest.mark.rule("R24")
def test_days_of_a_table_are_read_by_one_job_after_one_look(
    jobs: type[Jobs],
    txbatch: Txbatch,
    write_job: WriteJob,
    databases: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks, check_times = list[IntervalPlanner](), IntervalPlanner._check_times

    def look(self: IntervalPlanner) -> None:
        looks.append(self)
        check_times(self)

    with sales_in(databases("shop")) as sales:
        job = write_job("by_day.py", ROWS + MAIN)
        for number in range(3):
            sales.sell(DAY + timedelta(days=number, hours=12), 3 * number, 3 * number + 1)
            day = f"2026-01-0{number + 1}T00:00Z", f"2026-01-0{number + 2}T00:00Z"
            done = txbatch("run", job, "--interval", *day)
            assert done.exit_code == 0, done.output
        jobs.read.clear()
        monkeypatch.setattr(IntervalPlanner, "_check_times", look)
        found = outcomes(txbatch("verify", job, "--json"))
        assert found == dict.fromkeys(("txid 1", "txid 2", "txid 3", "state by_day"), "EQUAL")
        assert (jobs.read, len(looks)) == ([[1, 2, 3]], 1)
        sales.sell(DAY + timedelta(days=1, hours=13), 100)
        jobs.read.clear()
        late = json.loads(txbatch("verify", job, "--json").stdout)
        assert [row["reason"] for row in late if "came late" in (row["reason"] or "")] == [
            "1 records of stream 'sales' came late and are not counted"
        ]
        assert jobs.read == [[1, 2, 3], [2]]
