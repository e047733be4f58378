"""DAG runs that give a batch up, or plan first, task by task: in a process of its own, without a running Airflow or Spark."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from two_dags import TwoDags
from without_spark import WithoutSpark

from txbatch import settings
from txbatch.core.batch.transaction import Batch, BatchStatus, Interval
from txbatch.launch.job_file import load_job
from txbatch.orchestration.form import giving_up
from txbatch.run.giving_up import GivenUp
from txbatch.wiring import open_runner

DAY = Interval(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC))
BEGIN = """
import json, sys
from pathlib import Path
from sqlalchemy import text
from dag_tasks import TASKS, done, form, given
from without_spark import WithoutSpark, emit_without_spark
from txbatch.spouts.partitioned_log import PartitionedLog
from txbatch.orchestration.airflow import open_steps
from txbatch.orchestration.operators import EmitBatchOperator

words, days, source = given()
EmitBatchOperator.submit = lambda self, folder, assignment: emit_without_spark(self.job, folder, assignment)
EmitBatchOperator._application = lambda self: WithoutSpark(self.job)

def stored():
    with open_steps(words.get_task("commit").job).ledger.engine.connect() as connection:
        tables = ("txbatch.topology", "txbatch.batch", "txbatch.attempt", "state.words", "contribution.words")
        return [sorted(map(repr, connection.execute(text(f"SELECT * FROM {each}")))) for each in tables]

def told(run_id, tasks=TASKS, **params):
    found = done(words, run_id, tasks, **params)
    return [found["note"], found["told"]]
"""
GIVE_UP = (
    BEGIN
    + """
damaged = {"abort": 1, "why": "a damaged file"}
skip = {"abort": 3, "abort_skip": True, "why": "a poison record"}
part = {"abort": 5, "abort_skip": True, "abort_partition": "1", "why": "of the south"}

def twice(run_id, **params):
    first = told(run_id, **params)
    before = stored()
    again = [told(run_id, **params), *(told(run_id, (task,), **params) for task in TASKS[1:])]
    return [first, again, stored() == before]

found = {"reads": told("first", TASKS[:2]), "freed": twice("giver", **damaged), "freed by another": told("other", **damaged)}
found["anew"] = told("first")
found["second"] = told("second", TASKS[:2])
found["skipped"] = twice("skipper", **skip)
found["skipped by another"] = told("another", **skip)
PartitionedLog(Path(sys.argv[4])).append("1", ["c"])
found["third"] = told("third", TASKS[:2])
found["part"] = twice("south", **part)
found["rest"] = told("third")
found["wrong"] = [told("wrong", abort=txid, why=why) for txid, why in ((2, "x"), (99, "x"), (1, None), (1, " "))]
with open_steps(words.get_task("commit").job).ledger.engine.connect() as connection:
    batches = connection.execute(text("SELECT txid, kind, status, reason FROM txbatch.batch ORDER BY txid"))
    found["batches"] = [list(each) for each in batches]
    found["state"] = [list(each) for each in connection.execute(text("SELECT line, count FROM report.words ORDER BY 1"))]
print(json.dumps(found))
"""
)
PLAN = (
    BEGIN
    + """
