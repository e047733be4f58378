"""A topology by time whose runs an asset starts, on a real Airflow; its cases are in tests/orchestration/test_asset_runs.py."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from airflow_support import TASKS, Stack
from support import until

pytestmark = pytest.mark.timeout(600)


def run_by_event(stack: Stack, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Send an event and wait until the run of this number, by age, has ended; the run, and the states of its tasks."""
    stack.api.create_asset_event("landed_upstream", {})
    run = until(lambda: stack.api.dag_runs("landed")[number - 1 :], "no run starts")[-1]
    state, tasks = stack.end("landed", run["dag_run_id"])
    assert state == "success"
    noted = until(lambda: (each := stack.api.dag_runs("landed")[number - 1])["note"] and each, "no note is written")
    return noted, dict(tasks)


def test_an_event_starts_a_run_that_counts_each_interval_that_is_over(stack: Stack) -> None:
    """The second event finds nothing to count, and is skipped."""
    years = [(datetime(year, 1, 1, tzinfo=UTC),) for year in range(2024, datetime.now(UTC).year)]
    run, tasks = run_by_event(stack, 1)
    assert (run["run_type"], run["logical_date"]) == ("asset_triggered", None)
    assert tasks == dict.fromkeys(TASKS, "success")
    assert stack.sql("SELECT interval_start FROM report.batches WHERE topology = 'landed' ORDER BY txid") == years
    assert run["note"].startswith("txbatch: txids 1 to ")
    assert f"{len(years)} batches, {len(years)} records" in run["note"]

    run, tasks = run_by_event(stack, 2)
    assert tasks == dict.fromkeys(TASKS, "skipped")
    assert run["note"].startswith("txbatch: nothing to count: ")
    assert len(stack.sql("SELECT FROM report.batches WHERE topology = 'landed'")) == len(years)
