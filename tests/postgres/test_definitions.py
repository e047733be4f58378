"""What is stored against what is now defined: every difference is named, with the way out (R2)."""

from __future__ import annotations

from typing import Any

import pytest
from postgres_bench import Bench, words
from refusals import refused
from sqlalchemy import Engine, event
from support import ListSpout, LogSpout, word_count

from txbatch import Avg, Count, Max, Min, NonTransactionalState, OpaqueState, Sum, Topology, TransactionalState
from txbatch.core.definition.digest import definition_digest
from txbatch.core.errors import SchemaMismatch, Unavailable, UnknownName
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.ledger import PostgresLedger
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.postgres.schema import state_tables


def defined(
    fields: str = "word string, n bigint, x decimal(10,2)", keys: str = "word", state: Any = None, **values: Any
) -> Topology:
    spout = LogSpout({"a": 10})
    spout.fields = fields
    topology = Topology("t")
    grouped = topology.new_stream("words", spout).group_by(*keys.split())
    grouped.persistent_aggregate(state or OpaqueState("s"), guarantee="at_least_once", **(values or {"v": Sum("n")}))
    return topology


CHANGES = [
    ("key type", defined("word int, n bigint, x decimal(10,2)"), "key 'word' of state 's' changes from string to int"),
    ("key name", defined(keys="x"), "key 'word' of state 's' is gone; key 'x' of state 's' is new (decimal(10,2))"),
    ("one key more", defined(keys="word x"), "key 'x' of state 's' is new (decimal(10,2))"),
    ("value type", defined(v=Sum("x")), "value 'v' of state 's' changes from Sum of n to Sum of x"),
    ("merge", defined(v=Max("n")), "value 'v' of state 's' changes from Sum of n to Max of n"),
    (
        "value name",
        defined(w=Sum("n")),
        "value 'v' of state 's' is gone; value 'w' of state 's' is new (bigint, summed)",
    ),
    ("one value more", defined(v=Sum("n"), w=Min("x")), "value 'w' of state 's' is new (decimal(10,2), smallest)"),
    ("average", defined(v=Avg("n")), "value 'v' of state 's' is gone; "),
    ("kind", defined(state=TransactionalState("s")), "state 's' changes from opaque to transactional"),
    ("kind, weaker", defined(state=NonTransactionalState("s")), "state 's' changes from opaque to non_transactional"),
    (
        "contributions",
        defined(state=OpaqueState("s", contributions=False)),
        "state 's' changes from with contributions to without contributions",
    ),
]
WAYS_OUT = (
    'Put the old definition back; or `txbatch rebuild t --why "..."`, to count all batches again by the new definition, while '
    "reports go on"
)
NOTHING_COUNTED = "Nothing is counted yet: `txbatch drop t` and run it again"
ENDS = {
    "registered": NOTHING_COUNTED,
    "planned": NOTHING_COUNTED.replace(": ", ": put the old definition back; or "),
    "committed": WAYS_OUT,
}


@pytest.mark.parametrize("reached", ENDS)
@pytest.mark.parametrize(("topology", "says"), [pytest.param(*each[1:], id=each[0]) for each in CHANGES])
def test_a_changed_state_is_refused_and_nothing_is_changed(
    engine: Engine, topology: Topology, says: str, reached: str
) -> None:
    bench = Bench(engine, defined())
    if reached == "planned":
        bench.planned()
    if reached == "committed":
        bench.whole({"s": [(("dog",), (1,))]})
    stored = "SELECT * FROM txbatch.state", "SELECT job, source::text, streams::text FROM txbatch.topology"
    before = [bench.rows(each) for each in stored]
    for refuse in (bench.ledger.check_definition, bench.ledger.register):
        with pytest.raises(SchemaMismatch) as raised:
            refuse(topology, "jobs/job.py")
        assert says in str(raised.value)
        assert str(raised.value).endswith(ENDS[reached])
    assert [bench.rows(each) for each in stored] == before


def test_keys_in_another_order(engine: Engine) -> None:
    ledger = PostgresLedger(engine)
    ledger.register(defined(keys="word x"), "jobs/t.py")
    with pytest.raises(SchemaMismatch, match="the order of keys of state 's' changes from word, x to x, word"):
        ledger.register(defined(keys="x word"), "jobs/t.py")


def of_old(bench: Bench, *states: str, to_txid: int = 9) -> None:
    """As a ledger was before streams were kept, and before a changed set of states was refused: these were left out of
    the txids above 1.
    """
    bench.run("UPDATE txbatch.topology SET streams = NULL", "UPDATE txbatch.state SET streams = NULL")
    for state in states:
        bench.run(f"UPDATE txbatch.batch SET keys = (keys::jsonb - '{state}')::json WHERE txid BETWEEN 2 AND {to_txid}")


def of_states(*states: str, fields: str = "word string") -> Topology:
    topology, spout = Topology("t"), LogSpout({"a": 1_000})
    spout.fields = fields
    stream = topology.new_stream("words", spout)
    for state in states:
        stream.group_by("word").persistent_aggregate(OpaqueState(state), count=Count())
    return topology


