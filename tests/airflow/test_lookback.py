"""A late file in a real Airflow, read by a real Spark: the next run counts its day again, and says so in its note."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from airflow_support import TASKS, Stack

pytestmark = [pytest.mark.whole, pytest.mark.timeout(900)]


def test_a_late_file_is_counted_by_the_next_run_once(stack: Stack, pipeline_folder: Path) -> None:
    def ran(run_id: str, day: int) -> str:
        stack.api.trigger("lookback", run_id, logical_date=datetime(2024, 1, day + 1, 12, tzinfo=UTC))
        return ended(run_id)

    def ended(run_id: str) -> str:
        state, _ = stack.end("lookback", run_id)
        assert state == "success", [stack.log("lookback", run_id, task) for task in TASKS]
        return str(stack.api.dag_run("lookback", run_id)["note"]).removeprefix("txbatch: ")

    def comes(name: str, *days: int) -> None:
        lines = (f"2024-01-{day:02}T10:00:00Z,home\n" for day in days)
        (pipeline_folder / "days" / name).write_text("".join(lines))

    (pipeline_folder / "days").mkdir()
    comes("1.csv", 1, 1)
    assert ran("first", 1) == "txid 1, 2024-01-01 (UTC): 2 records, 1 key, 1 attempt"
    comes("2.csv", 2)
    comes("x.csv", 1, 1, 1)
    told = "txid 2, 2024-01-02 (UTC): 1 record, 1 key, 1 attempt; txid 3 restates txid 1: 5 records, 1 key"
    assert ran("second", 2) == told
    assert stack.sql("SELECT reason FROM report.restatements WHERE topology = 'lookback'") == [
        ("lookback: 3 records in x.csv",)
    ]
    (event,) = [
        each["extra"] for each in stack.api.asset_events(source_dag_id="lookback") if each["extra"]["txid"] == 2
    ]
    assert (event["txids"], event["restates"]) == ([2, 3], [1])
    stack.api.clear_run("lookback", "second")
    assert ended("second").startswith("already committed as txid 2")
    assert stack.sql("SELECT views FROM report.lookback") == [(6,)]
