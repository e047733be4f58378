"""The example DAG downstream of word_count: one piece of work per txid, however its events come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from airflow_support import Stack
from support import until

pytestmark = pytest.mark.timeout(300)


def consumed(stack: Stack, runs: int) -> str:
    """Wait until the consumer has had so many runs; the log of the newest."""
    newest = until(lambda: stack.api.dag_runs("word_count_consumer")[runs - 1 :], "the consumer does not run")[-1]
    assert stack.end("word_count_consumer", newest["dag_run_id"])[0] == "success"
    return stack.log("word_count_consumer", newest["dag_run_id"], "summarize")


def test_the_consumer_works_once_per_txid(stack: Stack, corpus: Path) -> None:
    (corpus / "a.py").write_text("the the cat\n")
    run_id = stack.api.trigger("word_count", "one")
    assert stack.end("word_count", run_id)[0] == "success"
    assert stack.announced("word_count") == [1]
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
