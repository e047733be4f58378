"""A DAG run that catches up, task by task: in a process of its own, without a running Airflow or Spark."""

from __future__ import annotations

from typing import Any

import pytest
from two_dags import FIVE_DAYS, TwoDags

OUTSIDE = ("2024-01-01/2024-01-07", "2024-01-10/2024-01-12")
PROGRAM = """
import json
import runpy
import sys
from dag_tasks import TASKS, done, form, given
from without_spark import WithoutSpark
from txbatch.orchestration import intervals
from txbatch.orchestration.operators import EmitBatchOperator

words, days, source = given()
EmitBatchOperator._application = lambda self: WithoutSpark(self.job)
WithoutSpark.close = lambda self: None

def caught_up(run_id, catch_up, tasks=TASKS, dag=days, **more):
    return done(dag, run_id, tasks, catch_up=catch_up, **more)

WHOLE = "2024-01-01/2024-01-06"
told = {
    "first_two": caught_up("a", "2024-01-01/2024-01-03"),
    "emitted": caught_up("b", WHOLE, TASKS[:2]),
    "retried": caught_up("b", WHOLE),
    "cleared": caught_up("b", WHOLE),
    "again": caught_up("c", WHOLE),
    "wrong": [caught_up("w", each)["told"] for each in
              ("soon", "2024-01-01", "2024-01-01/2024-01-01", "2024-01-01T12:00/2024-01-03", "2024-01-01/2024-01-01T05:00",
               "2024-01-01/2124-01-01", "2024-01-03/2024-01-01")],
    "both": caught_up("x", WHOLE, restate="1")["told"],
    "ordinary": caught_up("y", " ", TASKS[:1])["told"],
    "until_idle": caught_up("u", True, dag=words),
    "idle": caught_up("v", True, dag=words),
    "not_idle": caught_up("i", False, TASKS[:1], dag=words)["told"],
    **form(days),
}
bounded = runpy.run_path(sys.argv[4])["dag"]
TEN = "2024-01-01/2024-01-11"
told["bounded"] = caught_up("d", TEN, dag=bounded)
told["bounded_again"] = caught_up("e", TEN, dag=bounded)
told["outside"] = [caught_up("o", each, TASKS[:1], bounded)["told"] for each in sys.argv[5:]]
intervals.INTERVALS_MAX = 4
told["many"] = caught_up("m", WHOLE, TASKS[:1])["told"]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, module_url: str) -> dict[str, Any]:
    """What the tasks of some runs said, in this order: five days, of which two were caught up first; and a log of three."""
    dags = TwoDags.written(tmp_path_factory.mktemp("catch_up"), "None", FIVE_DAYS)
    dates = "start_date=datetime(2024, 1, 7, tzinfo=UTC), end_date=datetime(2024, 1, 9, tzinfo=UTC), schedule="
    days = (dags.folder / "dags" / "days.py").read_text().replace("schedule=", dates)
    bounded = dags.folder / "dags" / "bounded.py"
    bounded.write_text(days.replace("from airflow", "from datetime import UTC, datetime\nfrom airflow", 1))
    return dags.told(PROGRAM, module_url, str(bounded), *OUTSIDE)


def test_each_interval_of_a_range_is_counted_once_by_one_run(made: dict[str, Any]) -> None:
    note = "txids 1 to 2, 2024-01-01 00:00 to 2024-01-03 00:00 (UTC): 2 batches, 2 records"
    event = {"topology": "days", "txid": 2, "txids": [1, 2]}
    assert made["first_two"] == {
        "note": note,
        "extra": event,
        "told": [],
        "emit_batch": {"topology": "days", "txids": [1, 2]},
    }


def test_a_retried_run_goes_on_where_it_was(made: dict[str, Any]) -> None:
    assert (
        made["emitted"]["emit_batch"] == made["retried"]["emit_batch"] == {"topology": "days", "txids": [1, 2, 3, 4, 5]}
    )
    assert made["retried"]["extra"] == {"topology": "days", "txid": 5, "txids": [3, 4, 5]}
    assert made["retried"]["note"] == "txids 3 to 5, 2024-01-03 00:00 to 2024-01-06 00:00 (UTC): 3 batches, 3 records"


def test_a_run_that_is_cleared_after_its_end_announces_nothing_twice(made: dict[str, Any]) -> None:
    said = f"already committed as {made['retried']['note']}; nothing is changed"
    assert made["cleared"]["told"] == [said]
    assert made["cleared"]["note"] == said
    assert made["cleared"]["extra"] == {}


def test_what_is_committed_is_found_again_and_not_announced_twice(made: dict[str, Any]) -> None:
    assert made["again"]["told"] == ["already committed, all of it; nothing is changed"]
    assert made["again"]["extra"] == {}


def test_a_form_that_cannot_be_meant_is_refused_at_once(made: dict[str, Any]) -> None:
    soon, day, empty, parts, none, future, reversed_ = ["".join(each) for each in made["wrong"]]
    for each in (empty, reversed_):
        assert each.endswith("is not one: give start before end")
    for each in (soon, day):
        assert "is no interval; write an interval, with an exclusive end: 2013-01-03/2013-01-05" in each
    assert "those in it are 2024-01-02/2024-01-03" in parts
    assert parts.startswith(
        "TX118 (no retry helps): 2024-01-01T12:00/2024-01-03 (UTC) is not made of whole intervals of the schedule of days"
    )
    assert "has no interval in 2024-01-01/2024-01-01T05:00 (UTC)" in none
    assert future.startswith("TX105 (no retry helps): 2024-01-01/2124-01-01 (UTC) is not over yet")
    assert "has more than 4 intervals" in "".join(made["many"])
    assert "either catches up or counts again" in "".join(made["both"])


def test_a_form_without_dates_and_range_is_told_of_both(made: dict[str, Any]) -> None:
    assert made["ordinary"] == [
        "TX415 (no retry helps): 'days' reads by time, and run 'y' has no data interval; trigger it with a logical date, or to "
        "count many intervals "
        "write 2013-01-03/2013-01-05 into Catch up"
    ]


def test_the_dates_of_the_dag_bound_a_range(made: dict[str, Any]) -> None:
    left_out = "7 intervals are left out: the DAG has start_date 2024-01-07 and end_date 2024-01-09 (UTC)"
    counted = "txids 6 to 8, 2024-01-07 00:00 to 2024-01-10 00:00 (UTC): 3 batches, 0 records"
    assert made["bounded"]["note"] == f"{counted}; {left_out}"
    assert made["bounded"]["extra"]["txids"] == [6, 7, 8]
    assert made["bounded_again"]["told"] == [f"already committed, all of it; {left_out}; nothing is changed"]


def test_a_range_outside_the_dates_of_the_dag_is_refused(made: dict[str, Any]) -> None:
    for said, range_ in zip(made["outside"], OUTSIDE, strict=True):
        assert said == [
            f"TX105 (no retry helps): no interval in {range_} is counted: the DAG has start_date 2024-01-07 and end_date "
            "2024-01-09 (UTC); name intervals that begin within, or change the DAG's file"
        ]


def test_a_topology_without_intervals_goes_on_until_nothing_is_new(made: dict[str, Any]) -> None:
    assert made["until_idle"]["note"] == "txids 1 to 3: 3 batches, 3 records"
    assert made["until_idle"]["extra"]["txids"] == [1, 2, 3]
    assert made["idle"]["told"] == made["not_idle"] == ["nothing new"]


def test_the_form_and_the_page_explain_it(made: dict[str, Any]) -> None:
    assert "each interval of the schedule within the given interval" in made["params"]["catch_up"]
    assert "**To catch up**" in made["page"]
