"""`txbatch.reports`: what users read from Python, on the words of the module itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from postgres_bench import Bench, words
from sqlalchemy import Engine, make_url
from support import LogSpout, run

from txbatch import Avg, Count, OpaqueState, Topology
from txbatch.core.errors import TerminalError, UnknownName
from txbatch.reports import Reports
from txbatch.settings import Settings


@pytest.fixture
def reports(bench: Bench, postgres_url: str, tmp_path: Path) -> Reports:
    return Reports(Settings(tmp_path, postgres_url, "file:///nowhere"))


def test_batches_newest_first_and_frozen(bench: Bench, reports: Reports) -> None:
    bench.whole(words(dog=1, cat=1), "1")
    bench.whole(words(dog=1), "2")
    newest, first = reports.batches("word_count")
    assert (newest.txid, newest.status, newest.final, newest.keys) == (2, "committed", True, {"word_count": 1})
    assert reports.batches("word_count", limit=1) == [newest]
    assert reports.batch("word_count", 1) == first
    assert reports.batch("word_count", 3) is None
    with pytest.raises(FrozenInstanceError):
        newest.txid = 7  # type: ignore[misc]


def test_the_batch_of_a_run_is_the_newest_that_it_planned(bench: Bench, reports: Reports) -> None:
    assert reports.batch_of_run("word_count", "monday") is None
    of_dag = replace(run("monday"), dag_id="word_count", run_id="monday")
    head = bench.ledger.head("word_count", of_dag)
    metadata = {"streams": {"in": {"partitions": {"a": {"start": 0, "end": 1}}}}}
    planned = bench.ledger.plan(head, of_dag, metadata)
    assert planned is not None
    found = reports.batch_of_run("word_count", "monday")
    assert found is not None
    assert (found.txid, found.status, found.dag_id) == (planned.txid, "planned", "word_count")


def test_attempts_say_why_they_failed(bench: Bench, reports: Reports) -> None:
    assignment = bench.ledger.start_attempt(bench.planned(), run("run"), "code")
    bench.ledger.fail_attempt(assignment, "no such file")
    (attempt,) = reports.attempts("word_count")
    assert (attempt.attempt, attempt.status, attempt.error) == ("1:1", "failed", "no such file")


@pytest.mark.rule("R20")
def test_keys_are_answered_in_the_order_asked(bench: Bench, reports: Reports) -> None:
    bench.whole(words(dog=3, cat=1), "1")
    dog, none, cat = reports.query("word_count", ["dog", "none", ("cat",)])
    assert (dog.key, dog.found, dog.txid, dog.values) == (("dog",), True, 1, {"count": 3})
    assert (none.key, none.found, none.txid, none.values) == (("none",), False, None, {"count": None})
    assert cat.values == {"count": 1}


def test_keys_of_several_columns_are_tuples_and_a_global_value_has_none(reports: Reports, bench: Bench) -> None:
    topology = Topology("t")
    spout = LogSpout({"a": 9})
    spout.fields = "word string, amount int"
    stream = topology.new_stream("in", spout)
    stream.group_by("word", "amount").persistent_aggregate(OpaqueState("pairs"), found=Count())
    stream.persistent_aggregate(OpaqueState("all"), records=Count())
    other = Bench(bench.engine, topology)
    other.whole({"pairs": [(("a, b", 7), (2,))], "all": [((), (5,))]})
    (pair,) = reports.query("pairs", [("a, b", 7)])
    assert (pair.key, pair.found, pair.values) == (("a, b", "7"), True, {"found": 2})
    (whole,) = reports.query("all")
    assert (whole.key, whole.found, whole.values) == ((), True, {"records": 5})
    with pytest.raises(TerminalError, match="has 1 part; the state's keys are word, amount"):
        reports.query("pairs", ["a"])
    with pytest.raises(TerminalError, match="is one global value and has no key; ask without x"):
        reports.query("all", ["x"])


@pytest.mark.rule("R20")
def test_a_key_of_bytes_is_found_and_none_is_no_key(reports: Reports, bench: Bench) -> None:
    topology = Topology("t")
    spout = LogSpout({"a": 9})
    spout.fields = "mark binary"
    topology.new_stream("in", spout).group_by("mark").persistent_aggregate(OpaqueState("marks"), records=Count())
    Bench(bench.engine, topology).whole({"marks": [((b"ab",), (2,))]})
    (mark,) = reports.query("marks", [b"ab"])
    assert (mark.key, mark.values) == (("\\x6162",), {"records": 2})
    with pytest.raises(TerminalError, match="None is no part of a key"):
        reports.query("marks", [None])


def test_what_is_unknown_is_said_so(reports: Reports) -> None:
    for ask in (
        lambda: reports.batches("nosuch"),
        lambda: reports.attempts("nosuch"),
        lambda: reports.query("nosuch", ["a"]),
    ):
        with pytest.raises(UnknownName, match="nosuch"):
            ask()
    assert reports.batch("nosuch", 1) is None


@pytest.fixture
def reader(engine: Engine, postgres_url: str, tmp_path: Path) -> Iterator[Reports]:
    """Reports, asked by a role that has the schema report and nothing else."""
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE ROLE asks_reports LOGIN; GRANT USAGE ON SCHEMA report TO asks_reports;"
            "GRANT SELECT ON ALL TABLES IN SCHEMA report TO asks_reports;"
            "ALTER DEFAULT PRIVILEGES IN SCHEMA report GRANT SELECT ON TABLES TO asks_reports"
        )
    url = make_url(postgres_url).set(username="asks_reports").render_as_string(hide_password=False)
    yield Reports(Settings(tmp_path, url, "file:///nowhere"))
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP OWNED BY asks_reports; DROP ROLE asks_reports")


@pytest.mark.rule("R19", "R20")
def test_a_reader_of_reports_asks_all_that_a_writer_may(reader: Reports, bench: Bench, reports: Reports) -> None:
    topology = Topology("t")
    stream = topology.new_stream("in", LogSpout({"a": 90}))
    grouped = stream.each("1", "n int").group_by("word")
    grouped.persistent_aggregate(OpaqueState("means"), count=Count(), mean=Avg("n"))
    other = Bench(bench.engine, topology)
    for number, count in enumerate((3, 5, 7), 1):
        other.whole({"means": [(("dog",), (count, count, 2)), (("cat",), (1, 1, 1))]}, str(number))
    assert reader.query("means", ["dog", "none"]) == reports.query("means", ["dog", "none"])
    for corrected in (False, True):
        assert reader.as_of("means", 2, corrected=corrected) == reports.as_of("means", 2, corrected=corrected)
    assert reader.as_of("means", 2, ["dog"]) == reports.as_of("means", 2, ["dog"])
    assert reader.why("means", "dog") == reports.why("means", "dog")
    assert reader.why("means", "dog").equal is True
    assert reader.batches("t") == reports.batches("t")
    assert reader.attempts("t") == reports.attempts("t")
    with pytest.raises(UnknownName, match="has no key 'none'"):
        reader.why("means", "none")
    with pytest.raises(TerminalError, match="newest committed one is 3"):
        reader.as_of("means", 4)


@pytest.mark.rule("R19")
def test_a_reader_is_told_that_a_value_is_not_what_its_contributions_amount_to(reader: Reports, bench: Bench) -> None:
    bench.whole(words(dog=3, cat=1), "1")
    bench.run("UPDATE state.word_count SET count = 99 WHERE word = 'dog'")
    assert reader.why("word_count", "dog").equal is False
    assert reader.why("word_count", "cat").equal is True
    bench.run("DELETE FROM state.word_count WHERE word = 'cat'")
    assert reader.why("word_count", "cat").equal is False


def test_how_far_each_topology_is_and_what_waits(bench: Bench, reports: Reports) -> None:
    bench.whole(words(dog=1), "1")
    [standing] = reports.topologies()
    assert (standing.topology, standing.job, standing.by_interval) == ("word_count", "jobs/job.py", False)
    assert (standing.newest_txid, standing.current_to_txid, standing.whole_to) == (1, 1, None)
    assert (standing.in_flight, standing.failing, standing.waiting, standing.gaps) == (0, 0, 0, 0)
    assert standing.left_out == 0
    assert reports.waiting() == []
    assignment = bench.ledger.start_attempt(bench.planned("first"), run("first"), "code")
    bench.ledger.fail_attempt(assignment, "no such file")
    bench.run("INSERT INTO txbatch.waiting (topology, run, txid) VALUES ('word_count', 'second', 2)")
    [standing] = reports.topologies()
    assert (standing.newest_txid, standing.in_flight, standing.failing, standing.waiting) == (2, 1, 1, 1)
    [waits] = reports.waiting()
    assert (waits.run, waits.txid, waits.waits_for_txid, waits.waits_for_run) == ("second", None, 2, "first")
    assert (waits.status, waits.waits_for_status, waits.lease_live) == ("waiting", "planned", True)


@pytest.mark.rule("R6")
def test_a_run_that_works_on_its_batch_again_waits_once(bench: Bench, reports: Reports) -> None:
    """Another run worked on the batch for a while, so that the batch's own run waited, and has shown no sign of life since."""
    away = "UPDATE txbatch.batch SET lease_until = now() - interval '1 s' WHERE txid = 2"
    bench.topology.max_pending = 2
    bench.planned("first")
    batch = bench.planned("second")
    bench.run(away)
    assert bench.ledger.adopt(batch, run("heir")) is not None
    bench.ledger.note_wait(batch, run("second"))
    [waits] = reports.waiting()
    assert (waits.run, waits.txid, waits.waits_for_txid, waits.waits_for_run) == ("second", None, 2, "heir")
    bench.run(away)
    bench.emitted(words(dog=1), "second")
    [waits] = reports.waiting()
    assert (waits.run, waits.txid, waits.waits_for_txid, waits.waits_for_run) == ("second", 2, 1, "first")
    [standing] = reports.topologies()
    assert standing.waiting == 1
