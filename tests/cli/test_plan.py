"""`txbatch plan` says what would happen and lets nothing happen; `txbatch status` says who waits, and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cli_support import COUNT, refused
from click.testing import Result
from sqlalchemy import Engine, text
from without_spark import WithoutSpark

from txbatch import settings
from txbatch.core.batch.transaction import Batch, Interval, Run
from txbatch.core.protocol.decisions import Wait
from txbatch.launch.job_file import load_job
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.run.steps import Steps
from txbatch.spouts.partitioned_log import PartitionedLog
from txbatch.wiring import open_steps

Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
JOB = """
topology = Topology("log", max_pending=2)
stream = topology.new_stream("in", OpaquePartitionedLogSpout({root!r}, max_records=4))
grouped = stream.group_by("line")
grouped.persistent_aggregate(OpaqueState("lines"), count=Count())
"""
LOOSE = """
loose = TransactionalState("loose", database="warehouse")
grouped.persistent_aggregate(loose, guarantee="at_least_once", count=Count())
"""
DAYS = """
class Days(Spout, BatchCoordinator):
    fields, by_interval, parameters, identity = "word string", True, ("top",), {"spout": "Days"}
    def coordinator(self):
        return self
    def emitter(self):
        raise AssertionError
    def initialize_transaction(self, txid, prev_metadata, curr_metadata):
        return curr_metadata