def counted(bench: Bench, *names: str) -> None:
    states = [aggregate.state.name for aggregate in bench.topology.aggregates]
    for name in names:
        bench.whole({state: [(("dog",), (1,))] for state in states}, name)


COVERAGE = "SELECT state, since_txid, counts_to_txid, missed, missed_txids FROM report.state_coverage ORDER BY state"


@pytest.mark.rule("R23")
def test_what_is_not_known_of_an_old_ledger_is_taken_as_it_is_once(engine: Engine) -> None:
    bench = Bench(engine, of_states("a"))
    counted(bench, "1")
    of_old(bench)
    bench.ledger.register(of_states("a", fields="word string, n int"), "jobs/job.py")
    assert bench.rows("SELECT streams FROM txbatch.topology") == [({"words": {"n": "int", "word": "string"}},)]
    assert bench.rows("SELECT streams FROM txbatch.state") == [(["words"],)]
    with pytest.raises(SchemaMismatch, match="field 'n' of stream 'words' is gone"):
        bench.ledger.register(bench.topology, "jobs/job.py")


@pytest.mark.rule("R23")
def test_an_old_ledger_keeps_the_aggregates_from_now_on(engine: Engine) -> None:
    bench = Bench(engine, of_states("a"))
    counted(bench, "1")
    bench.run("UPDATE txbatch.state SET columns = (columns::jsonb - 'aggregates')::json")
    bench.ledger.register(bench.topology, "jobs/job.py")
    changed = Topology("t")
    grouped = changed.new_stream("words", bench.topology.streams["words"].spout).group_by("word")
    grouped.persistent_aggregate(OpaqueState("a"), count=Count("word"))
    with pytest.raises(SchemaMismatch, match="value 'count' of state 'a' changes from Count to Count of word"):
        bench.ledger.register(changed, "jobs/job.py")


@pytest.mark.rule("R23")
def test_a_state_that_an_old_ledger_left_out_does_not_come_back_in_silence(engine: Engine) -> None:
    bench = Bench(engine, of_states("a", "b", "c"))
    counted(bench, "1", "2", "3")
    of_old(bench, "b")
    bench.ledger.register(of_states("a", "c"), "jobs/job.py")  # as it went on
    with pytest.raises(
        SchemaMismatch, match=r"state 'b' is back, and has not counted txid 3\. Put the old definition back"
    ):
        bench.ledger.register(of_states("a", "b", "c"), "jobs/job.py")
    with pytest.raises(SchemaMismatch, match="state 'c' is gone"):
        bench.ledger.register(of_states("a"), "jobs/job.py")
    assert bench.rows(COVERAGE) == [("a", 1, 3, 0, None), ("b", 1, 1, 2, "2-3"), ("c", 1, 3, 0, None)]


@pytest.mark.rule("R23")
def test_a_state_that_an_old_ledger_put_back_goes_on_and_shows_its_gap(engine: Engine) -> None:
    bench = Bench(engine, of_states("a", "b"))
    counted(bench, *"123")
    of_old(bench, "b", to_txid=2)
    bench.ledger.register(bench.topology, "jobs/job.py")
    bench.ledger.abort("t", bench.planned("x").txid, "a number that nobody misses")
    counted(bench, "5")
    assert bench.rows(COVERAGE) == [("a", 1, 5, 0, None), ("b", 1, 5, 1, "2")]
    bench.run("UPDATE txbatch.batch SET keys = (keys::jsonb - 'b')::json WHERE txid <= 3")
    assert bench.rows(COVERAGE)[1] == ("b", 5, 5, 3, "1-3")
    (row,) = LedgerReader(engine).status("t")
    expected = {"state": "b", "since_txid": 5, "counts_to_txid": 5, "missed": 3, "missed_txids": "1-3"}
    assert row["missed"] == [{"topology": "t", **expected}]


def test_a_state_of_another_topology(bench: Bench) -> None:
    other = word_count(LogSpout({"a": 1}), "other", state=OpaqueState("word_count"))
    with refused("TX102", "'word_count'"):
        bench.ledger.register(other, "jobs/other.py")
    assert bench.rows("SELECT topology FROM txbatch.topology") == [("word_count",)]


def test_a_topology_that_was_renamed(bench: Bench) -> None:
    renamed = word_count(LogSpout({"a": 1}), "words", state=OpaqueState("word_count"))
    with refused("TX102", "'words'", "renamed", "`txbatch change`"):
        bench.ledger.check_definition(renamed, "jobs/job.py")


def test_two_job_files_of_one_name(bench: Bench) -> None:
    bench.whole(words(dog=1))
    same_name = word_count(ListSpout(1))
    with pytest.raises(
        SchemaMismatch,
        match=r"jobs/job.py defines it already; if jobs/copy.py is a second job, give its topology another name there",
    ):
        bench.ledger.register(same_name, "jobs/copy.py")


