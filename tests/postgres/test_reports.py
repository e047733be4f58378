"""What people read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from postgres_bench import Bench, words
from sqlalchemy import Engine
from support import LogSpout, manifest_of, run, word_count

from txbatch import Avg, Count, Max, OpaqueState, SpoutKind, Sum, Topology
from txbatch.core.batch.manifest import ReadPartition
from txbatch.core.batch.transaction import Batch, Interval, Run
from txbatch.core.errors import DefinitionError, NotItsTurn, SchemaMismatch
from txbatch.core.protocol import coordinator
from txbatch.postgres.reading.ledger_reader import LedgerReader


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
    assert LedgerReader(bench.engine).status("word_count")[0]["gaps"] == 2
    counted(2)
    assert LedgerReader(bench.engine).status("word_count")[0]["gaps"] == 1


def of_day(day: int) -> Run:
    return Run(
        f"day {day}", interval=Interval(datetime(2013, 1, day, tzinfo=UTC), datetime(2013, 1, day + 1, tzinfo=UTC))
    )


@pytest.mark.rule("R2")
def test_a_day_that_a_batch_holds_and_has_not_counted_is_a_gap(bench: Bench) -> None:
    def planned(day: int) -> Batch:
        run = of_day(day)
        batch = bench.ledger.plan(
            bench.ledger.head("word_count", run), run, {"streams": {"words": {"interval": str(run.interval)}}}
        )
        assert batch is not None
        return batch

    for day in (1, 6):
        bench.ledger.skip("word_count", planned(day).txid, "only its interval matters here")
    assignment = bench.ledger.start_attempt(planned(3), of_day(3), "code")
    bench.ledger.fail_attempt(assignment, "it fell over")
    planned(7)  # after all that is counted: under way, and no gap
    listed = "SELECT extract(day FROM gap_start), extract(day FROM gap_end), txid, status, attempt_status, run FROM report.gaps"
    assert bench.rows(f"{listed} ORDER BY 1") == [
        (2, 3, None, None, None, None),
        (3, 4, assignment.attempt.txid, "planned", "failed", "day 3"),
        (4, 6, None, None, None, None),
    ]
    whole_to = "SELECT stream, partition, consumed_to, current_to_txid FROM report.completeness"
    assert bench.rows(whole_to) == [("words", "", "2013-01-02T00:00:00Z", 2)]


def test_what_each_batch_contributed(engine: Engine) -> None:
    spout = LogSpout({"a": 100})
    spout.fields = "word string, amount bigint"
    bench = Bench(engine, word_count(spout, n=Count(), mean=Avg("amount")))
    bench.whole({"word_count": [(("dog",), (3, 7, 2))]}, "1")
    bench.whole({"word_count": [(("dog",), (1, 1, 1)), (("cat",), (1, None, 0))]}, "2")
    changes = "SELECT word, n, mean, txid, committed_at IS NOT NULL, interval_start FROM report.word_count_changes"
    assert bench.rows(f"{changes} ORDER BY word, txid") == [
        ("cat", 1, None, 2, True, None),
        ("dog", 3, Decimal("3.5000000000000000"), 1, True, None),
        ("dog", 1, Decimal("1.00000000000000000000"), 2, True, None),
    ]


def test_a_state_from_before_goes_on_with_keys_and_values_called_as_columns_of_the_batch(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    spout = LogSpout({"a": 100})
    spout.fields = "Interval_Start string"
    topology = Topology("odd")
    stream = topology.new_stream("in", spout).group_by("Interval_Start")
    stream.persistent_aggregate(OpaqueState("odd"), committed_at=Count())
    with pytest.raises(
        DefinitionError, match=r"column 'Interval_Start' of state 'odd' is reserved: report.odd_changes has"
    ):
        Bench(engine, topology)
    with monkeypatch.context() as before:
        before.setattr("txbatch.core.definition.changes._check_reported", lambda _: None)
        Bench(engine, topology)
    bench = Bench(engine, topology)
    bench.whole({"odd": [(("x",), (3,))]}, "1")
    assert bench.rows("SELECT * FROM report.odd_changes") == [("x", 3, 1, None, 1, None)]


def test_a_state_from_before_gets_its_view_of_changes(bench: Bench) -> None:
    bench.whole(words(dog=1), "1")
    bench.run("DROP VIEW report.word_count_changes")
    bench.ledger.register(bench.topology, "jobs/job.py")
    assert bench.rows("SELECT word, count, txid FROM report.word_count_changes") == [("dog", 1, 1)]


def test_no_view_takes_anothers_name(engine: Engine) -> None:
    Bench(engine).whole(words(dog=1), "1")
    topology = Topology("other")
    stream = topology.new_stream("in", LogSpout({"a": 1})).group_by("word")
    stream.persistent_aggregate(OpaqueState("word_count_changes"), count=Count())
    with pytest.raises(SchemaMismatch, match=r"'word_count_changes': report\.word_count_changes is there already"):
        Bench(engine, topology)


def test_every_view_and_column_says_what_it_means(bench: Bench) -> None:
    silent = """SELECT c.oid::regclass::text, attname FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid AND attnum > 0
                 WHERE relnamespace = 'report'::regnamespace
                   AND (col_description(c.oid, attnum) IS NULL OR obj_description(c.oid, 'pg_class') IS NULL)"""
    assert bench.rows(silent) == []


def test_the_records_that_filters_kept(engine: Engine) -> None:
    bench = Bench(engine)
    partials = words(dog=1)
    batch = bench.planned("1")
    assignment = bench.ledger.start_attempt(batch, run("1"), "code")
    manifest = manifest_of(bench.topology, assignment, partials)
    states = {name: replace(state, kept=7) for name, state in manifest.states.items()}
    bench.commit(bench.ledger.record_manifests([(assignment, replace(manifest, states=states))])[0], partials)
    bench.whole(partials, "2")
    assert bench.rows("SELECT txid, records, kept FROM report.batches ORDER BY 1") == [
        (1, 10, {"word_count": 7}),
        (2, 10, None),
    ]


@pytest.mark.rule("R6")
def test_an_adopted_batch_names_who_planned_it_and_who_looks_after_it(bench: Bench) -> None:
    first, heir = (Run(f"airflow:word_count:{run_id}", "word_count", run_id) for run_id in ("a", "b"))
    batch = coordinator.initialize_transaction(bench.ledger, bench.topology, first)
    assert isinstance(batch, Batch)
    bench.run("UPDATE txbatch.batch SET lease_until = now() - interval '1 s'")
    assert bench.ledger.adopt(batch, heir) is not None
    assert bench.rows("SELECT run_id, run FROM report.batches") == [("a", "airflow:word_count:b")]


def test_what_is_current_is_found_by_an_index(bench: Bench) -> None:
    bench.run(
        "INSERT INTO txbatch.batch (topology, txid, position, key, metadata, lease_until, status, aborted_at, reason)"
        " SELECT 'word_count', n, n, n::text, '{}', now(), 'aborted', now(), 'none' FROM generate_series(1, 5000) n",
        "INSERT INTO txbatch.batch_key SELECT 'word_count', n::text, 1, n FROM generate_series(1, 5000) n",
        "ANALYZE txbatch.batch, txbatch.batch_key",
    )
    fresh = "SELECT max(txid), max(committed_at) FROM report.batches WHERE status = 'aborted'"
    plan = "\n".join(row[0] for row in bench.rows(f"EXPLAIN {fresh}"))
    assert "batch_key_txid" in plan or "batch_key" not in plan, plan


def test_the_newest_batches_of_many_are_found_by_an_index(bench: Bench) -> None:
    """Of 20,000: what `txbatch batches`, `status` and each page ask for."""
    bench.run(
        "INSERT INTO txbatch.batch (topology, txid, position, key, metadata, lease_until, status, committed_at, committed_fence, "
        "fence, token) SELECT 'word_count', n, n, n, '{}', now(), 'committed', now(), 1, 1, 't' FROM generate_series(1, 20000) n",
        "INSERT INTO txbatch.batch_key (topology, key, ordinal, txid) SELECT topology, txid::text, 1, txid FROM txbatch.batch",
        "ANALYZE txbatch.batch, txbatch.batch_key",
    )
    newest = "SELECT * FROM report.batches WHERE topology = 'word_count' ORDER BY txid DESC LIMIT 60"
    ((plan,),) = bench.rows(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {newest}")
    told = plan[0]["Plan"]
    assert told["Shared Hit Blocks"] + told["Shared Read Blocks"] <= 2_000


def test_no_report_says_a_word_that_keeps_it_from_its_indexes(bench: Bench) -> None:
    views = bench.rows("SELECT viewname, definition FROM pg_views WHERE schemaname = 'report'")
    assert [name for name, definition in views if "clock_timestamp" in definition] == []


def test_batches_and_attempts(bench: Bench) -> None:
    bench.whole(words(dog=1, cat=1), "1")
    aborted = bench.emitted(words(dog=1), "2")
    bench.ledger.abort("word_count", aborted.txid, "wrong day")
    failed = bench.planned("3")
    bench.ledger.fail_attempt(bench.ledger.start_attempt(failed, run("3"), "code"), str(NotItsTurn("t waits")))
    listed = (
        "SELECT txid, kind, status, final, attempts, records, keys, run_id, reason FROM report.batches ORDER BY txid"
    )
    assert bench.rows(listed) == [
        (1, "ordinary", "committed", True, 1, 10, {"word_count": 2}, "1", None),
        (2, "ordinary", "aborted", False, 1, None, None, "2", "wrong day"),
        (3, "ordinary", "planned", False, 1, None, None, "3", None),
    ]
    attempts = "SELECT attempt, status, run, error, error_code, finished_at IS NULL FROM report.attempts ORDER BY 1"
    assert bench.rows(attempts) == [
        ("1:1", "committed", "1", None, None, False),
        ("2:1", "superseded", "2", None, None, False),
        ("3:1", "failed", "3", "TX402 (try again): t waits", "TX402", False),
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


@pytest.mark.parametrize(
    ("consumed", "told"),
    [
        ('{"end": 10, "kept": 4, "seen": 25}', (15, "4")),
        ('{"end": 10, "kept": 4}', (0, "4")),
        ('{"end": 10, "seen": 25}', (None, None)),
        ('{"end": "f", "kept": "e"}', (None, "e")),
    ],
)
def test_lag_and_what_is_kept_are_told_of_sources_that_say_so(engine: Engine, consumed: str, told: Any) -> None:
    """A spout of a user may mean something else by the names."""
    bench = Bench(engine, word_count(LogSpout({"a": 100})))
    bench.whole(words(dog=1), "1")
    bench.run(f"UPDATE txbatch.consumed SET metadata = '{consumed}'")
    assert bench.rows("SELECT lag, kept_from FROM report.completeness") == [told]


def test_a_partition_that_is_listed_no_more_is_told_until_it_is_back(engine: Engine) -> None:
    """In the report and by status; since the first plan that lacked it after it was read last."""
    spout = LogSpout({"a": 100, "b": 100, "c": 10})
    bench = Bench(engine, word_count(spout))
    missing = (
        "SELECT partition, b.txid FROM report.completeness c"
        " LEFT JOIN txbatch.batch b ON b.created_at = missing_since ORDER BY 1"
    )

    def told() -> list[tuple[str, list[str]]]:
        (row,) = LedgerReader(engine).status("word_count")
        return [(each["stream"], each["partitions"]) for each in row["vanished"]]

    bench.whole(words(dog=1), "1")
    assert bench.rows(missing) == [("a", None), ("b", None), ("c", None)]
    for number in ("2", "3"):
        spout.lengths.pop("b", None)
        bench.whole(words(dog=1), number)
    assert bench.rows(missing) == [("a", None), ("b", 2), ("c", None)]
    assert told() == [("words", ["b"])]
    spout.lengths = {"a": 100, "b": 100}
    bench.whole(words(dog=1), "4")
    assert bench.rows(missing) == [("a", None), ("b", None), ("c", 4)]
    assert told() == [("words", ["c"])]
    spout.lengths = {"a": 100, "c": 10}
    bench.emitted(words(dog=1), "5")
    assert bench.rows(missing) == [("a", None), ("b", 5), ("c", None)]
    assert told() == [("words", ["b"])]


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
