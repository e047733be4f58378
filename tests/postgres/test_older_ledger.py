"""A ledger that an older version left, with batches in flight of every kind of plan, is carried on by this one.

ledgers/9e26a85.sql is what `fill` below stored when it ran with the code of commit 9e26a85, dumped by
`pg_dump --no-owner --no-privileges --no-comments --inserts`, without its comments and SET lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from postgres_bench import Bench
from sqlalchemy import Engine
from support import Keyed, ListSpout, LogSpout, code, manifest_of, run

from txbatch import Count, OpaqueState, SpoutKind, Topology
from txbatch.core.batch.manifest import check_manifest
from txbatch.core.batch.transaction import Batch, Interval, Run, TransactionAttempt
from txbatch.core.errors import PartitionUnreadable, RecordsGone, SchemaMismatch, TerminalError
from txbatch.core.protocol import coordinator
from txbatch.core.protocol.coordinator import NothingNew
from txbatch.core.protocol.skip import check_gone
from txbatch.core.sources.spout import Metadata
from txbatch.core.stored_json import canonical_json
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import migrate
from txbatch.postgres.database.queries import sql_root

LEDGERS = Path(__file__).parent / "ledgers"
ONE: Sequence[Keyed] = [(("dog",), (1,))]


class Log(LogSpout):
    """Partition `away` cannot be asked, of `cut` the next records are gone."""

    def partitions(self) -> Sequence[str]:
        return ["a", "b", "away", "cut"]

    def emit_partition_batch_new(
        self, attempt: TransactionAttempt, partition: str, last_metadata: Metadata | None
    ) -> Metadata | None:
        if partition == "away":
            raise PartitionUnreadable("away is down")
        if partition == "cut":
            return {"start": 0, "end": 7, "gone": "kept for a week"} if attempt.txid == 4 else None
        return super().emit_partition_batch_new(attempt, partition, last_metadata)


class Days(ListSpout):
    """Reads by time; plans what it is asked."""

    by_interval, parameters = True, ("top",)

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        return {**curr_metadata, "files": {"a.csv": 7}, "start": 0, "end": 7}


def log() -> Topology:
    """Partitions, one of them away, one cut off."""
    return counted("log", 4, log=Log({"a": 25, "b": 15}, kind=SpoutKind.OPAQUE))


def lists() -> Topology:
    """Two streams without partitions, one of which soon has nothing new."""
    return counted("lists", 2, long=ListSpout(5, 5, 5), short=ListSpout(5))


def days() -> Topology:
    """By interval, with a parameter."""
    return counted("days", 2, days=Days())


def counted(name: str, max_pending: int, **spouts: Any) -> Topology:
    topology = Topology(name, max_pending)
    for stream, spout in spouts.items():
        grouped = topology.new_stream(stream, spout).group_by("word")
        grouped.persistent_aggregate(OpaqueState(f"{name}_{stream}"), count=Count())
    return topology


def day(number: int) -> Run:
    start, end = (datetime(2013, 1, each, tzinfo=UTC) for each in (number, number + 1))
    return Run(f"day {number}", interval=Interval(start, end), parameters={"top": 3})


def fill(engine: Engine) -> None:
    """One batch of each topology committed, those after it in flight."""
    of_log, of_lists, of_days = (Bench(engine, make()) for make in (log, lists, days))
    for bench, runs in ((of_log, [run("1"), run("2")]), (of_lists, [run("1"), run("2")]), (of_days, [day(1), day(2)])):
        for each in runs:
            emit(bench, plan(bench, each), each)
        commit(bench, bench.ledger.batch(bench.topology.name, 1))
    for each in (run("3"), run("4")):
        plan(of_log, each)
    of_log.ledger.start_attempt(of_log.ledger.batch("log", 3), run("3"), code())


def plan(bench: Bench, of: Run) -> Batch:
    batch = coordinator.initialize_transaction(bench.ledger, bench.topology, of)
    assert isinstance(batch, Batch)
    return batch


def emit(bench: Bench, batch: Batch, of: Run) -> None:
    assignment = bench.ledger.start_attempt(batch, of, code())
    bench.ledger.record_manifests([(assignment, manifest_of(bench.topology, assignment, partials(bench)))])


def commit(bench: Bench, batch: Batch) -> None:
    assert bench.commit(batch, partials(bench))


def partials(bench: Bench) -> dict[str, Sequence[Keyed]]:
    return {each.state.name: ONE for each in bench.topology.aggregates}


@pytest.fixture(params=["9e26a85", None])
def older(request: pytest.FixtureRequest, engine: Engine, databases: Callable[[str], str]) -> Engine:
    """The ledger of that commit, migrated; and one that today's code filled in the same way."""
    if request.param is None:
        fill(engine)
        return engine
    restored = connect(databases("older"))
    with restored.begin() as connection:
        connection.connection.cursor().execute((LEDGERS / f"{request.param}.sql").read_text(encoding="utf-8"))
        connection.connection.cursor().execute("RESET search_path")
    migrate(restored)
    return restored


