"""What people read."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from postgres_bench import Bench, words
from sqlalchemy import Engine
from support import LogSpout, run, word_count

from txbatch import Avg, Count, Max, SpoutKind, Sum
from txbatch.core.manifest import ReadPartition
from txbatch.core.transaction import Interval, Run
from txbatch.postgres.reader import Reader


def test_the_report_of_a_state_shows_finished_values(engine: Engine) -> None:
    spout = LogSpout({"a": 100})
    spout.fields = "word string, amount bigint, x double"
    bench = Bench(engine, word_count(spout, n=Count(), mean=Avg("amount"), total=Sum("x", scale=2), top=Max("amount")))
    rows = [(("dog",), (3, 7, 2, Decimal("1.10"), 5)), (("cat",), (1, None, 0, None, None))]
    bench.whole({"word_count": rows}, "1")
    assert bench.rows("SELECT * FROM report.word_count ORDER BY word") == [
        ("cat", 1, None, None, None, 1),
        ("dog", 3, Decimal("3.5000000000000000"), Decimal("1.10"), 5, 1),
    ]


@pytest.mark.rule("R19")
def test_a_row_says_which_txid_changed_it_last(bench: Bench) -> None:
    bench.whole(words(dog=1, cat=1), "1")
    bench.whole(words(dog=1), "2")
    assert bench.rows("SELECT * FROM report.word_count ORDER BY word") == [("cat", 1, 1), ("dog", 2, 2)]


@pytest.mark.rule("R2")
def test_a_day_between_days_is_a_gap(bench: Bench) -> None:
    def counted(day: int) -> None:
        interval = Interval(datetime(2013, 1, day, tzinfo=UTC), datetime(2013, 1, day + 1, tzinfo=UTC))
        of_day = Run(f"day {day}", interval=interval)
        head = bench.ledger.head("word_count", of_day)
        planned = bench.ledger.plan(head, of_day, {"streams": {"words": {"interval": str(interval)}}})
        assert planned is not None
        bench.ledger.skip("word_count", planned.txid, "only its interval matters here")

    for day in (1, 5, 3):
        counted(day)
    assert bench.rows("SELECT extract(day FROM gap_start), extract(day FROM gap_end) FROM report.gaps ORDER BY 1") == [
        (2, 3),
        (4, 5),
    ]
    assert Reader(bench.engine).status("word_count")[0]["gaps"] == 2
    counted(2)
    assert Reader(bench.engine).status("word_count")[0]["gaps"] == 1


def test_batches_and_attempts(bench: Bench) -> None:
    bench.whole(words(dog=1, cat=1), "1")
    aborted = bench.emitted(words(dog=1), "2")
    bench.ledger.abort("word_count", aborted.txid, "wrong day")
    failed = bench.planned("3")
    bench.ledger.fail_attempt(bench.ledger.start_attempt(failed, run("3"), "code"), "it fell over")
    listed = (
        "SELECT txid, kind, status, final, attempts, records, keys, run_id, reason FROM report.batches ORDER BY txid"
    )
    assert bench.rows(listed) == [
        (1, "ordinary", "committed", True, 1, 10, {"word_count": 2}, "1", None),
        (2, "ordinary", "aborted", False, 1, None, None, "2", "wrong day"),
        (3, "ordinary", "planned", False, 1, None, None, "3", None),
    ]
    attempts = "SELECT attempt, status, run, error, finished_at IS NULL FROM report.attempts ORDER BY txid, attempt_id"
    assert bench.rows(attempts) == [
        ("1:1", "committed", "1", None, False),
        ("2:1", "superseded", "2", None, False),
        ("3:1", "failed", "3", "it fell over", False),
    ]
    (duration,) = bench.rows("SELECT duration FROM report.batches WHERE txid = 1")[0]
    assert duration.total_seconds() >= 0


def test_a_committed_batch_is_final_only_when_all_before_it_are(engine: Engine) -> None:
    """Never the case by the protocol; the view does not rely on it."""
    bench = Bench(engine)
    bench.whole(words(dog=1), "1")
    bench.emitted(words(dog=1), "2")
    bench.run(
        "INSERT INTO txbatch.batch (topology, txid, position, key, metadata, lease_until, status, committed_at,"
        " committed_fence, fence, token) VALUES ('word_count', 3, 3, 'k', '{}', now(), 'committed', now(), 1, 1, 't')"
    )
    assert bench.rows("SELECT txid, final FROM report.batches ORDER BY 1") == [(1, True), (2, False), (3, False)]


@pytest.mark.rule("R13")
def test_partitions_and_completeness_show_the_hole_until_it_is_filled(engine: Engine) -> None:
    bench = Bench(engine, word_count(LogSpout({"a": 100, "b": 100}, kind=SpoutKind.OPAQUE)))
    bench.whole(words(dog=1), "1")
    hole: dict[str, Any] = {
        "streams": {"words": {"a": ReadPartition(10, "1")}},
        "unreadable": {"words": {"b": "broker down"}},
    }
    batch = bench.emitted(words(dog=1), "2", **hole)
    bench.commit(batch, words(dog=1))
    partitions = (
        "SELECT partition, txid, status, start_offset, end_offset, records, reason"
        " FROM report.partitions WHERE txid = 2 ORDER BY 1"
    )
    assert bench.rows(partitions) == [
        ("a", 2, "read", "10", "20", 10, None),
        ("b", 2, "unreadable", "10", "20", None, "broker down"),
    ]
    completeness = (
        "SELECT partition, consumed_to, current_to_txid, unreadable_since_txid FROM report.completeness ORDER BY 1"
    )
    assert bench.rows(completeness) == [("a", "20", 2, None), ("b", "10", 1, 2)]
    bench.whole(words(dog=1), "3")
    assert bench.rows(completeness) == [("a", "30", 3, None), ("b", "20", 3, None)]


def test_a_partition_that_could_never_be_read_is_shown_too(engine: Engine) -> None:
    bench = Bench(engine, word_count(LogSpout({"a": 100, "b": 100}, kind=SpoutKind.OPAQUE)))
    hole: dict[str, Any] = {
        "streams": {"words": {"a": ReadPartition(10, "1")}},
        "unreadable": {"words": {"b": "broker down"}},
    }
    for number in ("1", "2"):
        batch = bench.emitted(words(dog=1), number, **hole)
        bench.commit(batch, words(dog=1))
    completeness = (
        "SELECT partition, consumed_to, current_to_txid, unreadable_since_txid FROM report.completeness ORDER BY 1"
    )
    assert bench.rows(completeness) == [("a", "20", 2, None), ("b", None, None, 1)]
