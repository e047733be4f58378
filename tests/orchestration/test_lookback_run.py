"""A DAG run that counts what came late again, task by task: in a process of its own, without a running Airflow or Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from late_days import job
from two_dags import TwoDags

from txbatch.launch.job_file import LAST_LINES

PROGRAM = """
import json
from dag_tasks import TASKS, done, given
from without_spark import WithoutSpark, emit_without_spark
from txbatch.core.errors import Unavailable
from txbatch.orchestration.operators import EmitBatchOperator

words, days, source = given()
fails = []

def submit(self, folder, assignment):
    if assignment.position in fails and assignment.attempt.txid != assignment.position:
        raise Unavailable("away")
    emit_without_spark(self.job, folder, assignment)

EmitBatchOperator.submit, EmitBatchOperator._application = submit, lambda self: OneJob(self.job)

class OneJob(WithoutSpark):
    __enter__ = lambda self: self
    __exit__ = lambda self, *_: None
    close = lambda self: None

def counted(day, tasks=TASKS):
    return done(days, f"day {day}", tasks, interval=(f"2024-01-0{day}", f"2024-01-0{day + 1}"))

def comes(name, *lines):
    with (source.parent / name).open("a") as file:
        file.writelines(f"2024-01-{line}\\n" for line in lines)

told = {"first": counted(1), "second": counted(2)}
comes("x.csv", "01T10:00Z,c", "01T11:00Z,c", "02T10:00Z,c", "03T10:00Z,c")
told["third"] = counted(3)
told["cleared"], told["first_cleared"] = counted(3), counted(1)
comes("y.csv", "03T10:00Z,d")
fails.append(3)
told["away"] = counted(4)
fails.clear()
told["retried"] = counted(4, TASKS[2:])
told["cleared_after"] = counted(4)
source.unlink()
comes("z.csv", "04T10:00Z,d")
told["gone"] = counted(5)
comes("v.csv", "05T10:00Z,e")
told["caught_up"] = done(days, "many", TASKS, catch_up="2024-01-06/2024-01-09")
print(json.dumps(told))
"""

GONE = (
    "late for txid 6: 1 record in z.csv; one is gone since; "
    '`txbatch restate days 6 --why "..." --accept-missing` counts without the file'
)


@pytest.fixture
def made(tmp_path: Path, postgres_url: str) -> dict[str, Any]:
    dags = TwoDags.written(tmp_path, '"@daily"', "2024-01-01T10:00Z,a\n2024-01-02T10:00Z,b\n")
    text = job(tmp_path / "in", "3 days").partition("if __name__")[0]
    dags.job("days").write_text(f"from txbatch import *\n{text}{LAST_LINES}\n")
    return dags.told(PROGRAM, postgres_url)


def test_a_run_counts_late_records_again_after_its_own_commit(made: dict[str, Any]) -> None:
    assert [made[each]["told"] for each in ("first", "second", "third")] == [[], [], []]
    assert made["second"]["note"] == "txid 2, 2024-01-02 (UTC): 1 record, 1 key, 1 attempt"
    assert made["second"]["extra"] == {"topology": "days", "txid": 2, "txids": [2]}
    again = "txid 4 restates txid 1: 3 records, 2 keys; txid 5 restates txid 2: 2 records, 2 keys"
    assert made["third"]["note"] == f"txid 3, 2024-01-03 (UTC): 1 record, 1 key, 1 attempt; {again}"
    assert made["third"]["extra"] == {"topology": "days", "txid": 3, "txids": [3, 4, 5], "restates": [1, 2]}
    assert made["cleared"]["told"][0].startswith("already committed as txid 3")
    head, _, whole = made["cleared"]["note"].partition(" | ")
    assert (head, whole) == (made["cleared"]["told"][0], "txid 3, 2024-01-03 (UTC): 1 record, 1 key, 1 attempt")
    assert made["cleared"]["extra"] == {}


def test_the_note_of_a_cleared_run_names_the_restate_that_counts(made: dict[str, Any]) -> None:
    head, _, whole = made["first_cleared"]["note"].partition(" | ")
    assert head.startswith("already committed as txid 1, counted again as txid 4; nothing is changed")
    assert whole == "txid 1, 2024-01-01 (UTC): 1 record, 1 key, 1 attempt; txid 4 restates txid 1: 3 records, 2 keys"


def test_a_retry_counts_the_rest_and_nothing_twice(made: dict[str, Any]) -> None:
    assert made["away"]["told"] == ["TX801 (try again): away"]
    assert made["retried"]["told"] == []
    assert made["retried"]["extra"] == {"topology": "days", "txid": 6, "txids": [6, 7], "restates": [3]}
    assert made["retried"]["note"].endswith("; txid 7 restates txid 3: 2 records, 2 keys")
    assert made["cleared_after"]["told"][0].startswith("already committed as txid 6")


def test_what_is_not_counted_again_is_told_in_the_note(made: dict[str, Any]) -> None:
    assert made["gone"]["told"] == []
    assert made["gone"]["note"] == f"txid 8, 2024-01-05 (UTC): 0 records, 0 keys, 1 attempt; {GONE}"


def test_a_run_that_catches_up_looks_back_at_its_end(made: dict[str, Any]) -> None:
    assert made["caught_up"]["told"] == []
    many = "txids 9 to 11, 2024-01-06 00:00 to 2024-01-09 00:00 (UTC): 3 batches, 0 records"
    again = "txid 12 restates txid 8: 1 record, 1 key"
    assert made["caught_up"]["note"] == f"{many}; {again}; {GONE}"
    assert made["caught_up"]["extra"]["txids"] == [9, 10, 11, 12]
    assert made["caught_up"]["extra"]["restates"] == [8]
