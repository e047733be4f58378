"""The statements of docs/run/monitor.md find what is late, missing, failing or waiting, as a reader may ask them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from postgres_bench import Bench, words
from sqlalchemy import Engine
from support import LogSpout, run, word_count

from txbatch.core.batch.transaction import Interval, Run

PAGE = (Path(__file__).parents[2] / "docs" / "run" / "monitor.md").read_text(encoding="utf-8")
NAMES = ("freshness", "gaps", "failing", "waiting", "all")
STATEMENTS = dict(zip(NAMES, re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL), strict=True))
LONG_AGO = "UPDATE txbatch.attempt SET finished_at = finished_at - interval '2 hours'"


@dataclass(frozen=True)
class Watched:
    """A ledger, and the statements of the page on it."""

    bench: Bench

    def asked(self, name: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, asked as a role with the rights of a reader alone."""
        with self.bench.engine.connect() as connection:
            connection.exec_driver_sql("CREATE ROLE watcher")
            connection.exec_driver_sql("GRANT USAGE ON SCHEMA report TO watcher")
            connection.exec_driver_sql("GRANT SELECT ON ALL TABLES IN SCHEMA report TO watcher")
            connection.exec_driver_sql("SET LOCAL ROLE watcher")
            return [tuple(row) for row in connection.exec_driver_sql(STATEMENTS[name])]  # rolled back with the role


def counted(bench: Bench, *days: int) -> None:
    """Let the ledger have these days of 2013 as counted."""
    for day in days:
        interval = Interval(datetime(2013, 1, day, tzinfo=UTC), datetime(2013, 1, day + 1, tzinfo=UTC))
        of_day = Run(f"day {day}", interval=interval)
        head = bench.ledger.head(bench.topology.name, of_day)
        planned = bench.ledger.plan(head, of_day, {"streams": {"words": {"interval": str(interval)}}})
        assert planned is not None
        bench.ledger.skip(bench.topology.name, planned.txid, "only its interval matters here")


@pytest.fixture
def watched(engine: Engine) -> Watched:
    """A topology with room for two batches at once."""
    return Watched(Bench(engine, word_count(LogSpout({"a": 1_000_000}), max_pending=2)))


def test_no_statement_returns_a_row_while_all_is_well(watched: Watched) -> None:
    watched.bench.whole(words(dog=1), "1")
    assert {name: watched.asked(name) for name in NAMES[:4]} == {name: [] for name in NAMES[:4]}
    [(name, in_flight, failing, waiting, gaps, behind)] = watched.asked("all")
    assert (name, in_flight, failing, waiting, gaps) == ("word_count", 0, 0, 0, 0)
    assert 0 <= behind < 3600


def test_numbers_that_are_older_than_allowed_are_told(watched: Watched) -> None:
    assert [row[:2] for row in watched.asked("freshness")] == [("word_count", None)]
    counted(watched.bench, 1)
    [(name, counted_to, behind)] = watched.asked("freshness")
    assert (name, counted_to) == ("word_count", datetime(2013, 1, 2, tzinfo=UTC))
    assert behind.days > 365


def test_a_day_that_is_not_counted_is_told(watched: Watched) -> None:
    counted(watched.bench, 1, 3)
    [(name, start, end, txid, of_run)] = watched.asked("gaps")
    assert (name, start.day, end.day, txid, of_run) == ("word_count", 2, 3, None, None)


def test_a_failed_attempt_and_a_batch_behind_it_are_told(watched: Watched) -> None:
    bench = watched.bench
    for error in ("TX201 (try again): no such file", "TX301 (no retry helps): not a number"):
        assignment = bench.ledger.start_attempt(bench.planned("first"), run("first"), "code")
        bench.ledger.fail_attempt(assignment, error)
    bench.emitted(words(dog=1), "second")
    assert [row[:3] for row in watched.asked("failing")] == [("word_count", "1:2", "TX301")]
    assert watched.asked("waiting") == []
    bench.run(LONG_AGO)
    [(name, txid, of_run, for_txid, for_run, alive, waited)] = watched.asked("waiting")
    assert (name, txid, of_run, for_txid, for_run, alive) == ("word_count", 2, "second", 1, "first", True)
    assert waited.seconds >= 7200
    bench.run("UPDATE txbatch.attempt SET finished_at = now()", "UPDATE txbatch.batch SET lease_until = now()")
    assert [row[5] for row in watched.asked("waiting")] == [False]
