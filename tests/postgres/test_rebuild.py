"""Rebuild (R23): a new generation of a topology's states beside the one that counts, and the swap."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from postgres.test_restate import restated
from postgres_bench import Bench, Calls, raw_connection, words
from psycopg2 import Error
from refusals import refused
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError
from support import LogSpout, code, manifest_of, record_batch, until, word_count

from txbatch import Count, Max, OpaqueState, Topology
from txbatch.core.aggregates.merger import Merger
from txbatch.core.batch.manifest import ReadPartition
from txbatch.core.batch.transaction import Assignment, BatchStatus, TransactionAttempt
from txbatch.core.corrections.rebuild import Behind, Rebuild, Swapped, Watched
from txbatch.core.errors import ChangeTooEarly, SchemaMismatch, StaleAttempt, TerminalError, Unavailable, UnknownName
from txbatch.core.state.fold import Contribution, fold
from txbatch.core.state.update import Change
from txbatch.postgres.corrections import swap
from txbatch.postgres.corrections.rebuild import PostgresRebuilds
from txbatch.postgres.database.migrate import migrations
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.reading.history_reader import HistoryReader
from txbatch.postgres.schema import state_tables

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"
NEXT = "SELECT nspname::text FROM pg_namespace WHERE nspname LIKE '%\\_next\\_%' OR nspname LIKE '%\\_past\\_%'"
REPORT = "SELECT * FROM report.word_count ORDER BY word"
Partials = Mapping[str, Any]


def longest(**aggregates: Any) -> Topology:
    """The words counted, and one more aggregate."""
    return word_count(LogSpout({"a": 1_000_000}), count=Count(), most=Max("word"), **aggregates)


def counted(**counts: int) -> Partials:
    """What a batch contributes by that definition."""
    return {"word_count": [((word,), (count, word)) for word, count in counts.items()]}


class Rebuilding:
    """A rebuild of the bench's topology by another definition."""

    def __init__(self, bench: Bench, topology: Topology | None = None) -> None:
        self.rebuilds, self.topology, self.bench = PostgresRebuilds(bench.engine), topology or longest(), bench
        self.rebuild = self.begin()

    def begin(self, why: str = "one more") -> Rebuild:
        return self.rebuilds.begin(self.topology, "jobs/job.py", code("new"), why, "ann")

    def count(self, *partials: Partials) -> list[int]:
        """Count the next versions by these partials; return their txids."""
        return [self.count_next(each) for each in partials]

    def count_next(self, partials: Partials, **changes: Any) -> int:
        version = self.rebuilds.next(self.rebuild)
        assert version is not None
        attempt = TransactionAttempt(version.txid, 1)
        assignment = Assignment(self.topology.name, attempt, uuid4().hex, version.metadata, code("new"))
        manifest = manifest_of(self.topology, assignment, partials, **changes)
        arrow = {each.state.name: [record_batch(each, partials[each.state.name])] for each in self.topology.aggregates}
        assert self.rebuilds.count(self.rebuild, self.topology, assignment, manifest, arrow)
        return version.txid

    def swap(self) -> Any:
        return self.rebuilds.swap(self.rebuild, self.topology)

    def commit(self, partials: Partials, name: str) -> None:
        """Commit a batch by the new definition."""
        after = Bench(self.bench.engine, self.topology)
        after.whole(partials, name)


@pytest.mark.rule("R1", "R23")
def test_a_commit_shares_the_topology_with_plans_and_waits_for_who_has_it_alone(
    bench: Bench, postgres_url: str
) -> None:
    first, calls = bench.emitted(words(man=1)), Calls()
    with raw_connection(postgres_url) as alone, raw_connection(postgres_url) as plan:
        plan.cursor().execute("SELECT FROM txbatch.topology FOR NO KEY UPDATE")
        assert bench.commit(first, words(man=1))
        plan.rollback()
        second = bench.emitted(words(dog=1), "second")
        alone.cursor().execute("SELECT FROM txbatch.topology FOR UPDATE")
        calls.start("commit", lambda: bench.commit(second, words(dog=1)))
        until(lambda: bench.rows(WAITING) == [(1,)], "the commit does not wait")
        with raw_connection(postgres_url) as other:  # the batch's row is free: the topology's is the first lock
            other.cursor().execute("SELECT FROM txbatch.batch WHERE txid = 2 FOR UPDATE NOWAIT")
        assert bench.ledger.batch("word_count", 2).status is BatchStatus.EMITTED
        alone.rollback()
    assert calls.join() == {"commit": True}


