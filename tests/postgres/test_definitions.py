"""What is stored against what is now defined: every difference is named, with the way out (R2)."""

from __future__ import annotations

from typing import Any

import pytest
from postgres_bench import Bench, words
from sqlalchemy import Engine
from support import ListSpout, LogSpout, word_count

from txbatch import Avg, Count, Max, Min, NonTransactionalState, OpaqueState, Sum, Topology, TransactionalState
from txbatch.core.errors import SchemaMismatch, UnknownName
from txbatch.postgres import state_tables
from txbatch.postgres.engine import transaction
from txbatch.postgres.ledger import PostgresLedger


def defined(
    fields: str = "word string, n bigint, x decimal(10,2)", keys: str = "word", state: Any = None, **values: Any
) -> Topology:
    spout = LogSpout({"a": 10})
    spout.fields = fields
    topology = Topology("t")
    grouped = topology.new_stream("words", spout).group_by(*keys.split())
    grouped.persistent_aggregate(state or OpaqueState("s"), guarantee="at_least_once", **(values or {"v": Sum("n")}))
    return topology


DROP = "name a new state, or `txbatch drop t` and run it again from the start"
CHANGES = [
    ("key type", defined("word int, n bigint"), r"state 's', column 'word': stored string, now defined int; "),
    (
        "key name",
        defined("w string, n bigint", "w"),
        r"state 's', column 'word': stored string, now defined not at all; ",
    ),
    (
        "one key more",
        defined(keys="word x"),
        r"state 's', column 'x': stored not at all, now defined decimal\(10,2\); ",
    ),
    ("value type", defined(v=Sum("x")), r"column 'v': stored bigint add, now defined decimal\(38,2\) add; "),
    ("merge", defined(v=Max("n")), r"column 'v': stored bigint add, now defined bigint greatest; "),
    ("value name", defined(w=Sum("n")), r"column 'v': stored bigint add, now defined not at all; "),
    ("one value more", defined(v=Sum("n"), w=Count()), r"column 'w': stored not at all, now defined bigint add; "),
    ("average", defined(v=Avg("n")), r"column 'v': stored bigint add, now defined not at all; "),
    (
        "kind",
        defined(state=TransactionalState("s")),
        r"stored as opaque with contributions, now defined as transactional with",
    ),
    ("kind, weaker", defined(state=NonTransactionalState("s")), r"now defined as non_transactional with"),
    (
        "contributions",
        defined(state=OpaqueState("s", contributions=False)),
        r"now defined as opaque without contributions; ",
    ),
]


@pytest.mark.parametrize(("topology", "says"), [pytest.param(*each[1:], id=each[0]) for each in CHANGES])
def test_a_changed_state_is_refused_and_nothing_is_changed(engine: Engine, topology: Topology, says: str) -> None:
    ledger = PostgresLedger(engine)
    ledger.register(defined(), "jobs/t.py")
    bench = Bench(engine, defined())
    before = bench.rows("SELECT * FROM txbatch.state"), bench.rows("SELECT job, source FROM txbatch.topology")
    with pytest.raises(SchemaMismatch, match=says) as raised:
        ledger.register(topology, "jobs/t.py")
    assert DROP in str(raised.value)
    assert (bench.rows("SELECT * FROM txbatch.state"), bench.rows("SELECT job, source FROM txbatch.topology")) == before


def test_keys_in_another_order(engine: Engine) -> None:
    ledger = PostgresLedger(engine)
    ledger.register(defined(keys="word x"), "jobs/t.py")
    with pytest.raises(SchemaMismatch, match="another order"):
        ledger.register(defined(keys="x word"), "jobs/t.py")


def test_a_state_of_another_topology(bench: Bench) -> None:
    other = word_count(LogSpout({"a": 1}), "other", state=OpaqueState("word_count"))
    with pytest.raises(
        SchemaMismatch, match="belongs to topology 'word_count'; a state has one topology: name another state"
    ):
        bench.ledger.register(other, "jobs/other.py")
    assert bench.rows("SELECT topology FROM txbatch.topology") == [("word_count",)]


def test_two_job_files_of_one_name(bench: Bench) -> None:
    bench.whole(words(dog=1))
    same_name = word_count(ListSpout(1))
    with pytest.raises(
        SchemaMismatch, match=r"already defined by jobs/job.py, with another source; rename the one in jobs/copy.py"
    ):
        bench.ledger.register(same_name, "jobs/copy.py")


def test_another_source(bench: Bench) -> None:
    bench.whole(words(dog=1))
    with pytest.raises(
        SchemaMismatch, match=r"ListSpout.* but its batches were read from .*LogSpout.*`txbatch drop word_count`"
    ):
        bench.ledger.register(word_count(ListSpout(1)), "jobs/job.py")


def test_by_interval_or_not_is_kept(bench: Bench) -> None:
    bench.whole(words(dog=1))
    spout = LogSpout({"a": 1})
    spout.by_interval = True
    with pytest.raises(SchemaMismatch):
        bench.ledger.register(word_count(spout), "jobs/job.py")


def test_an_equal_definition_is_welcome_in_another_place(bench: Bench) -> None:
    bench.whole(words(dog=1))
    bench.ledger.register(word_count(LogSpout({"a": 1})), "jobs/moved.py")
    assert bench.rows("SELECT job FROM txbatch.topology") == [("jobs/moved.py",)]


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
    with pytest.raises(SchemaMismatch):
        ledger.register(second, "jobs/second.py")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT to_regclass('state.fresh')").scalar_one() is None
