"""Trigger, kill, retry, clear, and two runs at once, on a topology whose batches come one after the other."""

from __future__ import annotations

from collections import Counter

import pytest
from airflow_support import TASKS, Stack

from txbatch.local.airflow_api import AirflowApiError

pytestmark = pytest.mark.timeout(600)
SENTENCES = ("how are you", "nice to meet you", "what a good day")


def assert_counts(stack: Stack, *sentences: str) -> None:
    """The report, and the sum of the contributions, are the words of these sentences."""
    expected = Counter(word for sentence in sentences for word in sentence.split())
    assert dict(stack.sql("SELECT word, count FROM report.sentences")) == expected
    assert dict(stack.sql("SELECT word, sum(count) FROM contribution.sentences GROUP BY word")) == expected


@pytest.fixture(scope="module")
def killed(stack: Stack) -> str:
    """A run each of whose tasks was killed once in the middle of its work, triggered from the form with a note."""
    stack.kill_once(*TASKS)
    run_id = stack.api.trigger("sentences", "killed", conf={"turn_timeout_minutes": 5}, note="why")
    assert stack.end("sentences", run_id) == ("success", dict.fromkeys(TASKS, "success"))
    return run_id


@pytest.mark.rule("R2", "R10")
def test_each_task_killed_once_is_retried_and_finishes_the_same_txid(stack: Stack, killed: str) -> None:
    assert stack.tries("sentences", killed) == dict.fromkeys(TASKS, 2)
    assert stack.sql("SELECT txid, status, attempts FROM report.batches WHERE topology = 'sentences'") == [
        (1, "committed", 2)
    ]
    attempts = "SELECT attempt, status FROM report.attempts WHERE topology = 'sentences' ORDER BY attempt_id"
    assert stack.sql(attempts) == [("1:1", "superseded"), ("1:2", "committed")]
    assert_counts(stack, SENTENCES[0])
    assert stack.announced("sentences") == [1]
    run = stack.api.dag_run("sentences", killed)
    assert (run["note"], run["conf"]) == ("why", {"turn_timeout_minutes": 5})


@pytest.mark.rule("R8")
@pytest.mark.parametrize("task", TASKS[1:])
def test_clearing_one_task_of_a_committed_run_changes_nothing(stack: Stack, killed: str, task: str) -> None:
    before = stack.snapshot("sentences")
    stack.api.clear_tasks("sentences", killed, [task])
    state, states = stack.end("sentences", killed)
    assert (state, states[task]) == ("success", "skipped" if task == "success" else "success")
    assert "already committed as txid 1" in stack.log("sentences", killed, task)
    assert stack.snapshot("sentences") == before


@pytest.mark.rule("R15")
def test_clearing_a_committed_run_says_so_and_changes_nothing(stack: Stack, killed: str) -> None:
    before = stack.snapshot("sentences")
    stack.api.clear_run("sentences", killed)
    assert stack.end("sentences", killed) == ("success", dict.fromkeys(TASKS, "skipped"))
    assert "already committed as txid 1; nothing is changed" in stack.log("sentences", killed, TASKS[0])
    assert stack.snapshot("sentences") == before


@pytest.mark.parametrize("value", [0, "soon", None])
def test_wrong_params_are_refused(stack: Stack, value: object) -> None:
    with pytest.raises(AirflowApiError, match="turn_timeout_minutes") as refused:
        stack.api.trigger("sentences", conf={"turn_timeout_minutes": value})
    assert refused.value.status == 400


@pytest.mark.rule("R4", "R6")
def test_two_runs_at_once_take_turns_and_then_nothing_is_new(stack: Stack, killed: str) -> None:
    runs = [stack.api.trigger("sentences", name) for name in ("left", "right")]
    assert [stack.end("sentences", run)[0] for run in runs] == ["success", "success"]
    waited = [log for run in runs if "waits for txid 2" in (log := stack.log("sentences", run, TASKS[0]))]
    assert len(waited) == 1
    assert waited[0].index("Pausing task as DEFERRED") < waited[0].index("Trigger fired event")
    assert [stack.tries("sentences", run) for run in runs] == [dict.fromkeys(TASKS, 1)] * 2
    assert_counts(stack, *SENTENCES)
    assert stack.announced("sentences") == [1, 2, 3]

    before = stack.snapshot("sentences")
    after = stack.api.trigger("sentences", "after")
    assert stack.end("sentences", after) == ("success", dict.fromkeys(TASKS, "skipped"))
    assert "sentences: nothing new" in stack.log("sentences", after, TASKS[0])
    assert stack.snapshot("sentences") == before

    notes = {run: stack.api.dag_run("sentences", run)["note"] for run in (*runs, after)}
    assert notes.pop(after) == "txbatch: nothing new"
    assert {note.partition(":")[2] for note in notes.values()} == {
        " txid 2: 1 record, 4 keys, 1 attempt",
        " txid 3: 1 record, 4 keys, 1 attempt",
    }
    stack.api.clear_run("sentences", "left")
    assert stack.end("sentences", "left") == ("success", dict.fromkeys(TASKS, "skipped"))
    txid = 2 if "txid 2" in notes["left"] else 3
    told = f'; nothing is changed; to count it again: txbatch restate sentences {txid} --why "..."'
    again = notes["left"].replace("txbatch: ", "txbatch: already committed as ") + told
    assert stack.api.dag_run("sentences", "left")["note"] == again


@pytest.mark.rule("R17")
def test_a_run_counts_batches_again_once_whatever_is_killed_or_cleared(stack: Stack, killed: str) -> None:
    """As after the other tests three batches are committed, or only one."""
    last = len(stack.announced("sentences"))
    stack.kill_once("commit")
    conf = {"restate": "1", "why": "it was misheard"}
    again = stack.api.trigger("sentences", "again", conf=conf)
    assert stack.end("sentences", again) == ("success", dict.fromkeys(TASKS, "success"))
    assert stack.tries("sentences", again)["commit"] == 2
    restated = "SELECT txid, position, reason, requested_by FROM report.batches WHERE kind = 'restate'"
    assert stack.sql(restated) == [(last + 1, 1, "it was misheard", "admin")]
    assert stack.api.dag_run("sentences", again)["note"] == (
        f"txbatch: txid {last + 1} restates txid 1: 1 record, 3 keys"
    )
    event = stack.api.asset_events(source_dag_id="sentences")[-1]["extra"]
    assert event == {"topology": "sentences", "txid": last + 1, "txids": [last + 1], "restates": [1]}
    before = stack.snapshot("sentences")
    stack.api.clear_run("sentences", again)
    assert stack.end("sentences", again) == ("success", dict.fromkeys(TASKS, "skipped"))
    assert stack.snapshot("sentences") == before