@pytest.mark.rule("R23", "R19")
def test_one_more_aggregate_counts_all_history_and_the_report_is_never_empty(bench: Bench) -> None:
    bench.whole(words(man=1, dog=1), "1")
    bench.whole(words(man=2), "2")
    bench.run("CREATE ROLE analyst", "GRANT SELECT ON report.word_count TO analyst")
    bench.run("CREATE VIEW public.mine AS SELECT word, count FROM report.word_count")
    rebuilding = Rebuilding(bench)
    assert rebuilding.count(counted(man=1, dog=1)) == [1]
    assert rebuilding.swap() == Behind()
    bench.whole(words(dog=4), "3")  # by the old definition, which still counts
    assert bench.rows(REPORT) == [("dog", 5, 3), ("man", 3, 2)]
    assert str(rebuilding.rebuilds.progress(rebuilding.rebuild)) == "1 of 3 batches are counted"
    assert rebuilding.count(counted(man=2), counted(dog=4)) == [2, 3]
    with pytest.raises(ChangeTooEarly, match="rebuild 1 of 'word_count' by"):
        bench.ledger.change(word_count(LogSpout({"a": 1}), most=Count(was="count")), "jobs/job.py", "why")
    with pytest.raises(SchemaMismatch, match="value 'most' of state 'word_count' is new"):
        bench.ledger.check_definition(rebuilding.topology, "jobs/job.py")
    assert rebuilding.swap() == Swapped(3)
    assert bench.rows(REPORT) == [("dog", 5, 3, "dog"), ("man", 3, 2, "man")]
    assert bench.rows("SELECT * FROM public.mine ORDER BY word") == [("dog", 5), ("man", 3)]
    assert bench.rows("SELECT has_table_privilege('analyst', 'report.word_count', 'SELECT')") == [(True,)]
    assert bench.rows("SELECT status, counted, swapped_txid, why, requested_by, past_kept FROM report.rebuilds") == [
        ("swapped", 3, 3, "one more", "ann", True)
    ]
    past = f"SELECT word, count, txid FROM state_past_{rebuilding.rebuild.number}.word_count ORDER BY word"
    assert bench.rows(past) == [("dog", 5, 3), ("man", 3, 2)]
    with pytest.raises(SchemaMismatch, match="value 'most' of state 'word_count' is gone"):
        bench.planned("4")
    rebuilding.commit(counted(cat=1), "5")
    assert bench.rows("SELECT word, most, txid FROM report.word_count_changes ORDER BY txid, word") == [
        ("dog", "dog", 1),
        ("man", "man", 1),
        ("man", "man", 2),
        ("dog", "dog", 3),
        ("cat", "cat", 4),
    ]
    assert bench.rows("SELECT missed FROM report.state_coverage") == [(0,)]
    bench.run("DROP VIEW public.mine", "DROP OWNED BY analyst", "DROP ROLE analyst")


@pytest.mark.rule("R23")
def test_a_new_state_joins_with_all_history_and_one_that_is_gone_leaves_its_past(bench: Bench) -> None:
    bench.whole(words(man=1), "1")
    other = Topology("word_count")
    grouped = other.new_stream("words", LogSpout({"a": 1_000_000})).group_by("word")
    grouped.persistent_aggregate(OpaqueState("others", contributions=False), guarantee="at_least_once", count=Count())
    rebuilding = Rebuilding(bench, other)
    rebuilding.count({"others": [(("man",), (7,))]})
    assert rebuilding.swap() == Swapped(1)
    assert bench.rows("SELECT * FROM report.others") == [("man", 7, 1)]
    assert bench.rows("SELECT to_regclass('report.word_count'), to_regclass('report.word_count_changes')") == [
        (None, None)
    ]
    rebuilding.commit({"others": [(("man",), (1,))]}, "2")
    assert bench.rows("SELECT * FROM report.others") == [("man", 8, 2)]
    with transaction(bench.engine) as connection:
        assert state_tables.drop(connection, "word_count") == ["others"]
    assert bench.rows(NEXT) == []


