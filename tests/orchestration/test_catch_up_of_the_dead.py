"""A DAG run that catches up what another one left, which was killed: whose batches it announces (R6, R8)."""

from __future__ import annotations

from typing import Any

import pytest
from two_dags import FIVE_DAYS, TwoDags

PROGRAM = """
import json
import os
from dag_tasks import TASKS, done, given
from sqlalchemy import create_engine, text
from without_spark import WithoutSpark
from txbatch import failpoints
from txbatch.orchestration import catching_up
from txbatch.orchestration.operators import EmitBatchOperator

words, days, source = given()
EmitBatchOperator._application = lambda self: WithoutSpark(self.job)
WithoutSpark.close = lambda self: None
WHOLE = "2024-01-01/2024-01-06"
catching_up._NOTED_SECONDS = 0.0
notes = []

def caught_up(dag, run_id, catch_up, tasks=TASKS):
    return done(dag, run_id, tasks, catch_up=catch_up)

def dies(dag, run_id, catch_up, point, times):
    hits = []
    def reached(name):
        hits.extend([name] * (name == point))
        if len(hits) == times:
            raise failpoints.FailpointReached(point)
    try:
        with failpoints.watch(reached):
            done(dag, run_id, TASKS, notes.append, catch_up=catch_up)
    except failpoints.FailpointReached:
        with create_engine(os.environ["TXBATCH_DATABASE_URL"]).begin() as connection:
            connection.execute(text("UPDATE txbatch.batch SET lease_until = clock_timestamp() - interval '1 s'"))

dies(days, "dead", WHOLE, "commit.committed", 2)
dies(days, "heir", WHOLE, "commit.committed", 2)
told = {
    "notes": [*notes],
    "heir": caught_up(days, "heir", WHOLE),
    "cleared": caught_up(days, "heir", WHOLE),
    "dead": caught_up(days, "dead", WHOLE),
    "third": caught_up(days, "third", WHOLE),
}
dies(words, "dead", True, "attempt.before_lock", 1)
dies(words, "heir", True, "commit.committed", 1)
told["heir_of_words"] = caught_up(words, "heir", True)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, module_url: str) -> dict[str, Any]:
    """What the tasks of some runs said, in this order: of five days, of which the dead run committed two; and of a log."""
    dags = TwoDags.written(tmp_path_factory.mktemp("catch_up"), "None", FIVE_DAYS)
    return dags.told(PROGRAM, module_url)


def test_what_a_dead_run_planned_is_announced_by_the_one_that_commits_it(made: dict[str, Any]) -> None:
    """And so is what the dead one committed and did not come to announce; although the heir was killed on its way as well."""
    note = "txids 1 to 5, 2024-01-01 00:00 to 2024-01-06 00:00 (UTC): 5 batches, 5 records"
    assert made["heir"]["note"] == note
    assert made["heir"]["extra"] == {"topology": "days", "txid": 5, "txids": [1, 2, 3, 4, 5]}


def test_a_run_that_dies_on_its_way_leaves_a_note(made: dict[str, Any]) -> None:
    """By that how many are committed, whoever did it, and how it goes on: no rate, and nothing is left."""
    how = "of 5 batches are committed; to go on, clear the run, or trigger it again with the same range"
    assert made["notes"] == [f"{number} {how}" for number in (0, 1, 2, 2, 2, 3)]


def test_nothing_is_announced_twice(made: dict[str, Any]) -> None:
    """Cleared, each run says what it committed itself."""
    third = "txids 3 to 5, 2024-01-03 00:00 to 2024-01-06 00:00 (UTC): 3 batches, 3 records"
    assert made["cleared"]["told"] == [f"already committed as {third}; nothing is changed"]
    first = "txids 1 to 2, 2024-01-01 00:00 to 2024-01-03 00:00 (UTC): 2 batches, 2 records"
    assert made["dead"]["told"] == [f"already committed as {first}; nothing is changed"]
    assert made["third"]["told"] == ["already committed, all of it; nothing is changed"]
    assert [made[each]["extra"] for each in ("cleared", "dead", "third")] == [{}, {}, {}]


def test_a_batch_that_is_finished_first_is_announced_too(made: dict[str, Any]) -> None:
    """A source that is not read by time: what the dead run planned, and what the heir committed before it was killed."""
    assert made["heir_of_words"]["note"] == "txids 1 to 3: 3 batches, 3 records"
    assert made["heir_of_words"]["extra"] == {"topology": "words", "txid": 3, "txids": [1, 2, 3]}
