"""Runs that start when upstream lands, task by task: in a process of its own, without a running Airflow or Spark."""

from __future__ import annotations

from typing import Any

import pytest
from sizes import some_of
from two_dags import DAILY, FIVE_DAYS, TwoDags

EVENTS = some_of(40, 400)
DAG = f'''
"""An Airflow DAG."""
from datetime import UTC, datetime
from airflow.sdk import Asset
from airflow.timetables.interval import CronDataIntervalTimetable
from txbatch.orchestration import topology_dag
landed, since = (
    topology_dag(
        "jobs/days.py", schedule=[Asset("orders")], intervals={DAILY},
        start_date=datetime(2024, 1, 1, tzinfo=UTC), catchup=catchup,
    )
    for catchup in (False, True)
)
'''
PROGRAM = """
import json
import os
import runpy
import sys
from datetime import UTC, datetime, timedelta
from dag_tasks import TASKS, done, given
from without_spark import WithoutSpark
from txbatch.core.errors import WindowsGone
from txbatch.orchestration.operators import EmitBatchOperator
from txbatch.postgres.database.engine import connect
from txbatch.postgres.ledger import PostgresLedger
from txbatch.postgres.reading.ledger_reader import LedgerReader

EVENTS = int(sys.argv[5])
_, _, source = given()
dags = runpy.run_path(sys.argv[4])
landed, since = dags["landed"], dags["since"]
EmitBatchOperator._application = lambda self: WithoutSpark(self.job)
EmitBatchOperator.submit = lambda self, *attempt: WithoutSpark(self.job).emit(*attempt)
WithoutSpark.close = lambda self: None

def at(day, hour=1):
    return datetime(2024, 1, day, hour, tzinfo=UTC)

def event(run_id, day, tasks=TASKS, dag=landed, **params):
    of_run = {"run_type": "asset_triggered", "logical_date": None, "start_date": at(day)}
    return done(dag, run_id, tasks, of_run=of_run, **params)

def dated(run_id, day, tasks=TASKS, kind="backfill"):
    ends = {"data_interval_start": at(day, 0), "data_interval_end": at(day + (kind == "backfill"), 0)}
    return done(landed, run_id, tasks, of_run={"run_type": kind, "logical_date": at(day, 0), **ends})

def partition(run_id, key):
    of_run = {"run_type": "asset_triggered", "partition_key": key, "partition_date": None}
    return done(landed, run_id, of_run=of_run)

told = {
    "first": event("a", 3),
    "again": event("b", 3),
    "before_midnight": event("b2", 3, TASKS[:1])["told"],
    "three": event("c", 6),
    "cleared": event("c", 6),
    "cleared_later": event("b", 6),
    "since": event("d", 6, dag=since),
    "no_file": event("e", 8),
    "no_file_again": event("e2", 8),
}
backfill = dated("f", 8, TASKS[:1])
told["while_a_backfill_runs"] = event("g", 10)
told["backfill"] = dated("f", 8)
told["behind_the_backfill"] = event("g", 10)
told["backfill_of_a_counted_day"] = dated("h", 9)["told"]
told["by_hand"] = dated("i", 11, kind="manual")
told["partition"] = partition("j", "2024-01-11")
told["partition_again"] = partition("k", "2024-01-11")["told"]
told["no_partition"] = partition("l", "eu")
told["partition_of_tomorrow"] = partition("early", f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d}")
told["partition_far_ahead"] = partition("far", "2999-01-01")["told"]
told["restated"] = event("m", 12, restate="1", why="a test")["note"]
told["range"] = event("n", 12, catch_up="2024-01-12/2024-01-13")["note"]
told["emitted"] = event("o", 15, TASKS[:2])["emit_batch"]
told["retried"] = event("o", 15)
begun = [event(f"p{number}", 16, TASKS[:1])["told"] for number in range(EVENTS)]
ended = [event(f"p{number}", 16, TASKS[1:]) for number in range(EVENTS)]
told["begun"] = sorted({str(each) for each in begun})
told["ended"] = [ended[0], sorted({str(each["told"]) for each in ended[1:]})]

def refused(self, topology, intervals):
    return [WindowsGone(f"{each} is gone") for each in intervals if each.start < at(17, 0)]

PostgresLedger.refused = refused
told["passed_by"] = event("q", 19)
told["passed_by_again"] = event("q2", 19)["told"]
reader = LedgerReader(connect(os.environ["TXBATCH_DATABASE_URL"]))
(row,), (newest,) = reader.status("days"), reader.batches("days", 1)
uncounted = [f"{each['gap_start'].astimezone(UTC):%m-%d}, txid {each['txid']}" for each in row["uncounted"]]
told["reported"] = {"newest": newest["txid"], "gaps": row["gaps"], "uncounted": uncounted}
told["page"] = landed.doc_md
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, module_url: str) -> dict[str, Any]:
    """What the tasks of some runs said, in this order: five days with a record each, and days without."""
    dags = TwoDags.written(tmp_path_factory.mktemp("asset_runs"), "None", FIVE_DAYS)
    landed = dags.folder / "dags" / "landed.py"
    landed.write_text(DAG)
    return dags.told(PROGRAM, module_url, str(landed), str(EVENTS))


def test_the_first_event_counts_the_newest_interval_alone(made: dict[str, Any]) -> None:
    assert made["first"]["note"] == "txid 1, 2024-01-02 (UTC): 1 record, 1 key, 1 attempt"
    assert made["first"]["extra"] == {"topology": "days", "txid": 1, "txids": [1]}


def test_an_event_with_nothing_to_count_is_skipped_and_says_so(made: dict[str, Any]) -> None:
    said = "nothing to count: each interval that was over by 2024-01-03T01:00 (UTC) is counted, or outside the dates of the DAG"
    assert made["again"] == {"note": said, "extra": {}, "told": [said], "emit_batch": None}


def test_a_later_event_counts_all_that_is_over_a_txid_each(made: dict[str, Any]) -> None:
    """R6, R18."""
    assert made["three"]["note"] == "txids 2 to 4, 2024-01-03 00:00 to 2024-01-06 00:00 (UTC): 3 batches, 3 records"
    assert made["three"]["extra"] == {"topology": "days", "txid": 4, "txids": [2, 3, 4]}


def test_a_run_that_is_cleared_changes_nothing(made: dict[str, Any]) -> None:
    """R15: also where nothing was to be counted in its first try, and other runs have counted since."""
    assert made["cleared"]["told"] == [f"already committed as {made['three']['note']}; nothing is changed"]
    assert made["cleared_later"]["told"] == [
        "nothing to count: each interval that was over by 2024-01-06T01:00 (UTC) is counted, or outside the dates of the DAG"
    ]


def test_with_catchup_the_intervals_since_the_start_date_are_counted_too(made: dict[str, Any]) -> None:
    assert made["since"]["note"] == "txid 5, 2024-01-01 (UTC): 1 record, 1 key, 1 attempt"


def test_an_event_without_a_new_file_counts_the_interval_as_empty_once(made: dict[str, Any]) -> None:
    """R4."""
    assert made["no_file"]["note"] == "txids 6 to 7, 2024-01-06 00:00 to 2024-01-08 00:00 (UTC): 2 batches, 0 records"
    assert made["no_file_again"]["told"][0].startswith("nothing to count: ")


def test_an_event_waits_for_the_backfill_and_counts_what_that_has_not(made: dict[str, Any]) -> None:
    """R6: the interval that both want is counted by the run that planned it."""
    assert made["while_a_backfill_runs"]["told"][0].startswith("TaskDeferred")
    assert made["backfill"]["note"] == "txid 8, 2024-01-08 (UTC): 0 records, 0 keys, 1 attempt"
    assert made["behind_the_backfill"]["note"] == "txid 9, 2024-01-09 (UTC): 0 records, 0 keys, 1 attempt"
    assert made["backfill_of_a_counted_day"][0].startswith("already committed as txid 9")


def test_a_run_by_hand_counts_what_was_over_by_its_date(made: dict[str, Any]) -> None:
    assert made["by_hand"]["note"] == "txid 10, 2024-01-10 (UTC): 0 records, 0 keys, 1 attempt"


def test_a_partition_key_is_the_interval_or_refused_by_name(made: dict[str, Any]) -> None:
    assert made["partition"]["note"] == "txid 11, 2024-01-11 (UTC): 0 records, 0 keys, 1 attempt"
    assert made["partition_again"][0].startswith("already committed as txid 11")
    (said,) = made["no_partition"]["told"]
    assert said.startswith(
        "TX415 (no retry helps): partition 'eu' names no time (UTC), and is no interval of days, 0 0 * * *"
    )


def test_a_partition_key_before_the_end_of_its_interval_waits_for_the_end(made: dict[str, Any]) -> None:
    """R2: it failed after some seconds. A key of a day in some years is a mistake, and fails."""
    early = made["partition_of_tomorrow"]
    assert early["told"][0].startswith("TaskDeferred")
    assert early["note"].startswith("waits for the end of its interval, ")
    assert early["note"].endswith(", and goes on by itself")
    (said,) = made["partition_far_ahead"]
    assert said.startswith(
        "TX406 (try again): days: interval 2999-01-01T00:00:00+00:00/2999-01-02T00:00:00+00:00 is not over"
    )


def test_the_fields_of_the_form_go_before_the_grid(made: dict[str, Any]) -> None:
    """R17."""
    assert made["restated"].startswith("txid 12 restates txid 1: ")
    assert made["range"] == "txid 13, 2024-01-12 (UTC): 0 records, 0 keys, 1 attempt"


def test_a_retried_run_goes_on_with_the_intervals_of_its_first_try(made: dict[str, Any]) -> None:
    assert made["emitted"] == made["retried"]["emit_batch"] == {"topology": "days", "txids": [14, 15]}
    assert made["retried"]["extra"] == {"topology": "days", "txid": 15, "txids": [14, 15]}


def test_of_all_events_at_once_one_run_counts_and_all_others_are_skipped(made: dict[str, Any]) -> None:
    """R2: all have looked before the first one counts."""
    assert made["begun"] == ["[]"]
    first, others = made["ended"]
    assert first["note"] == "txid 16, 2024-01-15 (UTC): 0 records, 0 keys, 1 attempt"
    (said,) = others
    assert "nothing to count" in said


def test_an_interval_whose_windows_have_left_is_passed_by_and_blocks_no_later_one(made: dict[str, Any]) -> None:
    """R4: no interval is left out in silence. The note tells, the interval stays a gap, and no txid is used for it."""
    said = (
        "1 interval is passed by and not counted, from 2024-01-16 (UTC) on: "
        "2024-01-16T00:00:00+00:00/2024-01-17T00:00:00+00:00 is gone"
    )
    counted = "txids 17 to 18, 2024-01-17 00:00 to 2024-01-19 00:00 (UTC): 2 batches, 0 records"
    assert made["passed_by"]["note"] == f"{counted}; {said}"
    (again,) = made["passed_by_again"]
    assert again.startswith("nothing to count: each other interval that was over by 2024-01-19T01:00 (UTC)")
    assert again.endswith(f"; {said}")
    assert made["reported"] == {"newest": 18, "gaps": 1, "uncounted": ["01-16, txid None"]}


def test_the_page_of_the_dag_says_what_a_run_counts(made: dict[str, Any]) -> None:
    assert "each interval that is over and not counted, a txid each" in made["page"]
    assert "**Dates.**" not in made["page"]