@pytest.mark.rule("R23")
@pytest.mark.parametrize("refusal", ["TX601", "TX102"])
def test_a_job_that_is_refused_while_a_rebuild_runs_is_told_of_the_rebuild(bench: Bench, refusal: str) -> None:
    """By its definition, or by a state of another topology."""
    bench.whole(words(man=1), "1")
    number, job = Rebuilding(bench).rebuild.number, longest()
    if refusal == "TX102":
        bench.ledger.register(word_count(LogSpout({"a": 1_000_000}), "other"), "jobs/other.py")
        job = word_count(LogSpout({"a": 1_000_000}), state=OpaqueState("other"))
    with refused(refusal, f"rebuild {number} of 'word_count'", "Until then", "`txbatch rebuild word_count --cancel`"):
        bench.ledger.register(job, "jobs/job.py")


@pytest.mark.rule("R23", "R19")
def test_of_two_rebuilds_without_a_batch_between_them_the_later_has_no_txid(bench: Bench) -> None:
    bench.whole(words(man=1), "1")
    first, second = [rebuilt_once(bench) for _ in range(2)]
    assert bench.rows(f"SELECT word, count FROM report_past_{first}.as_of_word_count(1)") == [("man", 1)]
    told = rf"before rebuild {second} cannot be asked (?s:.)*no batch was committed between"
    for txid in (1, 2):
        with pytest.raises(DBAPIError, match=told) as error:
            bench.rows(f"SELECT * FROM report_past_{second}.as_of_word_count({txid})")
        assert "Ask for one" not in str(error.value)


def rebuilt_once(bench: Bench) -> int:
    """Rebuild the first batch; return the rebuild's number."""
    rebuilding = Rebuilding(bench)
    rebuilding.count(counted(man=1))
    assert rebuilding.swap() == Swapped(1)
    return rebuilding.rebuild.number


@pytest.mark.rule("R23", "R5")
def test_what_was_emitted_by_the_definition_before_is_emitted_again_after_the_swap(bench: Bench) -> None:
    bench.whole(words(man=1), "1")
    rebuilding = Rebuilding(bench)
    rebuilding.count(counted(man=1))
    in_flight = bench.emitted(words(dog=1), "2")
    assert rebuilding.swap() == Swapped(1)
    with pytest.raises((StaleAttempt, SchemaMismatch)):
        bench.commit(in_flight, words(dog=1))
    after = Bench(bench.engine, rebuilding.topology)
    with pytest.raises(StaleAttempt, match="is not the newest"):
        after.commit(in_flight, counted(dog=1))
    assert after.ledger.batch("word_count", 2).status is BatchStatus.PLANNED
    after.whole(counted(dog=1), "2")
    assert bench.rows(REPORT) == [("dog", 1, 2, "dog"), ("man", 1, 1, "man")]


@pytest.mark.rule("R23", "R19")
def test_a_report_that_might_see_a_part_is_waited_for_and_one_that_begins_later_sees_all(
    bench: Bench, postgres_url: str
) -> None:
    bench.whole(words(man=1), "1")
    rebuilding = Rebuilding(bench)
    with raw_connection(postgres_url) as early, raw_connection(postgres_url) as late:
        early.set_session(isolation_level="REPEATABLE READ")
        early.cursor().execute("SELECT count(*) FROM report.batches")  # has not read the state, and might
        rebuilding.count(counted(man=1))
        watched = rebuilding.swap()
        assert isinstance(watched, Watched)
        assert f"session {early.info.backend_pid}" in watched.by
        early.rollback()
        late.set_session(isolation_level="REPEATABLE READ")
        late.cursor().execute("SELECT count(*) FROM report.batches")
        assert rebuilding.swap() == Swapped(1)
        reading = late.cursor()
        reading.execute(REPORT)
        assert reading.fetchall() == [("man", 1, 1, "man")]


