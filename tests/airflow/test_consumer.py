"""The example DAGs downstream of word_count, which wait for its asset: one topology more, and work once per txid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from airflow_support import Stack
from support import until

pytestmark = pytest.mark.timeout(900)


def consumed(stack: Stack, runs: int) -> str:
    """Wait until the consumer has had so many runs; the log of the newest."""
    newest = until(lambda: stack.api.dag_runs("word_count_consumer")[runs - 1 :], "the consumer does not run")[-1]
    assert stack.end("word_count_consumer", newest["dag_run_id"])[0] == "success"
    return stack.log("word_count_consumer", newest["dag_run_id"], "summarize")


@pytest.fixture(scope="module")
def counted(stack: Stack, corpus: Path) -> Stack:
    """The first commit of word_count, for which both wait."""
    stack.api.unpause("top_words")
    (corpus / "a.py").write_text("the the cat\n")
    run_id = stack.api.trigger("word_count", "one")
    assert stack.end("word_count", run_id)[0] == "success"
    assert stack.announced("word_count") == [1]
    return stack


def test_a_commit_starts_the_topology_that_reads_its_state(counted: Stack) -> None:
    """And that one's commit has an event of its own."""
    run = until(lambda: counted.api.dag_runs("top_words"), "top_words does not run")[0]
    assert run["run_type"] == "asset_triggered"
    assert counted.end("top_words", run["dag_run_id"])[0] == "success"
    assert counted.sql("SELECT word, count FROM report.top_words ORDER BY word") == [("cat", 1), ("the", 2)]
    assert counted.announced("top_words") == [1]
    counted.api.pause("top_words")  # no runs for the events that the next test makes


def test_the_consumer_works_once_per_txid(counted: Stack) -> None:
    assert "txid 1: 1 lines" in consumed(counted, runs=1)
    summary = counted.home / "demo" / "word_count_consumer" / "1.json"
    written = summary.stat().st_mtime_ns
    assert json.loads(summary.read_text())["keys"] == {"word_count": 2}

    counted.api.create_asset_event("word_count", {"topology": "word_count", "txid": 1, "txids": [1]})
    assert "txid 1 was summarized before" in consumed(counted, runs=2)
    assert summary.stat().st_mtime_ns == written

    for forged in ({}, {"txids": 7}, {"txids": ["../x", None, True, 10**30, -1, 99, 1]}):
        counted.api.create_asset_event("word_count", {"topology": "word_count", **forged})
    told = consumed(counted, runs=3)
    assert "Traceback" not in told
    assert sorted(file.name for file in summary.parent.iterdir()) == ["1.json"]