def again(engine: Engine, make: Callable[[], Topology]) -> Bench:
    """A later process, long after whoever filled the ledger is gone."""
    bench = Bench(engine, make())
    bench.run("UPDATE txbatch.batch SET lease_until = now() - interval '1 s' WHERE lease_until > now()")
    return bench


def metadata(bench: Bench) -> list[Any]:
    return [row[0] for row in bench.rows("SELECT metadata::text FROM txbatch.batch ORDER BY topology, txid")]


def state(bench: Bench, name: str) -> list[tuple[Any, ...]]:
    return bench.rows(f"SELECT word, count FROM report.{name}")


@pytest.mark.rule("R2", "R5")
def test_batches_in_flight_keep_their_plans_and_their_digests(older: Engine) -> None:
    bench = again(older, log)
    stored = metadata(bench)
    for make, runs in ((log, [run("2"), run("3"), run("4")]), (lists, [run("2")]), (days, [day(2)])):
        bench = again(older, make)
        for each in runs:
            batch = plan(bench, each)
            assert canonical_json(batch.metadata) in stored
    for bench in (again(older, make) for make in (log, lists, days)):
        assignment, manifest = bench.ledger.newest_attempt(bench.ledger.batch(bench.topology.name, 2))
        assert manifest is not None
        check_manifest(manifest, assignment)
        assert manifest.metadata_digest == assignment.digest
    assert metadata(bench) == stored


@pytest.mark.rule("R25")
def test_what_was_behind_is_so_still(databases: Callable[[str], str]) -> None:
    """What no batch could read, and what aborted ones were to, unless it was read since."""
    restored = connect(databases("behind"))
    aborted = "UPDATE txbatch.batch SET status = 'aborted', aborted_at = now(), reason = 'a test'"
    with restored.begin() as connection:
        connection.connection.cursor().execute((LEDGERS / "9e26a85.sql").read_text(encoding="utf-8"))
        connection.connection.cursor().execute("RESET search_path")
        connection.connection.cursor().execute(
            f"{aborted} WHERE txid > 2; {aborted} WHERE topology = 'days' AND txid = 2"
        )
    migrate(restored)
    found = Bench(restored, log()).rows("SELECT * FROM txbatch.behind ORDER BY partition")
    restored.dispose()
    assert found == [("log", "log", "a", 3), ("log", "log", "away", 1), ("log", "log", "cut", 4)]


@pytest.mark.rule("R6", "R13", "R16")
def test_partitions_are_carried_on(older: Engine) -> None:
    """What is emitted is committed as it is, what was begun is emitted anew, what is gone is given up; then new plans follow."""
    bench = again(older, log)
    commit(bench, plan(bench, run("2")))
    third = plan(bench, run("3"))
    emit(bench, third, run("3"))
    commit(bench, bench.ledger.batch("log", 3))
    gone = bench.ledger.start_attempt(plan(bench, run("4")), run("4"), code())
    with pytest.raises(RecordsGone, match=r"log 4:1: records 0 to 7 of partition 'cut' are gone: kept for a week"):
        check_gone(gone)
    bench.ledger.skip("log", 4, "kept for a week")
    assert state(bench, "log_log") == [("dog", 3)]
    assert isinstance(coordinator.initialize_transaction(bench.ledger, bench.topology, run("5")), NothingNew)
    spout = bench.topology.streams["log"].spout
    assert isinstance(spout, Log)
    spout.lengths |= {"a": 26, "b": 16}
    after = plan(bench, run("5")).metadata["streams"]["log"]
    assert after["partitions"] == {"a": {"start": 25, "end": 26}, "b": {"start": 15, "end": 16}}
    assert after["continues"] == ["a", "b"]