@pytest.mark.rule("R23", "R19")
@pytest.mark.rule("R19")
@pytest.mark.parametrize("dropped", [False, True])
def test_a_snapshot_of_before_a_swap_is_not_told_what_was_never_shown(
    bench: Bench, postgres_url: str, dropped: bool
) -> None:
    """The rebuild had counted all, and was not swapped yet: the functions of today would tell its rows of then as the past."""
    for name in ("1", "2"):
        bench.whole(words(dog=1), name)
    rebuilding = Rebuilding(bench)
    rebuilding.count(counted(dog=10), counted(dog=10))
    with raw_connection(postgres_url) as early:
        early.set_session(isolation_level="REPEATABLE READ")
        cursor = early.cursor()
        cursor.execute("SELECT status FROM report.rebuilds")
        assert cursor.fetchall() == [("running",)]
        assert rebuilding.swap() == Swapped(2)
        if dropped:
            assert rebuilding.rebuilds.drop_past("word_count") == [1]
        for asked in (
            "as_of_word_count(2)",
            "as_of_word_count(1)",
            "changes_word_count(1, 2)",
            "why_word_count('dog')",
        ):
            cursor.execute("SAVEPOINT asked")
            with pytest.raises(
                Error, match="the transaction began before rebuild 1 was swapped; end it, and ask in a new"
            ):
                cursor.execute(f"SELECT * FROM report.{asked}")
            cursor.execute("ROLLBACK TO asked")
        early.rollback()
        cursor.execute("SELECT count(*) FROM report.why_word_count('dog')")
        assert cursor.fetchall() == [(2,)]


def test_a_ledger_whose_role_may_not_look_at_others_sees_them_all_the_same(bench: Bench, postgres_url: str) -> None:
    bench.whole(words(man=1), "1")
    rebuilding = Rebuilding(bench)
    bench.run("CREATE ROLE plain", "GRANT USAGE ON SCHEMA txbatch TO plain", "GRANT SELECT ON txbatch.rebuilt TO plain")
    with raw_connection(postgres_url) as early, bench.engine.connect() as ledger:
        early.set_session(isolation_level="REPEATABLE READ")
        early.cursor().execute("SELECT count(*) FROM report.batches")
        rebuilding.count(counted(man=1))
        ledger.execute(text("SET ROLE plain"))
        found = swap.watchers(ledger, rebuilding.rebuild)
        assert found is not None
        assert f"session {early.info.backend_pid}" in found
        ledger.execute(text("RESET ROLE"))
    bench.run("DROP OWNED BY plain", "DROP ROLE plain")


@pytest.mark.rule("R1", "R23")
def test_a_commit_under_way_is_waited_for_and_keeps_nobody_else_out(bench: Bench, postgres_url: str) -> None:
    bench.whole(words(man=1), "1")
    rebuilding = Rebuilding(bench)
    rebuilding.count(counted(man=1))
    with raw_connection(postgres_url) as commit:
        commit.cursor().execute("SELECT FROM txbatch.topology FOR KEY SHARE")
        with pytest.raises(Unavailable, match="a batch is being committed, and the swap waits for that"):
            rebuilding.swap()
        assert bench.rows(REPORT) == [("man", 1, 1)]
    assert rebuilding.swap() == Swapped(1)


@pytest.mark.rule("R23", "R19")
def test_a_report_that_reads_the_old_generation_is_named_and_nothing_is_swapped(
    bench: Bench, postgres_url: str
) -> None:
    bench.whole(words(man=1), "1")
    rebuilding = Rebuilding(bench)
    rebuilding.count(counted(man=1))
    with raw_connection(postgres_url) as report:
        report.cursor().execute(REPORT)
        with pytest.raises(Unavailable, match=f"read by others: session {report.info.backend_pid} of"):
            rebuilding.swap()
        bench.whole(words(man=1), "2")  # commits go on
    assert rebuilding.swap() == Behind()
    rebuilding.count(counted(man=1))
    assert rebuilding.swap() == Swapped(2)


