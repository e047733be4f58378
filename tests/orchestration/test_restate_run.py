"""A DAG run that counts batches again, task by task: in a process of its own, without a running Airflow or Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from two_dags import TwoDags
from without_spark import WithoutSpark

from txbatch import settings
from txbatch.core.batch.transaction import Interval
from txbatch.launch.job_file import load_job
from txbatch.wiring import open_runner

DAY = Interval(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC))
PROGRAM = """
import json
from dag_tasks import TASKS, done, form, given
from without_spark import emit_without_spark
from txbatch.orchestration.operators import EmitBatchOperator

words, days, source = given()
EmitBatchOperator.submit = lambda self, folder, assignment: emit_without_spark(self.job, folder, assignment)

def restated(run_id, restate, why, tasks=TASKS, dag=words):
    return done(dag, run_id, tasks, restate=restate, why=why)

def goes_on():
    restated("r", "1", "wrong", TASKS[:1], days)
    source.write_text(source.read_text() + " 2024-01-02T11:00Z,b")
    return [restated("r", "1", "wrong", dag=days) for _ in range(2)]

print(json.dumps({
    "left_out": restated("r", "3, 1 2", "wrong", TASKS[:2]),
    "retried": restated("r", "3, 1 2", "wrong"),
    "success_alone": restated("r", "3, 1 2", "wrong", ("commit", "success")),
    "cleared": restated("r", "3, 1 2", "wrong"),
    "by_its_restate": restated("s", "4", "wrong"),
    "wrong": [restated("t", *each)["told"] for each in
              (("9", "x"), ("1", " "), ("soon", "x"), ("1", None), ("2013-01-03/2013-01-05", "x"), ("2013-01-03/", "x"))],
    "ordinary": restated("u", " ", None),
    "goes_on": goes_on(),
    **form(words),
}))
"""


@pytest.fixture
def made(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the tasks of some runs said; three batches were committed before."""
    dags = TwoDags.written(tmp_path, '"@daily"', "2024-01-01T10:00Z,a")
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("txbatch.wiring.Application", WithoutSpark)
    with open_runner(load_job(str(dags.job("words"))), settings.resolve()) as runner:
        assert len(list(runner.run(until_idle=True))) == 3
    with open_runner(load_job(str(dags.job("days"))), settings.resolve()) as runner:
        assert len(list(runner.run_each([DAY]))) == 1
    dags.log.append("0", ["c"])
    return dags.told(PROGRAM, postgres_url)


def test_a_run_counts_each_position_again_once_and_says_so(made: dict[str, Any]) -> None:
    lines = [f"txid {txid} restates txid {position}: 1 record, 1 key" for txid, position in ((4, 1), (5, 2), (6, 3))]
    note = "; ".join(lines)
    assert made["left_out"]["note"] is None
    event = {"topology": "words", "txid": 4, "txids": [4, 5, 6], "restates": [1, 2, 3]}
    assert (made["retried"]["note"], made["retried"]["extra"], made["retried"]["told"]) == (note, event, [])
    already = "already committed as txid 4; nothing is changed"
    assert made["success_alone"]["told"] == [already]
    assert made["cleared"]["told"] == [already]
    assert made["cleared"]["note"] == f"already committed: {note}; nothing is changed"
    assert made["by_its_restate"]["note"] == "txid 7 restates txid 1: 1 record, 1 key"
    assert made["ordinary"]["note"] == "txid 8: 1 record, 1 key, 1 attempt", "the next one goes on"
    for told, why in zip(
        made["wrong"],
        (
            "TX401 (no retry helps): topology 'words' has no txid 9",
            "TX608 (no retry helps): say why it is counted again",
            "TX105 (no retry helps): restate 'soon' names nothing that could be counted again",
            "TX608 (no retry helps): say why it is counted again",
            "TX105 (no retry helps): words does not read by time: name txids",
            "TX105 (no retry helps): restate '2013-01-03/' names nothing that could be counted again",
        ),
        strict=True,
    ):
        assert told[0].startswith(why)
    assert "the run counts these committed batches again" in made["params"]["restate"]
    assert "To count a committed batch again" in made["page"]
    grown = "; of its source differs since: one (grown from 19 to 39 bytes); "
    grown += "its interval may have other records now: `txbatch verify days 1` tells"
    counted = "txid 2 restates txid 1: 1 record, 1 key"
    went_on, cleared = (each["note"] for each in made["goes_on"])
    assert went_on == f"{counted}{grown}"
    assert cleared == f"already committed: {counted}; nothing is changed{grown}"


TOGETHER = """
import json
from dag_tasks import TASKS, done, given
from without_spark import WithoutSpark, emit_without_spark
from txbatch.core.errors import TransientError
from txbatch.orchestration.operators import EmitBatchOperator

words, days, source = given()
jobs, alone, fails = [], [], []

class OneJob(WithoutSpark):
    __enter__ = lambda self: self
    __exit__ = lambda self, *_: None

    def emit(self, folder, assignment):
        if assignment.attempt.txid in fails:
            raise TransientError("it fails")
        super().emit(folder, assignment)

    def emit_bulk(self, attempts):
        jobs.append([assignment.attempt.txid for _, assignment in attempts])
        super().emit_bulk(attempts)

def submit(self, folder, assignment):
    alone.append(assignment.attempt.txid)
    OneJob(self.job).emit(folder, assignment)

EmitBatchOperator.submit, EmitBatchOperator._application = submit, lambda self: OneJob(self.job)

def restated(run_id, tasks=TASKS):
    return done(days, run_id, tasks, restate="2024-01-01/2024-01-04", why="wrong")

whole = restated("r")
fails.append(8)
failed = restated("s")
fails.clear()
print(json.dumps({"whole": whole, "failed": failed, "retried": restated("s", TASKS[2:]), "jobs": jobs, "alone": alone}))
"""


def test_many_batches_are_read_again_by_one_job(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that fails is tried again by itself when it is its turn; those behind it stay emitted."""
    three = " ".join(f"2024-01-0{day}T10:00Z,{word}" for day, word in enumerate("abc", 1))
    dags = TwoDags.written(tmp_path, '"@daily"', three)
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("txbatch.wiring.Application", WithoutSpark)
    with open_runner(load_job(str(dags.job("days"))), settings.resolve()) as runner:
        days = [Interval(datetime(2024, 1, n, tzinfo=UTC), datetime(2024, 1, n + 1, tzinfo=UTC)) for n in (1, 2, 3)]
        assert len(list(runner.run_each(days))) == 3
    made = dags.told(TOGETHER, postgres_url)
    assert made["jobs"] == [[4, 5, 6], [7, 8, 9]]
    assert made["whole"]["told"] == made["retried"]["told"] == []
    assert made["failed"]["told"] == ["TX002 (try again): it fails"]
    assert made["alone"] == [8, 8]
    assert made["whole"]["extra"]["txids"] == [4, 5, 6]
    assert made["retried"]["extra"] == {"topology": "days", "txid": 7, "txids": [7, 8, 9], "restates": [1, 2, 3]}
