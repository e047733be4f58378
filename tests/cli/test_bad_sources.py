"""Sources and spouts that misbehave, as a user of the command meets them: what is told, and that nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import COUNT, refused
from click.testing import Result
from sqlalchemy import Engine, text
from without_spark import WithoutSpark

from txbatch import settings
from txbatch.core.batch.transaction import Batch, Run
from txbatch.core.errors import Incomplete
from txbatch.launch.job_file import load_job
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.spouts.partitioned_log import PartitionedLog
from txbatch.wiring import open_steps

Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
LOG = """
topology = Topology("log")
stream = topology.new_stream("in", {kind}({root!r}, max_records=4))
stream.group_by("line").persistent_aggregate(OpaqueState("lines"), count=Count())
"""
PLANS = """
class Plans(Spout, BatchCoordinator):
    fields = "word string"
    identity = {"spout": "Plans"}
    parameters = %s
    def coordinator(self):
        return self
    def emitter(self):
        raise AssertionError
    def initialize_transaction(self, txid, prev_metadata, curr_metadata):
        return %s
topology = Topology("plans")
stream = topology.new_stream("in", Plans())
"""


@pytest.fixture
def log(tmp_path: Path) -> PartitionedLog:
    return PartitionedLog(tmp_path / "log", segment_records=2)


@pytest.fixture
def log_job(write_job: WriteJob, log: PartitionedLog) -> str:
    return write_job("log.py", LOG.format(kind="PartitionedLogSpout", root=str(log.root)))


def plans(write_job: WriteJob, plan: str, parameters: str = "()") -> str:
    return write_job("plans.py", PLANS % (parameters, plan) + COUNT.format(state="plans"))


def counted(engine: Engine, columns: str = "line, count", state: str = "lines") -> dict[str, int]:
    with engine.connect() as connection:
        return dict(connection.execute(text(f"SELECT {columns} FROM report.{state}")).tuples().all())


# ---- what a coordinator returns


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ("{'at': {1, 2}}", "stream 'in': metadata is not JSON: Object of type set is not JSON serializable"),
        ("{'at': float('nan')}", "stream 'in': metadata is not JSON: Out of range float values"),
        ("{'offsets': {7: 1}}", "stream 'in': metadata is not JSON: the key 7 is no string"),
        ("{'names': 'x' * 1_000_001}", "stream 'in': metadata has 1,000,013 bytes; at most 1,000,000: plan smaller"),
    ],
)
def test_metadata_that_cannot_be_kept(
    txbatch: Txbatch, write_job: WriteJob, engine: Engine, plan: str, told: str
) -> None:
    refused(txbatch("run", plans(write_job, plan)), told)
    assert LedgerReader(engine).batches("plans") == []


# ---- parameters that choose data (R2)


def test_the_same_run_with_other_parameters(txbatch: Txbatch, write_job: WriteJob, engine: Engine) -> None:
    job = plans(write_job, "{'start': 0, 'end': curr_metadata['parameters'].get('top', 9)}", "('top', 'mode')")
    asked = ("run", job, "--run-id", "mine", "--param")
    refused(txbatch(*asked, "top=5"), "AssertionError")  # planned; this job cannot be emitted
    refused(
        txbatch(*asked, "top=6"),
        'plans: cli:mine asks for txid 1 with parameters {"top":6}, it was planned with {"top":5}; run txid 1 with the '
        "planned parameters, or start a new run",
    )
    refused(txbatch(*asked, "top=5", "--param", "mode=fast"), 'with parameters {"mode":"fast","top":5}')
    refused(txbatch(*asked, "top=5"), "AssertionError")
    refused(txbatch("run", job), "AssertionError")  # it finishes what was begun, with the parameters it was begun with
    with engine.connect() as connection:
        (stored,) = connection.execute(text("SELECT metadata FROM txbatch.batch")).scalars()
    assert stored == {"format": 2, "streams": {"in": {"plan": {"start": 0, "end": 5}}}, "parameters": {"top": 5}}


@pytest.mark.parametrize(
    ("given", "told"),
    [("bottom=1", "has no parameter 'bottom'; its spouts declare top"), ("top", "'top' is no parameter; write NAME=")],
)
def test_a_parameter_that_is_none(txbatch: Txbatch, write_job: WriteJob, given: str, told: str) -> None:
    result = txbatch("run", plans(write_job, "None", "('top',)"), "--param", given)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


# ---- what a source does between two batches, or within one


def test_records_that_are_gone_are_given_up_by_a_decision_only(
    txbatch: Txbatch, log_job: str, log: PartitionedLog, engine: Engine
) -> None:
    log.append("a", ["a0", "a1", "a2", "a3"])
    log.append("b", ["b0"])
    assert txbatch("run", log_job).exit_code == 0
    log.append("a", [f"a{n}" for n in range(4, 10)])
    log.append("b", ["b1"])
    assert log.delete_before("a", 7) == 6
    for _ in range(2):
        result = txbatch("run", log_job)
        refused(
            result,
            f"records 4 to 6 of partition 'a' are gone: {log.root}/a keeps 6 to 10; restore them and abort the batch: the "
            "next plan reads them; or, if they are lost for good, give them up",
        )
        assert "  Next: txbatch abort log 2 --why 'after TX205'" in result.stderr.splitlines()
    assert counted(engine) == {"a0": 1, "a1": 1, "a2": 1, "a3": 1, "b0": 1}
    assert [row["status"] for row in LedgerReader(engine).attempts("log")] == ["failed", "failed", "committed"]
    assert txbatch("abort", "log", "2", "--skip", "--why", "retention was too short").exit_code == 0
    assert txbatch("run", log_job, "--until-idle").exit_code == 0
    read = ("a0", "a1", "a2", "a3", "b0", "b1", "a6", "a7", "a8", "a9")  # of b nothing was given up
    assert counted(engine) == dict.fromkeys(read, 1)
    given_up = [row for row in LedgerReader(engine).partitions("log") if row["status"] == "skipped"]
    assert [(row["partition"], row["start_offset"], row["end_offset"], row["reason"]) for row in given_up] == [
        ("a", "4", "6", "retention was too short")
    ]
    told = txbatch("batches", "log").stdout.splitlines()
    assert "3 counts as read, its records are given up: retention was too short" in told
    assert "2 aborted: retention was too short" in told


def test_records_that_are_gone_are_read_when_they_were_restored(
    txbatch: Txbatch, log_job: str, log: PartitionedLog, engine: Engine
) -> None:
    log.append("a", ["a0", "a1", "a2", "a3"])
    assert txbatch("run", log_job).exit_code == 0
    log.append("a", ["a4", "a5", "a6"])
    backup = {path.name: path.read_text() for path in log.segments("a")}
    log.delete_before("a", 6)
    refused(txbatch("run", log_job), "records 4 to 6 of partition 'a' are gone")
    for name, content in backup.items():
        (log.root / "a" / name).write_text(content)
    assert txbatch("abort", "log", "2", "--why", "restored").exit_code == 0
    assert txbatch("run", log_job).exit_code == 0
    assert counted(engine) == {f"a{n}": 1 for n in range(7)}


def test_records_that_go_between_plan_and_read(
    txbatch: Txbatch, log_job: str, log: PartitionedLog, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append("a", ["a0", "a1", "a2"])
    monkeypatch.setenv("TXBATCH_FAILPOINTS", "initialize.planned=raise")
    refused(txbatch("run", log_job), "FailpointReached: initialize.planned")
    monkeypatch.delenv("TXBATCH_FAILPOINTS")
    log.delete_before("a", 2)
    refused(
        txbatch("run", log_job),
        "records 0 to 3 of partition 'a' are gone since they were planned; restore them, or abort",
    )
    assert counted(engine) == {}


def test_offsets_that_went_backwards(txbatch: Txbatch, log_job: str, log: PartitionedLog, engine: Engine) -> None:
    log.append("a", ["a0", "a1", "a2", "a3"])
    assert txbatch("run", log_job).exit_code == 0
    for path in log.segments("a")[1:]:
        path.unlink()
    refused(
        txbatch("run", log_job),
        "PartitionedLogSpout: partition 'a' went backwards: its records end at 2, those from 4 are next; the source was cut "
        "off or made anew: restore it, or read it with a new topology",
    )
    assert [row["txid"] for row in LedgerReader(engine).batches("log")] == [1]


@pytest.mark.rule("R7")
def test_other_records_for_the_same_metadata(
    txbatch: Txbatch, home: Path, log_job: str, log: PartitionedLog, engine: Engine
) -> None:
    """The run's emit_batch is cleared after it had recorded its manifest; a line was edited in place meanwhile."""
    log.append("a", ["a0", "a1"])
    log.append("b", ["b0", "b1"])
    steps = open_steps(load_job(log_job), settings.resolve())
    run, batch = Run("run"), steps.initialize_transaction(Run("run"))
    assert isinstance(batch, Batch)

    steps.emit_batch(batch, run, WithoutSpark(steps.job).emit)
    segment = log.segments("b")[0]
    segment.write_text(segment.read_text().replace("b1", "B1"))
    with pytest.raises(
        Incomplete, match=r"log 1:2: partition 'b' was read differently: attempt 1:1 found ReadPartition\(records=2, .*"
    ):
        steps.emit_batch(batch, run, WithoutSpark(steps.job).emit)
    segment.write_text(segment.read_text().replace("B1", "b1"))
    steps.commit(steps.emit_batch(batch, run, WithoutSpark(steps.job).emit))
    assert counted(engine) == {"a0": 1, "a1": 1, "b0": 1, "b1": 1}