@pytest.mark.rule("R23", "R19")
@pytest.mark.parametrize("asked", ["report.word_count", "report.word_count_changes"])
def test_who_asks_again_and_again_keeps_no_swap_from_its_turn(bench: Bench, postgres_url: str, asked: str) -> None:
    bench.whole(words(man=1), "1")
    bench.whole(words(man=2), "2")
    rebuilding, calls, done = Rebuilding(bench), Calls(), Event()
    rebuilding.count(counted(man=1), counted(man=2))

    def ask() -> set[Any]:
        seen = set()
        with raw_connection(postgres_url) as analyst:
            while not done.wait(0.001):
                cursor = analyst.cursor()
                cursor.execute(f"SELECT word, count FROM {asked}")
                seen.add(tuple(cursor.fetchall()))
                analyst.rollback()
        return seen

    for number in range(3):
        calls.start(f"analyst {number}", ask)
    found = rebuilding.swap()
    while isinstance(found, Watched):
        found = rebuilding.swap()
    done.set()
    assert found == Swapped(2)
    assert all(len(seen) == 1 for seen in calls.join().values())


@pytest.mark.rule("R23")
def test_cancelling_leaves_no_trace_and_dropping_takes_all_generations(bench: Bench) -> None:
    bench.whole(words(man=1), "1")
    rebuilding = Rebuilding(bench)
    rebuilding.count(counted(man=1))
    assert rebuilding.rebuilds.cancel("word_count") == rebuilding.rebuild
    assert bench.rows(NEXT) == bench.rows("SELECT rebuild FROM txbatch.rebuild") == []
    with pytest.raises(UnknownName, match="no rebuild of topology 'word_count' is running"):
        rebuilding.rebuilds.cancel("word_count")
    assert rebuilding.rebuilds.next(rebuilding.rebuild) is None
    for ask in (rebuilding.swap, lambda: rebuilding.rebuilds.progress(rebuilding.rebuild)):
        with pytest.raises(TerminalError, match="does not run any more"):
            ask()
    again = Rebuilding(bench)
    again.count(counted(man=1))
    assert again.swap() == Swapped(1)
    third = Rebuilding(bench)
    third.count(counted(man=5))
    assert third.swap() == Swapped(1)
    assert len(bench.rows(NEXT)) == 10
    assert again.rebuilds.drop_past("word_count") == [again.rebuild.number, third.rebuild.number]
    assert bench.rows(NEXT) == []
    assert bench.rows(REPORT) == [("man", 5, 1, "man")]


@pytest.mark.rule("R23", "R24")
def test_what_no_rebuild_can_count_is_refused_and_nothing_is_changed(bench: Bench) -> None:
    rebuilds = PostgresRebuilds(bench.engine)
    with pytest.raises(TerminalError, match="has counted nothing yet"):
        rebuilds.begin(longest(), "jobs/job.py", code(), "why")
    bench.whole(words(man=1), "1")
    with pytest.raises(TerminalError, match="say why"):
        rebuilds.begin(longest(), "jobs/job.py", code(), " ")
    other = Topology("word_count")
    other.new_stream("lines", LogSpout({"a": 1})).group_by("word").persistent_aggregate(
        OpaqueState("word_count"), guarantee="at_least_once", count=Count()
    )
    with pytest.raises(SchemaMismatch, match="stream 'words' is gone; stream 'lines' is new"):
        rebuilds.begin(other, "jobs/job.py", code(), "why")
    for view in ("public.direct", "report.word_count_of_mine", 'report."word_count@mine"'):
        bench.run(f"CREATE VIEW {view} AS SELECT * FROM state.word_count")
        with pytest.raises(TerminalError, match=f"{view.removeprefix('public.')} reads state"):
            rebuilds.begin(longest(), "jobs/job.py", code(), "why")
        bench.run(f"DROP VIEW {view}")
    first = rebuilds.begin(longest(), "jobs/job.py", code("new"), "why")
    assert rebuilds.begin(longest(), "jobs/job.py", code("new"), None) == first
    with pytest.raises(TerminalError, match="the job has changed since: put it back"):
        rebuilds.begin(longest(), "jobs/job.py", code("newer"), "why")
    assert bench.rows("SELECT count(*) FROM txbatch.rebuild") == [(1,)]


