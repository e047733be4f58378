"""`txbatch run` of many batches emits them by one job, on a real ledger; `txbatch plan` says why those of a job are not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from cli_support import COUNT, DAYS, refused, rows
from click.testing import Result
from sqlalchemy import Engine, text
from without_spark import WithoutSpark

from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import TransientError
from txbatch.storage.staging import AttemptFolder

Txbatch = Callable[..., Result]
CALL = ("--interval", "2026-01-01T00Z", "2026-01-06T00Z", "--cron", "0 0 * * *")


class Together(WithoutSpark):
    """Notes what is emitted together, and what alone; fails at some txids, the first time or always."""

    together: list[list[str]]
    alone: list[str]
    failing: set[str]
    names: list[str]
    engine: Engine

    def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        self.alone.append(str(assignment.attempt))
        if str(assignment.attempt) in self.failing:
            raise TransientError(f"{assignment.attempt} failed")
        super().emit(folder, assignment)

    def emit_bulk(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        self.together.append([str(assignment.attempt) for _, assignment in attempts])
        with self.engine.connect() as connection:
            self.names += connection.execute(text("SELECT name FROM txbatch.running")).scalars()
        before = list(self.alone)
        super().emit_bulk(attempts)
        self.alone[:] = before


@pytest.fixture
def spark(txbatch: Txbatch, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> type[Together]:
    class Spark(Together):
        together, alone, failing, names = [], [], set(), []

    Spark.engine = engine
    monkeypatch.setattr("txbatch.wiring.Application", Spark)
    return Spark


@pytest.fixture
def job(tmp_path: Path, write_job: Callable[[str, str], str]) -> str:
    root = tmp_path / "in"
    root.mkdir()
    hours = [f"2026-01-0{day}T0{hour}:00+00:00,hour{hour}" for day in range(1, 6) for hour in range(day)]
    (root / "a").write_text("\n".join(hours) + "\n")
    return write_job("days.py", DAYS.format(root=str(root)))


@pytest.mark.rule("R5", "R6", "R10")
def test_days_are_emitted_by_one_job_and_committed_one_by_one(
    txbatch: Txbatch, spark: type[Together], job: str, engine: Engine
) -> None:
    """Each is an attempt of its own run; one name is held for all of them."""
    done = rows(txbatch("run", job, *CALL, "--json"))
    assert [each["txid"] for each in done] == [1, 2, 3, 4, 5]
    assert spark.together == [[f"{txid}:1" for txid in range(1, 6)]]
    assert spark.alone == []
    runs = {each["run"] for each in done}
    assert len(runs) == 5
    assert {run.rpartition("+")[0] for run in runs} == set(spark.names)
    with engine.connect() as connection:
        expected = dict(connection.execute(text("SELECT txid, records FROM report.batches")).tuples().all())
    assert expected == {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}
    with engine.connect() as connection:
        hours = dict(connection.execute(text('SELECT name, "count" FROM report.days')).tuples().all())
    assert hours == {"hour0": 5, "hour1": 4, "hour2": 3, "hour3": 2, "hour4": 1}


@pytest.mark.rule("R6", "R16")
def test_one_that_fails_is_told_and_the_next_call_goes_on_without_emitting_the_others(
    txbatch: Txbatch, spark: type[Together], job: str, caplog: pytest.LogCaptureFixture
) -> None:
    spark.failing |= {"3:1", "3:2"}
    refused(txbatch("run", job, *CALL), "3:2 failed")
    assert (
        'behind txid 3 stay open: txids 4 to 5; mend it, or `txbatch abort days 3 --why "..."`, and call this again'
        in caplog.text
    )
    assert [each["status"] for each in rows(txbatch("batches", "days", "--json"))][::-1] == [
        *["committed"] * 2,
        "planned",
        *["emitted"] * 2,
    ]
    done = rows(txbatch("run", job, *CALL, "--json"))
    assert {each["txid"] for each in done} == {1, 2, 3, 4, 5}
    assert spark.alone == ["3:2", "3:3"]
    assert len(spark.together) == 1
    attempts = {each["attempt"]: each["error"] for each in rows(txbatch("batches", "days", "--attempts", "--json"))}
    assert (attempts["3:1"], attempts["3:2"]) == ("TX002 (try again): 3:1 failed", "TX002 (try again): 3:2 failed")


def test_plan_says_why_batches_are_emitted_one_by_one(
    txbatch: Txbatch, job: str, write_job: Callable[[str, str], str]
) -> None:
    together = txbatch("plan", job, "--interval", "2026-01-01T00Z", "2026-01-02T00Z", "--json")
    assert json.loads(together.stdout)[0]["one_by_one"] is None
    fixed = 'topology = Topology("f")\nstream = topology.new_stream("in", FixedBatchSpout("word string", 1, ("a")))\n'
    alone = write_job("alone.py", fixed + COUNT.format(state="f"))
    why = "stream 'in': FixedBatchSpout reads batch by batch"
    assert json.loads(txbatch("plan", alone, "--json").stdout)[0]["one_by_one"] == why


@pytest.mark.rule("R23")
def test_a_rebuild_emits_by_one_job_what_it_counts_one_by_one(
    txbatch: Txbatch, spark: type[Together], job: str, engine: Engine
) -> None:
    """What fails there is emitted again by itself."""
    rows(txbatch("run", job, *CALL, "--json"))
    spark.failing |= {"3:0"}
    (done,) = rows(txbatch("rebuild", job, "--why", "all of it", "--json"))
    assert (done["status"], done["counted"], done["swapped_txid"]) == ("swapped", 5, 5)
    assert spark.together[1:] == [[f"{txid}:0" for txid in range(1, 6)]]
    assert spark.alone == ["3:1"]
    with engine.connect() as connection:
        hours = dict(connection.execute(text('SELECT name, "count" FROM report.days')).tuples().all())
    assert hours == {"hour0": 5, "hour1": 4, "hour2": 3, "hour3": 2, "hour4": 1}


@pytest.mark.rule("R17")
def test_restates_of_a_call_are_emitted_by_one_job(
    txbatch: Txbatch, spark: type[Together], job: str, engine: Engine, tmp_path: Path
) -> None:
    rows(txbatch("run", job, *CALL, "--json"))
    with (tmp_path / "in" / "a").open("a") as file:
        file.write("2026-01-02T05:00:00+00:00,late\n2026-01-04T05:00:00+00:00,late\n")
    done = rows(txbatch("restate", "days", "2", "3", "4", "--why", "late files", "--json"))
    assert [(each["position"], each["txid"]) for each in done] == [(2, 6), (3, 7), (4, 8)]
    assert spark.together[1:] == [["6:1", "7:1", "8:1"]]
    assert spark.alone == []
    with engine.connect() as connection:
        late = connection.execute(text("SELECT count, txid FROM report.days WHERE name = 'late'")).tuples().all()
    assert late == [(2, 8)]


@pytest.mark.rule("R16", "R17")
def test_restates_behind_one_that_fails_are_told_and_the_same_call_goes_on_with_them(
    txbatch: Txbatch, spark: type[Together], job: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when that one is given up; nothing is emitted again."""
    rows(txbatch("run", job, *CALL, "--json"))
    asked = ("restate", "days", "1", "2", "3", "--why", "late files")
    spark.failing |= {"7:1", "7:2"}
    refused(txbatch(*asked), "7:2 failed")
    assert (
        'behind txid 7 stay open: txid 8; mend it, or `txbatch abort days 7 --why "..."`, and call this again'
        in caplog.text
    )
    assert txbatch("abort", "days", "7", "--why", "bad").exit_code == 0
    done = rows(txbatch(*asked, "--json"))
    assert {each["txid"]: each["position"] for each in done} == {6: 1, 8: 3, 9: 2}
    assert len(spark.together) == 2
    assert spark.alone == ["7:2", "9:1"]


@pytest.mark.rule("R6", "R10")
def test_many_days_go_in_trains(
    txbatch: Txbatch, spark: type[Together], job: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is planned and begins while the first is in flight: more than max_pending, which is 1."""
    monkeypatch.setattr("txbatch.core.protocol.bulk.BATCHES_FIRST", 2)
    open_ = list[int]()

    def begin(self: Together, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        with self.engine.connect() as connection:
            found = connection.execute(
                text("SELECT count(*) FROM txbatch.batch WHERE status IN ('planned', 'emitted')")
            )
            open_.append(found.scalar_one())
        self.emit_bulk(attempts)

    monkeypatch.setattr(Together, "begin", begin)
    done = rows(txbatch("run", job, *CALL, "--json"))
    assert [each["txid"] for each in done] == [1, 2, 3, 4, 5]
    assert spark.together == [["1:1", "2:1"], ["3:1", "4:1", "5:1"]]
    assert (spark.alone, open_) == ([], [2, 5])
    with engine.connect() as connection:
        hours = dict(connection.execute(text('SELECT name, "count" FROM report.days')).tuples().all())
    assert hours == {"hour0": 5, "hour1": 4, "hour2": 3, "hour3": 2, "hour4": 1}