def test_another_source_for_the_same_topology(
    txbatch: Txbatch, write_job: WriteJob, log_job: str, log: PartitionedLog
) -> None:
    log.append("a", ["a0"])
    assert txbatch("run", log_job).exit_code == 0
    moved = write_job("log.py", LOG.format(kind="PartitionedLogSpout", root=f"{log.root}-moved"))
    refused(txbatch("run", moved), "stream 'in' reads {")
    opaque = write_job("log.py", LOG.format(kind="OpaquePartitionedLogSpout", root=str(log.root)))
    refused(txbatch("run", opaque), "but its batches were read from {")
    assert (
        txbatch("run", write_job("log.py", LOG.format(kind="PartitionedLogSpout", root=str(log.root)))).exit_code == 0
    )


# ---- a spout that does not take success (R8)

DEAF = """
class Deaf(FixedBatchSpout):
    def success(self, txid):
        if not os.path.exists({mended!r}):
            raise KeyError("gone")
        with open({mended!r}, "a") as file:
            file.write(f"{{txid}} ")
topology = Topology("deaf")
stream = topology.new_stream("in", Deaf("word string", 1, "a", "b", "a"))
"""


@pytest.mark.rule("R8")
def test_a_success_that_raises_is_called_again_and_keeps_no_batch_back(
    txbatch: Txbatch, write_job: WriteJob, engine: Engine, tmp_path: Path
) -> None:
    mended = tmp_path / "mended"
    job = write_job("deaf.py", "import os\n" + DEAF.format(mended=str(mended)) + COUNT.format(state="deaf"))
    for txid in (1, 2):
        refused(
            txbatch("run", job),
            f"txbatch: TX209 (try again): deaf: txid {txid} is committed; success() of stream 'in' raised KeyError: 'gone'; mend "
            "the spout, and",
        )
        assert sum(counted(engine, "word, count", "deaf").values()) == txid
    mended.touch()
    assert txbatch("run", job).exit_code == 0
    assert mended.read_text() == "1 2 3 "
    assert counted(engine, "word, count", "deaf") == {"a": 2, "b": 1}