@pytest.mark.rule("R23", "R7")
def test_what_is_loaded_must_be_what_was_emitted_and_whole(engine: Engine) -> None:
    bench = Bench(engine, word_count(LogSpout({"a": 1, "b": 1})))
    bench.whole(words(man=1), "1")
    rebuilding = Rebuilding(bench)
    with pytest.raises(StaleAttempt, match="it is not this attempt's work"):
        rebuilding.count_next(counted(man=1), token="another")
    hole = {"words": {"a": "away"}}
    with pytest.raises(TerminalError, match="partition 'a' of stream 'words'"):
        rebuilding.count_next(counted(man=1), unreadable=hole, streams={"words": {"b": ReadPartition(1, "1")}})
    assert bench.rows("SELECT count(*) FROM txbatch.rebuilt") == [(0,)]


@pytest.mark.rule("R23")
def test_a_retyped_value_makes_the_reports_anew_with_their_grants_unless_others_depend_on_it(bench: Bench) -> None:
    bench.whole(words(man=1), "1")
    bench.run("CREATE ROLE analyst", "GRANT SELECT ON report.word_count, report.word_count_changes TO analyst")
    bench.run("REVOKE EXECUTE ON FUNCTION report.changes_word_count FROM PUBLIC")
    bench.run("CREATE VIEW public.mine AS SELECT word, count FROM report.word_count")
    other = word_count(LogSpout({"a": 1_000_000}), count=Max("word"))
    rebuilding = Rebuilding(bench, other)
    rebuilding.count({"word_count": [(("man",), ("man",))]})
    with pytest.raises(TerminalError, match="mine depends on"):
        rebuilding.swap()
    assert bench.rows(REPORT) == [("man", 1, 1)]
    bench.run("DROP VIEW public.mine")
    assert rebuilding.swap() == Swapped(1)
    assert bench.rows(REPORT) == [("man", "man", 1)]
    allowed = "SELECT has_table_privilege('analyst', 'report.word_count{}', 'SELECT')"
    assert bench.rows(allowed.format("")) == bench.rows(allowed.format("_changes")) == [(True,)]
    called = "SELECT has_function_privilege('analyst', 'report.{}_word_count(bigint{})', 'EXECUTE')"
    assert bench.rows(called.format("changes", ", bigint")) == [(False,)]
    assert bench.rows(called.format("as_of", "")) == [(True,)]
    bench.run("DROP OWNED BY analyst", "DROP ROLE analyst")


KEYS = "ab"
CHANGE = st.none() | st.tuples(st.integers(-9, 9), st.booleans(), st.booleans()).filter(lambda each: each[1] or each[2])
# A batch, which restates the position of that index or none, and how many versions the rebuild counts after it.
BATCHES = st.lists(
    st.tuples(st.none() | st.integers(0, 9), st.tuples(CHANGE, CHANGE), st.integers(0, 2)), min_size=1, max_size=8
)
# The first restate takes the records away, and the second its place, before the rebuild counts either.
RESTATED_TWICE_AT_ONCE = [
    (None, (None, (0, False, True)), 1),
    (None, (None, (0, False, True)), 1),
    *[(1, (None, None), 0)] * 2,
]
few = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
COMMITTED = """
INSERT INTO txbatch.batch (topology, txid, position, kind, status, key, metadata, fence, token, committed_at, committed_fence,
       lease_until, keys)
VALUES ('{topology}', {txid}, {position}, '{kind}', 'committed', '{txid}', '{{"format": 2, "streams": {{}}}}', 1, 't', now(), 1,
       now(), '{{"{topology}": 1}}')"""
REPLACED = """
UPDATE txbatch.batch SET replaced_by = {txid}
 WHERE topology = '{topology}' AND txid <> {txid} AND position = {position} AND replaced_by IS NULL"""