def test_another_source(bench: Bench) -> None:
    bench.whole(words(dog=1))
    with pytest.raises(
        SchemaMismatch,
        match=r"""'words' reads {"reads":"whole","spout":"ListSpout"}, but its batches were read from """
        r"""{"reads":"partitions","spout":"LogSpout"}.*`txbatch rebuild word_count """,
    ):
        bench.ledger.register(word_count(ListSpout(1)), "jobs/job.py")


def test_by_interval_or_not_is_kept(bench: Bench) -> None:
    bench.whole(words(dog=1))
    spout = LogSpout({"a": 1})
    spout.by_interval = True
    with pytest.raises(
        SchemaMismatch, match="the source changes from being read in any order to being read by interval"
    ):
        bench.ledger.register(word_count(spout), "jobs/job.py")


def test_an_equal_definition_is_welcome_in_another_place(bench: Bench) -> None:
    bench.whole(words(dog=1))
    bench.ledger.register(word_count(LogSpout({"a": 1})), "jobs/moved.py")
    assert bench.rows("SELECT job FROM txbatch.topology") == [("jobs/moved.py",)]


@pytest.mark.rule("R23")
def test_a_plan_and_a_commit_compare_the_digest_of_the_definition(bench: Bench) -> None:
    bench.whole(words(dog=1))
    assert bench.rows("SELECT digest FROM txbatch.topology") == [(definition_digest(bench.topology),)]
    asked = list[str]()

    def listen(*given: Any) -> None:
        asked.append(given[2])

    event.listen(bench.engine, "before_cursor_execute", listen)
    assert bench.commit(bench.emitted(words(dog=1), "2"), words(dog=1))
    event.remove(bench.engine, "before_cursor_execute", listen)
    assert asked
    assert not [each for each in asked if "any_committed" in each or "UPDATE txbatch.topology" in each]


@pytest.mark.rule("R23")
def test_a_topology_without_a_digest_is_compared_part_by_part_and_gets_one(engine: Engine) -> None:
    """As an earlier version registered it."""
    bench = Bench(engine, defined())
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE txbatch.topology SET digest = NULL")
    bench.whole({"s": [(("dog",), (1,))]})
    assert bench.rows("SELECT digest FROM txbatch.topology") == [(definition_digest(bench.topology),)]
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE txbatch.topology SET digest = NULL")
    with pytest.raises(SchemaMismatch, match="value 'w' of state 's' is new"):
        Bench(engine, defined(v=Sum("n"), w=Min("x")))


def test_drop_says_who_uses_the_state_that_it_waits_for(engine: Engine) -> None:
    bench = Bench(engine)
    with engine.connect() as reader:
        reader.exec_driver_sql("SELECT * FROM report.word_count")
        pid = reader.exec_driver_sql("SELECT pg_backend_pid()").scalar()
        told = rf"state 'word_count' cannot be dropped while others use it: session {pid} of \w+ \(idle in transaction\) since "
        with transaction(engine) as connection:
            connection.exec_driver_sql("SET LOCAL lock_timeout = '10ms'")
            with pytest.raises(Unavailable, match=told):
                state_tables.drop(connection, "word_count")
    with transaction(engine) as connection:
        assert state_tables.drop(connection, bench.topology.name) == ["word_count"]


def test_drop_takes_everything_and_the_next_begins_at_1(engine: Engine) -> None:
    topology = word_count(LogSpout({"a": 100}), count=Count(), low=Min("word"))
    kept = Bench(engine, word_count(LogSpout({"a": 100}), "kept", state=OpaqueState("kept")))
    kept.whole({"kept": [(("dog",), (7,))]})
    bench = Bench(engine, topology)
    bench.whole({"word_count": [(("dog",), (1, "dog"))]}, "1")
    bench.emitted({"word_count": []}, "2")
    with transaction(engine) as connection:
        assert state_tables.drop(connection, "word_count") == ["word_count"]
    for table in ("topology", "state", "batch", "batch_key", "attempt", "partition", "consumed"):
        assert {row[0] for row in bench.rows(f"SELECT topology FROM txbatch.{table}")} == {"kept"}, table
    left = (
        "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE nspname ~ '^(state|contribution)' AND relkind IN ('r', 'p', 'v')"
    )
    assert {name.split("@")[0] for (name,) in bench.rows(left)} == {"kept"}
    assert Bench(engine, topology).whole({"word_count": []}).txid == 1
    assert kept.rows("SELECT count FROM report.kept") == [(7,)]


def test_drop_of_an_unknown_topology(engine: Engine) -> None:
    with pytest.raises(UnknownName, match="no topology 'nobody' is known"), transaction(engine) as connection:
        state_tables.drop(connection, "nobody")


def test_a_definition_that_is_refused_half_way_leaves_no_table(engine: Engine) -> None:
    Bench(engine, word_count(LogSpout({"a": 1}), "first", state=OpaqueState("taken")))
    second = word_count(LogSpout({"a": 1}), "second", state=OpaqueState("fresh"))
    second.streams["words"].group_by("word").persistent_aggregate(OpaqueState("taken"), count=Count())
    ledger = PostgresLedger(engine)
    with refused("TX102", "'taken'"):
        ledger.register(second, "jobs/second.py")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT to_regclass('state.fresh')").scalar_one() is None
