"""Tasks that somebody marks as successful, by leaving them out: in a process of its own, without a running Airflow or Spark.

tests/airflow/test_buttons.py presses the buttons themselves.
"""

from __future__ import annotations

from typing import Any

import pytest
from two_dags import FIVE_DAYS, TwoDags

PROGRAM = """
import json
from dag_tasks import TASKS, done, given
from without_spark import WithoutSpark, emit_without_spark
from txbatch import failpoints
from txbatch.orchestration.operators import EmitBatchOperator

words, days, source = given()
EmitBatchOperator._application = lambda self: WithoutSpark(self.job)
EmitBatchOperator.submit = lambda self, folder, assignment: emit_without_spark(self.job, folder, assignment)
WithoutSpark.close = lambda self: None
WithoutSpark.__enter__, WithoutSpark.__exit__ = lambda self: self, lambda self, *_: None
FIRST, EMIT, COMMIT, LAST = TASKS
FIVE = "2024-01-01/2024-01-06"
AGAIN = {"restate": "1, 2, 3", "why": "wrong"}

def killed(*arguments, **params):
    def reached(name):
        if name == "commit.committed":
            raise failpoints.FailpointReached(name)
    try:
        with failpoints.watch(reached):
            done(*arguments, **params)
    except failpoints.FailpointReached:
        return

told = {
    "commit marked": done(words, "a", (FIRST, EMIT, LAST)),
    "commit cleared": done(words, "a", (COMMIT, LAST)),
    "emit marked": done(words, "b", (FIRST, COMMIT, LAST)),
    "first marked": done(words, "c", (EMIT, COMMIT, LAST)),
    "all but the last marked": done(words, "d", (LAST,)),
    "two days": done(days, "e", TASKS, catch_up="2024-01-01/2024-01-03"),
    "range marked": done(days, "f", (FIRST, LAST), catch_up=FIVE),
    "range cleared": done(days, "f", (EMIT, COMMIT, LAST), catch_up=FIVE),
    "off": [done(days, "g", (task,), interval=("2024-01-07T05:00", "2024-01-07T06:00"))["told"] for task in TASKS[:3]],
}
killed(words, "h", (FIRST, EMIT, COMMIT), **AGAIN)
told["restate marked"] = done(words, "h", (LAST,), **AGAIN)
told["restate cleared"] = done(words, "h", (COMMIT, LAST), **AGAIN)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, module_url: str) -> dict[str, Any]:
    """What the tasks of some runs said, in this order: of a log of three records, and of five days."""
    dags = TwoDags.written(tmp_path_factory.mktemp("marks"), "None", FIVE_DAYS)
    return dags.told(PROGRAM, module_url)


def test_a_marked_commit_is_no_commit(made: dict[str, Any]) -> None:
    wrong = "TX413 (no retry helps): words: txid 1 is emitted, not committed; clear the task commit"
    assert (made["commit marked"]["told"], made["commit marked"]["extra"]) == ([wrong], {})
    assert made["commit cleared"]["note"] == "txid 1: 1 record, 1 key, 1 attempt"


@pytest.mark.parametrize(("what", "txid"), [("emit marked", 2), ("first marked", 3)])
def test_what_a_marked_task_left_undone_is_done_by_the_next_one(made: dict[str, Any], what: str, txid: int) -> None:
    assert (made[what]["note"], made[what]["told"]) == (f"txid {txid}: 1 record, 1 key, 1 attempt", [])
    assert made[what]["extra"]["txid"] == txid


def test_a_run_of_marks_alone_has_no_batch(made: dict[str, Any]) -> None:
    (told,) = made["all but the last marked"]["told"]
    assert told.endswith("has no batch; clear the task initialize_transaction")


def test_a_range_of_which_the_commit_is_marked_is_not_announced_by_halves(made: dict[str, Any]) -> None:
    wrong = "TX413 (no retry helps): days: committed are 2 of 5 batches of the run; clear the task commit"
    assert (made["range marked"]["told"], made["range marked"]["extra"]) == ([wrong], {})
    assert made["range cleared"]["extra"]["txids"] == [3, 4, 5]


def test_batches_counted_again_of_which_the_commit_is_marked_are_not_announced_by_halves(made: dict[str, Any]) -> None:
    wrong = "TX413 (no retry helps): words: committed are 1 of 3 batches of the run; clear the task commit"
    assert (made["restate marked"]["told"], made["restate marked"]["extra"]) == ([wrong], {})
    assert made["restate cleared"]["extra"]["restates"] == [1, 2, 3]


def test_a_mark_does_not_pass_an_interval_outside_of_the_schedule(made: dict[str, Any]) -> None:
    """Once such an interval was counted, those of the schedule that overlap it were refused (R2)."""
    for (told,) in made["off"]:
        assert told.startswith(
            "TX118 (no retry helps): the run's interval 2024-01-07T05:00:00+00:00/2024-01-07T06:00:00+00:00 is none"
        )