@pytest.mark.rule("R17", "R23")
@pytest.mark.parametrize("removable", [False, True])
@given(history=BATCHES, swapped=st.booleans())
@example(history=RESTATED_TWICE_AT_ONCE, swapped=False)
@few
def test_the_new_generation_is_the_fold_of_what_counts_whenever_it_was_counted(
    engine: Engine, removable: bool, history: list[Any], swapped: bool
) -> None:
    name = f"t{uuid4().hex[:12]}"
    topology, most = Topology(name), dict[str, Any](most=Max("n"))
    remove = dict[str, Any](remove="true") if removable else {}
    each = topology.new_stream("words", LogSpout({"a": 1})).each("1", "n bigint").group_by("word")
    each.persistent_aggregate(OpaqueState(name), guarantee="at_least_once", count=Count(), **most, **remove)
    (aggregate,), bench = topology.aggregates, Bench(engine, topology)
    changes = dict[int, Any]()
    position = dict[int, int]()
    contributions = dict[str, dict[int, Contribution]]({key: {} for key in KEYS})
    rebuilding: Rebuilding | None = None

    def count(at_most: int) -> None:
        assert rebuilding is not None
        for _ in range(at_most):
            if (version := rebuilding.rebuilds.next(rebuilding.rebuild)) is None:
                return
            found = {key: change for key, change in zip(KEYS, changes[version.txid], strict=True) if change}
            marks = [change[1:] if removable else () for change in found.values()]
            rows = [
                ((key,), (change[0], change[0], *mark))
                for (key, change), mark in zip(found.items(), marks, strict=True)
            ]
            rebuilding.count_next({name: rows})
            for key, change in found.items():
                of = Change((change[0],) * 2, *(change[1:] if removable else (False, True)))
                contributions[key][version.txid] = Contribution(position[version.txid], version.txid, of)

    for txid, (again, change, counted_after) in enumerate(history, 1):
        before = [each for each, of in position.items() if each == of]
        position[txid] = txid if again is None or not before else before[again % len(before)]
        changes[txid] = change
        given_ = {"topology": name, "txid": txid, "position": position[txid]}
        kind = "ordinary" if position[txid] == txid else "restate"
        bench.run(COMMITTED.format(**given_, kind=kind).replace(":", "\\:"), REPLACED.format(**given_))
        if rebuilding is None:
            rebuilding = Rebuilding(bench, topology)
        count(counted_after)
    count(len(history))
    assert rebuilding is not None
    replaced_by = {
        txid: min((t for t in position if t > txid and position[t] == of), default=txid)
        for txid, of in position.items()
    }
    changed = {key: max(map(replaced_by.__getitem__, contributions[key]), default=0) for key in KEYS}
    current = {of: txid for txid, of in position.items()}
    counts = {key: [each for txid, each in contributions[key].items() if txid in current.values()] for key in KEYS}
    combine = Merger(aggregate.merges)
    expected = {key: fold(None, counts[key], combine) for key in KEYS}
    where = f"report.{name}" if swapped else f"state_next_{rebuilding.rebuild.number}.{name}"
    if swapped:
        assert rebuilding.swap() == Swapped(len(history))
    found = bench.rows(f"SELECT word, count, most, txid FROM {where} ORDER BY word")
    assert found == [(key, *value, changed[key]) for key, value in expected.items() if value is not None]


@pytest.mark.rule("R17", "R19", "R23")
@pytest.mark.parametrize("migrated", [False, True], ids=["swapped now", "swapped by an earlier version"])
def test_as_of_before_a_swap_each_key_is_once_also_after_a_restate(bench: Bench, migrated: bool) -> None:
    """In one pass over all keys, and by a search for each that changed since: a restate after the swap changed none of these."""
    bench.whole(words(man=1, dog=1), "1")
    bench.whole(words(man=1), "2")
    rebuilding = Rebuilding(bench)
    rebuilding.count(counted(man=1, dog=1), counted(man=1))
    assert rebuilding.swap() == Swapped(2)
    if migrated:
        as_made_before(bench)
    after = Bench(bench.engine, rebuilding.topology)
    restated(after, 1, counted(man=7, cat=1))
    for txid, shown in ((1, [("dog", 1, 1), ("man", 1, 1)]), (2, [("dog", 1, 1), ("man", 2, 2)])):
        for way in ("off", "on"):
            with bench.engine.connect() as connection:
                connection.exec_driver_sql(f"SET LOCAL txbatch.far_back = {way}")
                found = connection.exec_driver_sql(f"SELECT * FROM report_past_1.as_of_word_count({txid})").all()
            assert sorted(map(tuple, found)) == shown, (txid, way)