# ---- intervals (R2)

DAYS = """
class Days(Spout, BatchCoordinator):
    fields = "word string"
    by_interval = True
    identity = {"spout": "Days"}
    def coordinator(self):
        return self
    def emitter(self):
        raise AssertionError
    def batch(self, plan):
        return [("a",)]
    def initialize_transaction(self, txid, prev_metadata, curr_metadata):
        return curr_metadata
topology = Topology("days")
stream = topology.new_stream("in", Days())
"""


def days(start: int, end: int, year: int = 2013) -> tuple[str, ...]:
    return ("--interval", f"{year}-01-{start:02}T00:00:00Z", f"{year}-01-{end:02}T00:00:00Z")


@pytest.mark.rule("R2")
def test_intervals_that_cannot_be(txbatch: Txbatch, write_job: WriteJob, engine: Engine) -> None:
    job = write_job("days.py", DAYS + COUNT.format(state="days"))
    assert txbatch("run", job, *days(2, 4)).exit_code == 0
    refused(
        txbatch("run", job, *days(3, 6)),
        "days: interval 2013-01-03T00:00:00+00:00/2013-01-06T00:00:00+00:00 overlaps 2013-01-02T00:00:00+00:00/"
        "2013-01-04T00:00:00+00:00; not covered yet: 2013-01-04T00:00:00+00:00/2013-01-06T00:00:00+00:00",
    )
    refused(txbatch("run", job, *days(1, 9, 2999)), "is not over, it is")
    refused(txbatch("run", job), "stream 'in' reads by time, and run 'cli:")
    backwards = txbatch("run", job, *days(4, 2))
    assert (backwards.exit_code, "give start before end" in backwards.stderr) == (2, True)
    assert txbatch("run", job, *days(2, 4)).exit_code == 0  # already committed
    assert txbatch("run", job, *days(6, 7)).exit_code == 0
    assert [row["txid"] for row in LedgerReader(engine).batches("days")] == [2, 1]
    assert LedgerReader(engine).status("days")[0]["gaps"] == 1
    status = txbatch("status", "days").stdout
    assert "days: 2013-01-04 00:00:00 to 2013-01-06 00:00:00 is not counted: no batch has it" in status
    assert txbatch("run", job, *days(4, 6)).exit_code == 0
    assert LedgerReader(engine).status("days")[0]["gaps"] == 0