before = stored()
ask = {"restate": "2, 1", "plan_only": True}
planned = done(words, "plan", **ask)
found = {
    "planned": planned, "cleared": done(words, "plan", **ask)["note"], "unchanged": stored() == before,
    "alone": [told("plan", (task,), **ask) for task in TASKS[2:]],
    "first task": told("plan", TASKS[:1], **ask),
    "wrong": told("wrong", restate="9", plan_only=True)[1],
}
source.write_text(source.read_text() + " 2024-01-01T11:00Z,b")
found["of days"] = done(days, "plan", restate="2024-01-01/2024-01-02", plan_only=True)
found["left"] = sorted(str(each) for each in Path(sys.argv[4]).rglob("*") if "verified" in str(each) and each.is_file())
print(json.dumps(found))
"""
)


@pytest.fixture
def dags(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> TwoDags:
    written = TwoDags.written(tmp_path, '"@daily"', "2024-01-01T10:00Z,a")
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("txbatch.wiring.Application", WithoutSpark)
    return written


@pytest.mark.parametrize(
    ("status", "reason", "given_up"),
    [
        (BatchStatus.ABORTED, "x (run a)", []),
        (BatchStatus.PLANNED, None, [7]),  # txid 3 was given up by the same run, for the same reason
        (BatchStatus.ABORTED, "another one's", [7]),  # refused by the ledger
    ],
)
def test_a_run_finds_its_own_deed_by_the_txid_too(
    status: BatchStatus, reason: str | None, given_up: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = list[int]()

    def give_up(ledger: object, topology: str, txid: int, why: str, **_: Any) -> GivenUp:
        done.append(txid)
        return GivenUp(topology, txid, why, txid + 1)

    monkeypatch.setattr(giving_up, "give_up", give_up)
    reader = SimpleNamespace(given_up_by=lambda topology, reason: 4)
    monkeypatch.setattr("txbatch.wiring.reader_beside", lambda steps: reader)
    steps: Any = SimpleNamespace(
        job=SimpleNamespace(topology=SimpleNamespace(name="words")),
        ledger=SimpleNamespace(batch=lambda topology, txid: SimpleNamespace(status=status, reason=reason)),
        concerning=lambda txid: nullcontext(),
    )
    params = {"abort": 7, "abort_skip": True, "why": "x"}
    context: Any = {"params": params, "dag_run": SimpleNamespace(run_id="a")}
    assert ("nothing is changed" in giving_up.run(steps, context)) is (given_up == [])
    assert done == given_up


def test_a_run_gives_up_a_batch_once_and_says_what_becomes_of_its_records(dags: TwoDags, postgres_url: str) -> None:
    """Retried and cleared it finds its own deed; the records are planned anew, or counted as read."""
    made = dags.told(GIVE_UP, postgres_url, str(dags.folder / "log"))
    nothing = [None, ["the run gives a batch up: nothing is counted"]]

    def told(line: str) -> list[Any]:
        return [line, [line]]

    worked = "airflow:words:{} was at work on txid {}; it fails, and its next try plans anew"
    first, (again, *others), unchanged = made["freed"]
    free = "txid 1 is aborted, and its records are free: the next run plans them anew"
    assert first == told(f"{free}; {worked.format('first', 1)}")
    before = "txid 1 was aborted before; nothing is changed: a damaged file (anna, run giver)"
    assert again == told(before)
    assert made["freed by another"] == told(before)
    assert (others, unchanged) == ([nothing] * 3, True)

    first, (again, *others), unchanged = made["skipped"]
    assert first == told(f"txid 3 is given up: txid 4 counts its records as read; {worked.format('second', 3)}")
    reason = "a poison record (anna, run skipper)"
    assert again == told(
        f"txid 3 was aborted before, and its records were given up by txid 4; nothing is changed: {reason}"
    )
    assert (others, unchanged) == ([nothing] * 3, True)
    assert made["skipped by another"][1][0].startswith("TX407 (no retry helps): words: txid 3 ")

    first, (again, *others), unchanged = made["part"]
    assert first[0].startswith(
        "txid 5 is given up in part: txid 6 counts its records of partition '1' as read, the next run plans the rest anew"
    )
    assert again[0].startswith(
        "txid 5 was aborted before, and its records were given up by txid 6; nothing is changed: "
    )
    assert (others, unchanged) == ([nothing] * 3, True)

    codes = ["TX411", "TX401", "TX608", "TX608"]
    assert [each[1][0].startswith(code) for each, code in zip(made["wrong"], codes, strict=True)] == [True] * 4
    assert made["wrong"][0][0].startswith("failed: TX411 txid 2 is committed, and what is committed stays.")
    assert made["batches"] == [
        [1, "ordinary", "aborted", "a damaged file (anna, run giver)"],
        [2, "ordinary", "committed", None],
        [3, "ordinary", "aborted", reason],
        [4, "skip", "committed", reason],
        [5, "ordinary", "aborted", "of the south (anna, run south)"],
        [6, "skip", "committed", "of the south (anna, run south)"],
        [7, "ordinary", "committed", None],
    ]
    assert made["state"] == [["a", 2]], "b was given up, c is of the partition given up"


def test_what_becomes_of_an_interval() -> None:
    batch = Batch("days", 8, BatchStatus.PLANNED, {}, f"interval:{DAY}", lease_run="airflow:days:r")
    told = "txid 8 is aborted, and its interval is free: clear the run of the interval, or catch up"
    assert giving_up.describe(GivenUp("days", 8, "x"), batch) == told


def test_a_run_that_plans_first_stores_nothing_and_says_what_would_change(dags: TwoDags, postgres_url: str) -> None:
    with open_runner(load_job(str(dags.job("words"))), settings.resolve()) as runner:
        assert len(list(runner.run(until_idle=True))) == 3
    with open_runner(load_job(str(dags.job("days"))), settings.resolve()) as runner:
        assert len(list(runner.run_each([DAY]))) == 1
    made = dags.told(PLAN, postgres_url, str(dags.folder / "home"))
    first = [f"txid {txid}, at position {txid}, would be counted again: 1 records, 1 before" for txid in (1, 2)]
    planned = made["planned"]
    assert [line in planned["note"] for line in first] == [True, True]
    assert planned["note"].startswith(first[0])
    assert planned["told"] == ["the run plans first: nothing is stored"], "of the task commit"
    assert [row["position"] for row in planned["plan"]] == [1, 2]
    (state,) = planned["plan"][0]["states"]
    assert (state["state"], state["keys_touched"], state["keys_changed"], state["examples"]) == ("words", 1, 0, [])
    assert (made["cleared"], made["unchanged"]) == (planned["note"], True)
    assert made["alone"] == [[None, ["the run plans first: nothing is stored"]]] * 2
    assert made["first task"] == [None, []]
    assert made["wrong"][0].startswith("TX401 (no retry helps): topology 'words' has no txid 9")
    of_days = made["of days"]
    assert "txid 1, at position 1, would be counted again: 2 records, 1 before" in of_days["note"]
    (state,) = of_days["plan"][0]["states"]
    assert state["keys_changed"] == 1
    assert made["left"] == [], "what was read beside is removed"