def as_made_before(bench: Bench) -> None:
    """Let the function be what it was, and migrate."""
    told = "SELECT pg_get_functiondef('report_past_1.as_of_word_count'::regproc)"
    ((definition,),) = bench.rows(told)
    before = definition.replace(" AND b.replaced_by <= 2", "", 1)
    assert before != definition
    with bench.engine.begin() as connection:
        connection.exec_driver_sql(before.replace("%", "%%"))
        (migration,) = (each for each in migrations() if each.name == "as_of_before_a_swap")
        connection.exec_driver_sql(migration.sql.replace("%", "%%"))


@pytest.mark.rule("R19", "R23")
def test_as_of_before_a_swap_is_what_reports_showed_then_and_after_it_what_they_show(bench: Bench) -> None:
    bench.run(
        "CREATE ROLE analyst", "GRANT USAGE ON SCHEMA report TO analyst", "GRANT SELECT ON report.word_count TO analyst"
    )
    bench.whole(words(man=1, dog=1), "1")
    bench.whole(words(man=1), "2")
    rebuilding, reader = Rebuilding(bench), HistoryReader(bench.engine)
    rebuilding.count(counted(man=5), counted(man=2, cat=1))
    assert rebuilding.swap() == Swapped(2)
    rebuilding.commit(counted(man=1), "3")
    again = Rebuilding(bench)
    again.count(counted(man=6), counted(man=2), counted(man=2))
    assert again.swap() == Swapped(3)
    rebuilding.commit(counted(man=1), "4")
    for txid, shown in (
        (1, [{"word": "dog", "count": 1, "txid": 1}, {"word": "man", "count": 1, "txid": 1}]),
        (2, [{"word": "dog", "count": 1, "txid": 1}, {"word": "man", "count": 2, "txid": 2}]),
        (
            3,
            [
                {"word": "cat", "count": 1, "txid": 2, "most": "cat"},
                {"word": "man", "count": 8, "txid": 3, "most": "man"},
            ],
        ),
        (4, [{"word": "man", "count": 11, "txid": 4, "most": "man"}]),
    ):
        assert reader.as_of("word_count", txid) == shown
    (asked,) = reader.as_of("word_count", 2, [["man"]])
    assert (asked["found"], asked["count"]) == (True, 2)
    with pytest.raises(DBAPIError, match="rebuild 1 counted all anew after txid 2") as refused:
        bench.rows("SELECT * FROM report.as_of_word_count(1)")
    function = f"report_past_{rebuilding.rebuild.number}.as_of_word_count(1)"
    assert f"; ask {function} for what was shown then" in refused.value.orig.diag.message_primary
    shown_then = f"SELECT * FROM {function}"
    assert sorted(bench.rows(shown_then)) == [("dog", 1, 1), ("man", 1, 1)]
    with pytest.raises(DBAPIError, match=r"before rebuild 1 cannot be asked as of txid 3: ask for one of \d+ to \d+"):
        bench.rows(shown_then.replace("(1)", "(3)"))
    assert bench.rows("SELECT has_table_privilege('analyst', 'report_past_1.word_count', 'SELECT')") == [(True,)]
    with pytest.raises(TerminalError, match="rebuild 1 counted all anew after txid 2"):
        reader.as_of("word_count", 1, corrected=True)
    for known, why in {
        "NULL, 'word_count', 1": "state 'word_count' before rebuild null cannot be asked as of txid 1: report.rebuilds has which",
        "9, 'word_count', 1": "before rebuild 9 cannot be asked as of txid 1: report.rebuilds has which were swapped",
        "1, 'nothing', 1": "state 'nothing' before rebuild 1 cannot be asked",
        "1, NULL, 1": "before rebuild 1 cannot be asked",
    }.items():
        with pytest.raises(DBAPIError, match=why):
            bench.rows(f"SELECT report.known_before({known})")
    assert bench.rows("SELECT report.known_before(1, 'word_count', 1)") == [(True,)]
    rebuilding.rebuilds.drop_past("word_count")
    with pytest.raises(DBAPIError, match=r"before rebuild 1 cannot be asked as of txid 1: report\.rebuilds has"):
        bench.rows("SELECT report.known_before(1, 'word_count', 1)")
    with pytest.raises(
        TerminalError, match=r"rebuild 1 counted all anew after txid 2.*what was shown then was dropped"
    ):
        reader.as_of("word_count", 1)
    bench.run("DROP OWNED BY analyst", "DROP ROLE analyst")