@pytest.mark.rule("R3", "R6")
def test_streams_without_partitions_are_carried_on(older: Engine) -> None:
    """The plan of the next batch continues the last one of its stream, also of one that is idle since."""
    bench = again(older, lists)
    commit(bench, plan(bench, run("2")))
    third = plan(bench, run("3")).metadata
    assert third["streams"] == {"long": {"plan": {"number": 2, "start": 10, "end": 15}}}
    assert third["idle"] == {"short": {"plan": {"number": 0, "start": 0, "end": 5}}}
    assert (state(bench, "lists_long"), state(bench, "lists_short")) == ([("dog", 2)], [("dog", 2)])


@pytest.mark.rule("R19")
def test_what_was_counted_before_has_a_past(older: Engine) -> None:
    """Functions and views of a state are made when its job is registered again; what was read is told of every kind of plan."""
    reads = "SELECT position, txid, counts, count, reads FROM report.why_{0}('dog')"
    for make, name, read in (
        (log, "log_log", ["a 0-10", "b 0-10"]),
        (lists, "lists_long", []),
        (days, "days_days", ["a.csv"]),
    ):
        bench = again(older, make)
        assert bench.rows(f"SELECT word, count, txid FROM report.as_of_{name}(1)") == [("dog", 1, 1)]
        assert bench.rows(f"SELECT word FROM report.as_of_{name}(0)") == []
        assert bench.rows(reads.format(name)) == [(1, 1, True, 1, read)]


class Partitioned(LogSpout):
    """The source of a ListSpout, read by partitions."""

    @property
    def identity(self) -> Metadata:
        return {"spout": "ListSpout"}


class OfLog(ListSpout):
    """The source of a LogSpout, read as a whole."""

    @property
    def identity(self) -> Metadata:
        return {"spout": "LogSpout"}


@pytest.mark.rule("R2")
def test_a_stream_reads_by_what_it_read(older: Engine) -> None:
    lists_, log_ = (
        counted("lists", 2, long=Partitioned({"a": 99}), short=ListSpout(5)),
        counted("log", 4, log=OfLog(99, kind=SpoutKind.OPAQUE)),
    )
    for changed, reads, before in ((lists_, "partitions", "whole"), (log_, "whole", "partitions")):
        says = f"""reads {{"reads":"{reads}"}}, but its batches were read from {{"reads":"{before}"}}"""
        with pytest.raises(SchemaMismatch, match=says):
            Bench(older, changed)
    again(older, days).ledger.check_definition(days(), "jobs/job.py")


def test_how_streams_read_is_told_by_their_plans(engine: Engine) -> None:
    """As the migration finds them that begins to keep it: plans of today's format, one stream idle since."""
    fill(engine)
    bench, sources = Bench(engine, lists()), "SELECT topology, source::jsonb FROM txbatch.topology ORDER BY topology"
    stored = bench.rows(sources)
    assert {stream["reads"] for _, source in stored for stream in source.values()} == {
        "partitions",
        "whole",
        "interval",
    }
    bench.run("""UPDATE txbatch.topology SET source = (
        SELECT json_object_agg(key, value::jsonb - 'reads') FROM json_each(source))""")
    assert bench.rows(sources) != stored
    bench.run((sql_root() / "migrations" / "0006_reads.sql").read_text(encoding="utf-8"))
    assert bench.rows(sources) == stored


@pytest.mark.rule("R2", "R6")
def test_intervals_are_carried_on(older: Engine) -> None:
    """A lost interval is run again, and is not held up by the others."""
    bench = again(older, days)
    with pytest.raises(TerminalError, match=r"asks for txid 2 with parameters \{\}, it was planned with"):
        plan(bench, replace(day(2), parameters={}))
    commit(bench, plan(bench, day(2)))
    third = plan(bench, day(3))
    assert third.txid == 3
    assert third.metadata["streams"]["days"]["interval"][0] == "2013-01-03T00:00:00+00:00"
    bench.ledger.abort("days", 3, "once more")
    assert plan(bench, day(3)).txid == 4
    assert state(bench, "days_days") == [("dog", 2)]
