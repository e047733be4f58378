"""Two DAGs, of which the second runs by the asset of the first: top_words after word_count."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow_support import Stack
from support import until

pytestmark = pytest.mark.timeout(600)
COUNTED = "SELECT word, count FROM report.word_count ORDER BY word"
TOP = "SELECT word, count FROM report.top_words ORDER BY word"


def chained(stack: Stack, runs: int) -> str:
    """Wait until top_words has had so many runs that counted something; the state of the last one."""
    counted = "SELECT txid FROM report.batches WHERE topology = 'top_words' AND status = 'committed'"
    until(lambda: len(stack.sql(counted)) >= runs, "top_words does not run")
    newest = stack.api.dag_runs("top_words")[-1]
    return stack.end("top_words", newest["dag_run_id"])[0]


def test_a_commit_starts_the_topology_that_reads_its_state(stack: Stack, corpus: Path) -> None:
    """And that commit has an event of its own."""
    stack.api.unpause("top_words")
    (corpus / "chain.py").write_text("one two two three three three\n")
    first = stack.api.trigger("word_count", "chain-1")
    assert stack.end("word_count", first)[0] == "success"
    assert chained(stack, runs=1) == "success"
    assert stack.sql(TOP) == stack.sql(COUNTED)
    assert stack.announced("top_words") == [1]
