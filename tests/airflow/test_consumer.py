"""The example DAGs downstream of word_count, which wait for its asset: one topology more, and work once per txid.

The demo has made its first commit.
"""

from __future__ import annotations

import json

import pytest
from airflow_support import Shown, Stack
from support import until

pytestmark = pytest.mark.timeout(900)


def consumed(stack: Stack, runs: int) -> str:
    """Wait until the consumer has had so many runs; the log of the newest."""
    newest = until(lambda: stack.api.dag_runs("word_count_consumer")[runs - 1 :], "the consumer does not run")[-1]
    assert stack.end("word_count_consumer", newest["dag_run_id"])[0] == "success"
    return stack.log("word_count_consumer", newest["dag_run_id"], "summarize")


def test_a_commit_starts_the_topology_that_reads_its_state(stack: Stack, shown: Shown) -> None:
    """And that one's commit has an event of its own."""
    run = until(lambda: stack.api.dag_runs("top_words"), "top_words does not run")[0]
    assert run["run_type"] == "asset_triggered"
    assert stack.end("top_words", run["dag_run_id"])[0] == "success"
    assert stack.sql("SELECT word, count FROM report.top_words ORDER BY word") == [("cat", 1), ("the", 2)]
    assert stack.announced("top_words") == [1]
    stack.api.pause("top_words")  # no runs for the events that the next test makes


def test_the_consumer_works_once_per_txid(stack: Stack, shown: Shown) -> None:
    assert "txid 1: 1 lines" in consumed(stack, runs=1)
    summary = stack.home / "demo" / "word_count_consumer" / "1.json"
    written = summary.stat().st_mtime_ns
    assert json.loads(summary.read_text())["keys"] == {"word_count": 2}

    stack.api.create_asset_event("word_count", {"topology": "word_count", "txid": 1, "txids": [1]})
    assert "txid 1 was summarized before" in consumed(stack, runs=2)
    assert summary.stat().st_mtime_ns == written

    for forged in ({}, {"txids": 7}, {"txids": ["../x", None, True, 10**30, -1, 99, 1]}):
        stack.api.create_asset_event("word_count", {"topology": "word_count", **forged})
    told = consumed(stack, runs=3)
    assert "Traceback" not in told
    assert sorted(file.name for file in summary.parent.iterdir()) == ["1.json"]
