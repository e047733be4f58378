"""Trigger, kill, retry, clear, and two runs at once, on a topology whose batches come one after the other.

The demo has counted all of them.
"""

from __future__ import annotations

from collections import Counter

import pytest
from airflow_support import TASKS, Shown, Stack

from txbatch.local.airflow_api import AirflowApiError
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.schema import state_tables

pytestmark = pytest.mark.timeout(600)
SENTENCES = ("how are you", "nice to meet you", "what a good day")


def assert_counts(stack: Stack, *sentences: str) -> None:
    """The report, and the sum of the contributions, are the words of these sentences."""
    expected = Counter(word for sentence in sentences for word in sentence.split())
    assert dict(stack.sql("SELECT word, count FROM report.sentences")) == expected
    assert dict(stack.sql("SELECT word, sum(count) FROM contribution.sentences GROUP BY word")) == expected


@pytest.mark.rule("R2", "R10")
def test_each_task_killed_once_is_retried_and_finishes_the_same_txid(stack: Stack, shown: Shown) -> None:
    """The demo has killed them; which topology's comes first is chance."""
    tries = [stack.tries(topology, run) for topology, runs in shown.counted.items() for run in runs]
    assert [sorted(each[task] for each in tries) for task in TASKS] == [[1, 1, 1, 2]] * 4
    of_both = "WHERE topology IN ('sentences', 'word_count')"
    batches = stack.sql(f"SELECT topology, txid, status FROM report.batches {of_both} ORDER BY 1, 2")
    assert batches == [*(("sentences", txid, "committed") for txid in (1, 2, 3)), ("word_count", 1, "committed")]
    attempts = stack.sql(f"SELECT attempt, status FROM report.attempts {of_both} ORDER BY 1, 2")
    assert attempts == [
        ("1:1", "committed"),
        ("1:1", "superseded"),
        ("1:2", "committed"),
        ("2:1", "committed"),
        ("3:1", "committed"),
    ]
    assert_counts(stack, *SENTENCES)
    assert [stack.announced(topology) for topology in ("sentences", "word_count")] == [[1, 2, 3], [1]]


@pytest.mark.rule("R4")
def test_a_run_that_finds_nothing_new_is_skipped_and_takes_no_txid(stack: Stack, shown: Shown) -> None:
    """Triggered from the form, with a note, which stays."""
    before = stack.snapshot("sentences")
    after = stack.api.trigger("sentences", "after", conf={"turn_timeout_minutes": 5}, note="why")
    assert stack.end("sentences", after) == ("success", dict.fromkeys(TASKS, "skipped"))
    assert "sentences: nothing new" in stack.log("sentences", after, TASKS[0])
    assert stack.snapshot("sentences") == before
    *_, last, run = stack.api.dag_runs("sentences")
    assert (run["note"], run["conf"]) == ("why", {"turn_timeout_minutes": 5})
    assert last["note"] == "txbatch: nothing new"


@pytest.mark.rule("R8")
@pytest.mark.parametrize("task", [*(pytest.param(task, marks=pytest.mark.whole) for task in TASKS[1:3]), TASKS[3]])
def test_clearing_one_task_of_a_committed_run_changes_nothing(stack: Stack, shown: Shown, task: str) -> None:
    before, run = stack.snapshot("sentences"), shown.counted["sentences"][1]
    stack.api.clear_tasks("sentences", run, [task])
    state, states = stack.end("sentences", run)
    assert (state, states[task]) == ("success", "skipped" if task == "success" else "success")
    assert "already committed as txid 2" in stack.log("sentences", run, task)
    assert stack.snapshot("sentences") == before


@pytest.mark.rule("R15")
def test_clearing_a_committed_run_says_so_and_changes_nothing(stack: Stack, shown: Shown) -> None:
    before, run = stack.snapshot("sentences"), shown.counted["sentences"][2]
    noted = "txid 3: 1 record, 4 keys, 1 attempt"
    assert stack.api.dag_run("sentences", run)["note"] == f"txbatch: {noted}"
    stack.api.clear_run("sentences", run)
    assert stack.end("sentences", run) == ("success", dict.fromkeys(TASKS, "skipped"))
    assert "already committed as txid 3; nothing is changed" in stack.log("sentences", run, TASKS[0])
    assert stack.snapshot("sentences") == before
    again = 'nothing is changed; to count it again: txbatch restate sentences 3 --why "..."'
    assert stack.api.dag_run("sentences", run)["note"] == f"txbatch: already committed as txid 3; {again} | {noted}"


@pytest.mark.parametrize("value", [0, "soon", None])
def test_wrong_params_are_refused(stack: Stack, value: object) -> None:
    with pytest.raises(AirflowApiError, match="turn_timeout_minutes") as refused:
        stack.api.trigger("sentences", conf={"turn_timeout_minutes": value})
    assert refused.value.status == 400


@pytest.mark.whole
@pytest.mark.rule("R6")
def test_two_runs_at_once_take_turns(stack: Stack, shown: Shown) -> None:
    """From the first sentence on, which is dropped with all the others."""
    with transaction(stack.engine) as connection:
        state_tables.drop(connection, "sentences")
    runs = [stack.api.trigger("sentences", name) for name in ("left", "right")]
    assert [stack.end("sentences", run)[0] for run in runs] == ["success", "success"]
    waited = [log for run in runs if "waits for txid 1" in (log := stack.log("sentences", run, TASKS[0]))]
    assert len(waited) == 1
    assert waited[0].index("Pausing task as DEFERRED") < waited[0].index("Trigger fired event")
    assert [stack.tries("sentences", run) for run in runs] == [dict.fromkeys(TASKS, 1)] * 2
    assert_counts(stack, *SENTENCES[:2])
    assert stack.announced("sentences")[-2:] == [1, 2]
    notes = {stack.api.dag_run("sentences", run)["note"].partition(":")[2] for run in runs}
    assert notes == {" txid 1: 1 record, 3 keys, 1 attempt", " txid 2: 1 record, 4 keys, 1 attempt"}