topology = Topology("days")
stream = topology.new_stream("in", Days())
"""


@pytest.fixture
def log(tmp_path: Path) -> PartitionedLog:
    made = PartitionedLog(tmp_path / "log", segment_records=2)
    for name in "ab":
        made.append(name, [f"{name}{n}" for n in range(6)])
    return made


@pytest.fixture
def job(write_job: WriteJob, log: PartitionedLog) -> str:
    return write_job("log.py", JOB.format(root=str(log.root)))


def json_rows(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def lines(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


@pytest.mark.rule("R11")
def test_the_guarantee_matrix(
    txbatch: Txbatch, write_job: WriteJob, log: PartitionedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_job("loose.py", JOB.format(root=str(log.root)) + LOOSE)
    refused(txbatch("plan", job), "set TXBATCH_DATABASE_URL_WAREHOUSE")  # as a run would be
    monkeypatch.setenv("TXBATCH_DATABASE_URL_WAREHOUSE", "postgresql://127.0.0.1:1/none")
    header, lines_, loose, *_ = lines(txbatch("plan", job))
    assert header == ["stream", "spout", "spout_kind", "state", "state_kind", "guarantee", "database"]
    spout = ["in", "OpaquePartitionedLogSpout", "opaque"]
    assert lines_ == [*spout, "lines", "opaque", "exactly", "once", "the", "ledger's"]
    assert loose == [*spout, "loose", "transactional", "at", "least", "once", "warehouse"]


@pytest.mark.parametrize("step", ["", ".distinct()"])
def test_why_batches_are_emitted_one_by_one_is_said(
    txbatch: Txbatch, write_job: WriteJob, tmp_path: Path, step: str
) -> None:
    (tmp_path / "a").write_text("a")
    defined = f'topology = Topology("t")\nstream = topology.new_stream("in", FileSpout({str(tmp_path)!r}, "a")){step}\n'
    job = write_job("t.py", f'{defined}stream.group_by("line").persistent_aggregate(OpaqueState("s"), n=Count())')
    said = txbatch("plan", job).stdout.splitlines()
    begins = ["many batches of a call are emitted one by one:", "  state 's': distinct"]
    told = [pair for pair in pairwise(said) if "one by one" in pair[0]]
    assert [(first, second[: len(begins[1])]) for first, second in told] == ([tuple(begins)] if step else [])


def test_what_is_counted_per_batch_says_so(txbatch: Txbatch, write_job: WriteJob, log: PartitionedLog) -> None:
    best = 'stream.distinct().aggregate(n=Count()).persistent_aggregate(OpaqueState("best"), most=Max("n"))'
    job = write_job("best.py", JOB.format(root=str(log.root)) + best)
    header, lines_, best_, *_ = lines(txbatch("plan", job))
    assert header[-1] == "counts"
    assert " ".join(best_).endswith("per batch: distinct; aggregate n Count")
    assert lines_[-1] == "ledger's"


def test_a_plan_before_the_first_run_uses_no_txid(
    txbatch: Txbatch, job: str, log: PartitionedLog, engine: Engine
) -> None:
    log.take_away("b")
    for _ in range(2):
        *_, does, header, a, b = lines(txbatch("plan", job))
        assert does == ["next:", "txid", "1", "would", "be", "planned"]
        assert (header, a) == (["stream", "partition", "start", "end", "note"], ["in", "a", "0", "4"])
        assert b[:3] == ["in", "b", "unreadable:"]
    assert LedgerReader(engine).status() == []
    with open(job, "a") as file:
        file.write('print("loaded")\n')
    (row,) = json_rows(txbatch("plan", job, "--json"))
    assert row["next"]["metadata"]["streams"]["in"]["partitions"] == {"a": {"start": 0, "end": 4}}
    assert {name: row["next"][name] for name in ("action", "txid", "waits_for")} == {
        "action": "plan",
        "txid": 1,
        "waits_for": None,
    }


@pytest.fixture
def steps(txbatch: Txbatch, job: str) -> Steps:
    return open_steps(load_job(job), settings.resolve())


def planned(steps: Steps, name: str) -> Batch:
    batch = steps.initialize_transaction(Run(name))
    assert isinstance(batch, Batch)
    return batch


def test_a_plan_says_what_is_in_flight_and_what_is_gone(
    txbatch: Txbatch, job: str, log: PartitionedLog, steps: Steps
) -> None:
    planned(steps, "cli:one")
    log.delete_before("a", 6)
    told = txbatch("plan", job).stdout.splitlines()
    said = [line for line in told if "one by one" not in line and "batch by batch" not in line]
    assert said[2:4] == ["in flight: txid 1 of cli:one; it is planned", "next: txid 2 would be planned"]
    assert said[-1].split()[:5] == ["in", "a", "4", "6", "gone:"]
    planned(steps, "cli:two")
    said = txbatch("plan", job).stdout.splitlines()
    (row,) = json_rows(txbatch("plan", job, "--json"))
    assert (row["next"]["action"], row["next"]["txid"], row["next"]["waits_for"]["txid"]) == ("plan", 3, 1)
    assert "next: waits for txid 1 of cli:one; as things stand, txid 3 would be planned then" in said
    assert "next: the run goes on with txid 2 (planned)" in txbatch("plan", job, "--run-id", "two").stdout
    with steps.ledger.engine.begin() as connection:
        connection.execute(text("UPDATE txbatch.batch SET lease_until = now() - interval '1 s' WHERE txid = 1"))
    said = txbatch("plan", job).stdout.splitlines()
    assert "in flight: txid 1 of cli:one, which shows no sign of life; it is planned" in said
    assert "next: nobody looks after txid 1: it is adopted (planned)" in said
    (row,) = json_rows(txbatch("plan", job, "--json"))
    assert (row["next"]["action"], row["next"]["txid"], row["next"]["status"]) == ("finish_first", 1, "planned")
    assert row["next"]["does"] == "nobody looks after txid 1: it is adopted (planned)"


def test_a_plan_of_nothing_new_says_what_an_earlier_run_left(
    txbatch: Txbatch, job: str, log: PartitionedLog, steps: Steps
) -> None:
    planned(steps, "cli:one")
    planned(steps, "cli:two")
    told = "next: txid 1 of cli:one (planned) is finished; nothing is new: no other txid is used"
    assert told in txbatch("plan", job).stdout.splitlines()
    (row,) = json_rows(txbatch("plan", job, "--json"))
    assert (row["next"]["action"], row["next"]["txid"]) == ("finish_first", 1)


def test_a_plan_of_nothing_new_and_of_an_interval(txbatch: Txbatch, write_job: WriteJob, log: PartitionedLog) -> None:
    (log.root.parent / "empty").mkdir()
    empty = write_job("empty.py", JOB.format(root=str(log.root.parent / "empty")))
    assert "next: nothing new: no txid is used" in txbatch("plan", empty).stdout
    job = write_job("days.py", DAYS + COUNT.format(state="days"))
    assert "next: reads by time: give --interval START END" in txbatch("plan", job).stdout
    day = ("--interval", "2013-01-01T00:00:00Z", "2013-01-02T00:00:00Z")
    (row,) = json_rows(txbatch("plan", job, *day, "--param", "top=3", "--json"))
    assert row["next"]["metadata"]["parameters"] == {"top": 3}
    refused(txbatch("plan", job, "--interval", "2013-01-01T00:00Z", "2999-01-01T00:00Z"), "is not over")
    steps = open_steps(load_job(job), settings.resolve())
    steps.initialize_transaction(Run("cli:day", interval=Interval(*map(datetime.fromisoformat, day[1:]))))
    refused(
        txbatch("plan", job, "--interval", "2013-01-01T12:00Z", "2013-01-03T00:00Z"), "not covered yet: 2013-01-02T"
    )
    assert row["next"]["metadata"]["streams"]["in"]["interval"][0] == "2013-01-01T00:00:00+00:00"


SALES = """
topology = Topology("sales")
spout = IntervalSpout({root!r}, "at timestamp, shop string", time="at", options={{"header": True, "extra": "ignore"}})
topology.new_stream("in", spout).group_by("shop").persistent_aggregate(OpaqueState("sales"), sales=Count())
"""


def test_a_plan_names_the_columns_that_are_passed_over(txbatch: Txbatch, write_job: WriteJob, tmp_path: Path) -> None:
    root = tmp_path / "sales"
    root.mkdir()
    (root / "a.csv").write_text("at,shop,channel,note\n2026-01-01,x,web,\n")
    job = write_job("sales.py", SALES.format(root=str(root)))
    found = txbatch("plan", job, "--interval", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    assert found.exit_code == 0, found.output
    assert "stream 'in': a.csv has 'channel', 'note', no fields, passed over by extra='ignore'" in found.output


def test_a_plan_of_a_source_that_is_not_there(txbatch: Txbatch, write_job: WriteJob, tmp_path: Path) -> None:
    refused(
        txbatch("plan", write_job("none.py", JOB.format(root=str(tmp_path / "none")))),
        "none is not a folder that can be read; create it or mend the path",
    )


# ---- who waits for whom


def test_status_says_once_why_all_batches_of_a_job_failed(txbatch: Txbatch, steps: Steps, job: str) -> None:
    for batch, name in [(planned(steps, name), name) for name in ("cli:one", "cli:two")]:
        with pytest.raises(TimeoutError):
            steps.emit_batch(batch, Run(name), fail)
    (failed,) = [line for line in txbatch("status").stdout.splitlines() if "failed" in line]
    assert failed.startswith("log: 2 attempts, 1:1 to 2:1, failed, the last at 20")
    assert failed.endswith(": Spark was away")
    (row,) = json_rows(txbatch("status", "--json"))
    assert [each["attempt"] for each in row["failing"]] == ["1:1", "2:1"]


@pytest.mark.rule("R6")
def test_status_says_who_waits_for_whom_and_why(txbatch: Txbatch, steps: Steps, job: str) -> None:
    first, second = planned(steps, "cli:one"), planned(steps, "cli:two")
    found = steps.initialize_transaction(Run("airflow:three"))
    assert isinstance(found, Wait)
    steps.ledger.note_wait(found.batch, Run("airflow:three"))
    steps.emit_batch(second, Run("cli:two"), WithoutSpark(steps.job).emit)
    with pytest.raises(TimeoutError):
        steps.emit_batch(first, Run("cli:one"), fail)
    failed, run, batch = txbatch("status").stdout.splitlines()[-3:]
    assert failed.startswith("log: attempt 1:1 failed at 20")
    assert failed.endswith(": Spark was away")
    assert batch.startswith("log: airflow:three waits for txid 1 of cli:one (planned), left alone until 20")
    assert run.startswith("log: txid 2 of cli:two waits for txid 1 of cli:one (planned), left alone until 20")
    (row,) = json_rows(txbatch("status", "--json"))
    assert [(each["txid"], each["waits_for_txid"], each["lease_live"]) for each in row["waiting"]] == [
        (2, 1, True),
        (None, 1, True),
    ]
    steps.ledger.abort("log", 1, "why")
    steps.ledger.abort("log", 2, "why")
    planned(steps, "airflow:three")
    assert json_rows(txbatch("status", "--json"))[0]["waiting"] == []


def test_status_says_once_for_what_the_batches_of_one_run_wait(
    txbatch: Txbatch, steps: Steps, log: PartitionedLog
) -> None:
    """A run that catches up has hundreds of them, each by a name of its own; they are not stuck."""
    log.append("a", ["one", "more"] * 2)
    steps.register()
    runs = [Run(f"airflow:log:anna+00:00+{number}") for number in range(1, 4)]
    batches = steps.find_or_plan_many(runs, (), 16)
    for batch, run in zip(batches[1:], runs[1:], strict=True):
        steps.emit_batch(batch, run, WithoutSpark(steps.job).emit)
    (said,) = [line for line in txbatch("status").stdout.splitlines() if " for txid 1 of " in line]
    assert said.startswith(
        "log: txids 2 to 3 of airflow:log:anna+00:00 wait for txid 1 of airflow:log:anna+00:00+1 (planned)"
    )


def test_status_says_that_nobody_looks_after_what_is_waited_for(txbatch: Txbatch, steps: Steps) -> None:
    batch = planned(steps, "cli:one")
    steps.ledger.note_wait(batch, Run("airflow:two"))
    with steps.ledger.engine.begin() as connection:
        connection.execute(text("UPDATE txbatch.batch SET lease_until = now() - interval '1 s'"))
    said = txbatch("status", "log").stdout.splitlines()[-1]
    assert said.startswith(
        "log: airflow:two waits for txid 1 of cli:one (planned), which shows no sign of life, since 20"
    )


def fail(*_: object) -> None:
    raise TimeoutError("Spark was away")
