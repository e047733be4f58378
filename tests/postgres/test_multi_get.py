"""`report.get_<state>` and `multi_get`: a state's values by typed keys, for whoever may read the schema `report`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from postgres_bench import Bench, words
from refusals import refused
from sqlalchemy import Engine, text
from support import LogSpout, code, word_count

from txbatch import AppendState, Avg, CombinerAggregator, Count, Max, OpaqueState, Topology
from txbatch.core.corrections.rebuild import Swapped
from txbatch.core.errors import SchemaMismatch, TerminalError, UnknownName
from txbatch.direct.emitter import partials_of
from txbatch.direct.queries import answers
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.reading.multi_get import look_up, multi_get
from txbatch.postgres.schema import state_tables
from txbatch.reports import Reports
from txbatch.settings import Settings

pytestmark = pytest.mark.rule("R20")
KEYS = {
    "s": ("string", "a'b%\\", 5),
    "b": ("bigint", 2**62, "2"),
    "i": ("int", -7, 2**31),
    "h": ("smallint", 3, 1.0),
    "t": ("boolean", True, datetime),
    "d": ("double", float("nan"), "1.5"),
    "f": ("float", 0.1, True),
    "y": ("date", date(2026, 1, 5), datetime(2026, 1, 5, tzinfo=UTC)),
    "m": ("timestamp", datetime(2026, 1, 5, 8, tzinfo=UTC), "2026-01-05"),
    "n": ("decimal(10,2)", Decimal("1.25"), 1.25),
    "x": ("binary", b"\x00\xff", "ab"),
}


@pytest.fixture
def reports(bench: Bench, postgres_url: str, tmp_path: Path) -> Reports:
    return Reports(Settings(tmp_path, postgres_url, "file:///nowhere"))


def get(engine: Engine, state: str, *keys: Any) -> list[dict[str, Any] | None]:
    with transaction(engine) as connection:
        return multi_get(connection, state, keys)


def of_types(**types: str) -> Topology:
    topology, spout = Topology("t"), LogSpout({"a": 9})
    spout.fields = ", ".join(f"{name} {type_}" for name, type_ in types.items())
    topology.new_stream("in", spout).group_by(*types).persistent_aggregate(OpaqueState("s"), found=Count())
    return topology


def test_keys_are_answered_in_the_order_asked_and_absent_ones_by_none(bench: Bench, reports: Reports) -> None:
    bench.whole(words(dog=3, cat=1), "1")
    assert reports.multi_get("word_count", ["cat", "none", ("dog",), ["dog"], ""]) == [
        {"count": 1},
        None,
        {"count": 3},
        {"count": 3},
        None,
    ]
    assert reports.multi_get("word_count", []) == []
    assert bench.rows("SELECT * FROM report.get_word_count('dog')") == [("dog", 3, 1)]
    assert bench.rows("SELECT * FROM report.get_word_count(NULL)") == []


@pytest.mark.parametrize("name", KEYS)
def test_a_key_of_every_type_is_found_and_one_of_another_refused(engine: Engine, name: str) -> None:
    type_, value, wrong = KEYS[name]
    bench = Bench(engine, of_types(**{name: type_}))
    bench.whole({"s": [((value,), (4,))]})
    assert get(engine, "s", value) == [{"found": 4}]
    if wrong is not datetime:
        with pytest.raises(TerminalError, match=rf"state 's' has the key {name} .*; "):
            get(engine, "s", value, wrong)


def test_a_decimal_with_more_digits_is_another_key(engine: Engine) -> None:
    Bench(engine, of_types(n="decimal(10,2)")).whole({"s": [((Decimal("1.25"),), (4,))]})
    assert get(engine, "s", Decimal("1.250"), Decimal("1.251"), 1) == [{"found": 4}, None, None]


def test_keys_of_several_columns_and_a_global_value(engine: Engine) -> None:
    topology, spout = Topology("t"), LogSpout({"a": 9})
    spout.fields = "word string, amount int"
    stream = topology.new_stream("in", spout)
    stream.group_by("word", "amount").persistent_aggregate(OpaqueState('p%s"s'), mean=Avg("amount"))
    stream.persistent_aggregate(OpaqueState("all"), records=Count())
    bench = Bench(engine, topology)
    assert get(engine, "all") == [None]
    bench.whole({'p%s"s': [(("a, b", 7), (5, 2))], "all": [((), (5,))]})
    assert get(engine, 'p%s"s', ("a, b", 7), ("a, b", 8)) == [{"mean": Decimal("2.5")}, None]
    assert get(engine, "all") == get(engine, "all", ()) == [{"records": 5}]
    assert get(engine, "all", (), ()) == [{"records": 5}] * 2
    assert bench.rows("SELECT records FROM report.get_all()") == [(5,)]
    with pytest.raises(TerminalError, match=r"has the key word text, amount integer; 'a' has 1 part$"):
        get(engine, 'p%s"s', "a")
    with pytest.raises(TerminalError, match="'all' is one global value and has no key; ask without 'x'"):
        get(engine, "all", "x")


def test_what_no_key_holds_is_refused_and_an_unknown_state_is_said(bench: Bench) -> None:
    for none, told in {None: "None is no part of a key", "a\0": "holds U", "\ud800": "is not UTF-8"}.items():
        with pytest.raises(TerminalError, match=f"state 'word_count' has the key word text; .*{told}"):
            get(bench.engine, "word_count", "dog", none)
    with pytest.raises(UnknownName, match=r"no state 'nosuch' can be asked here.* `txbatch status` lists the states"):
        get(bench.engine, "nosuch", "dog")


def test_rows_of_an_append_state(engine: Engine) -> None:
    topology = Topology("t")
    topology.new_stream("words", LogSpout({"a": 9})).persist(AppendState("kept", contributions=False))
    bench, (aggregate,) = Bench(engine, topology), topology.aggregates
    bench.whole({"kept": partials_of(aggregate, [{aggregate.rows_of[0].name: "dog"}], 1)})
    ((_, record, _),) = bench.rows("SELECT batch, record, copy FROM report.kept")
    assert get(engine, "kept", (1, record, 1), (2, record, 1)) == [{aggregate.rows_of[0].name: "dog"}, None]


def test_whoever_reads_report_may_ask_and_finds_by_index_whatever_collation(bench: Bench) -> None:
    bench.whole(words(dog=3), "1")
    bench.run(
        "INSERT INTO state.word_count SELECT n::text, n, 1, 1, 1 FROM generate_series(1, 9999) n",
        "ANALYZE state.word_count",
    )
    with bench.engine.connect() as connection:
        connection.execute(text("CREATE ROLE gets"))
        connection.execute(text("GRANT USAGE ON SCHEMA report TO gets"))
        connection.execute(text("GRANT SELECT ON report.word_count TO gets"))
        connection.execute(text("SET LOCAL ROLE gets"))
        assert multi_get(connection, "word_count", ["dog"]) == [{"count": 3}]
        asked = (
            "SELECT g.count FROM (VALUES ('dog' COLLATE \"POSIX\")) a (word) "
            "LEFT JOIN LATERAL report.get_word_count(a.word) g ON true"
        )
        assert connection.execute(text(asked)).scalar() == 3
        connection.execute(text("RESET ROLE"))
        plan = connection.execute(text(f"EXPLAIN {asked}")).scalars().all()
        assert "Index Scan" in str(plan)
        assert "Seq Scan" not in str(plan)
        connection.rollback()


def test_an_older_state_gets_its_function_by_its_next_run_and_no_run_makes_it_twice(bench: Bench) -> None:
    bench.whole(words(dog=1), "1")
    bench.run("DROP FUNCTION report.get_word_count")
    with refused("TX401", "'word_count'", "earlier version", "run the job"):
        get(bench.engine, "word_count", "dog")
    bench.ledger.register(bench.topology, "jobs/job.py")
    assert get(bench.engine, "word_count", "dog") == [{"count": 1}]
    made = "SELECT oid, xmin::text FROM pg_proc ORDER BY 1"
    before = bench.rows(made)
    bench.ledger.register(bench.topology, "jobs/job.py")
    assert bench.rows(made) == before


@pytest.mark.rule("R23")
def test_it_follows_a_state_through_a_change_a_rebuild_and_a_new_name(bench: Bench) -> None:
    def defined(state: OpaqueState | None = None, **aggregates: CombinerAggregator) -> Topology:
        return word_count(LogSpout({"a": 1_000_000}), state=state, **aggregates)

    bench.whole(words(dog=2), "1")
    bench.run("CREATE ROLE gets", "REVOKE EXECUTE ON FUNCTION report.get_word_count FROM PUBLIC")
    try:
        bench.run("GRANT EXECUTE ON FUNCTION report.get_word_count TO gets")
        bench.ledger.change(defined(times=Count(was="count")), "jobs/job.py", "another word for it")
        assert get(bench.engine, "word_count", "dog") == [{"times": 2}]
        bench.topology = defined(times=Count(), most=Max("word"))
        rebuild = bench.rebuilds.begin(bench.topology, "jobs/job.py", code("new"), "one more", None)
        assert bench.rebuilt(rebuild, {"word_count": [(("dog",), (2, "dog"))]})
        assert isinstance(bench.rebuilds.swap(rebuild, bench.topology), Swapped)
        assert get(bench.engine, "word_count", "dog") == [{"times": 2, "most": "dog"}]
        bench.rebuilds.drop_past("word_count")
        renamed = defined(OpaqueState("words", was="word_count"), times=Count(), most=Max("word"))
        bench.ledger.change(renamed, "jobs/job.py", "a shorter name")
        assert get(bench.engine, "words", "dog") == [{"times": 2, "most": "dog"}]
        assert bench.rows("SELECT proname::text FROM pg_proc WHERE proname LIKE 'get\\_word%'") == [("get_words",)]
        assert bench.rows("SELECT has_function_privilege('gets', 'report.get_words(text)', 'EXECUTE')") == [(True,)]
        assert bench.rows("SELECT proacl::text LIKE '%{=X%' FROM pg_proc WHERE proname = 'get_words'") == [(False,)]
        with transaction(bench.engine) as connection:
            state_tables.drop(connection, "word_count")
        with pytest.raises(UnknownName):
            get(bench.engine, "words", "dog")
    finally:
        bench.run("DROP OWNED BY gets", "DROP ROLE gets")


@pytest.mark.rule("R21")
def test_a_state_apart_is_asked_where_it_is(engine: Engine, databases: Callable[[str], str], tmp_path: Path) -> None:
    warehouses = Warehouses(databases)
    there = warehouses.engine("warehouse")
    apart = word_count(LogSpout({"a": 1_000_000}), state=OpaqueState("word_count", database="warehouse"))
    bench = Bench(engine, apart, warehouses)
    bench.whole(words(dog=2), "1")
    assert get(there, "word_count", "dog", "cat") == [{"count": 2}, None]
    with refused("TX401", "'word_count'", "another database"):
        get(engine, "word_count", "dog")
    reports = Reports(Settings(tmp_path, databases("warehouse"), "file:///nowhere", connections=databases))
    assert reports.multi_get("word_count", ["dog"], database="warehouse") == [{"count": 2}]
    with there.begin() as connection:
        connection.execute(text("DROP FUNCTION report.get_word_count"))
    bench.ledger.register(bench.topology, "jobs/job.py")
    assert get(there, "word_count", "dog") == [{"count": 2}]
    with transaction(engine) as connection:
        warehouses.drop(connection, "word_count")
    with pytest.raises(UnknownName):
        get(there, "word_count", "dog")


def test_a_query_is_answered_for_whoever_reads_report(bench: Bench) -> None:
    bench.whole(words(dog=3), "1")
    (counts,) = bench.topology.aggregates
    bench.topology.new_query_stream("words", "word string").state_query(counts, "word")
    with bench.engine.connect() as connection:
        connection.execute(text("CREATE ROLE gets"))
        connection.execute(text("GRANT USAGE ON SCHEMA report TO gets"))
        connection.execute(text("GRANT SELECT ON report.word_count TO gets"))
        connection.execute(text("SET LOCAL ROLE gets"))
        asked = bench.topology.query_stream("words")
        assert answers(asked, ["dog"], partial(look_up, connection)) == [[{"word": "dog", "count": 3}]]
        connection.rollback()


@pytest.mark.rule("R19")
def test_a_query_begins_a_transaction_that_reads_one_snapshot(bench: Bench, reports: Reports) -> None:
    bench.whole(words(dog=3), "1")
    (counts,) = bench.topology.aggregates
    settings = "current_setting('transaction_isolation') || current_setting('transaction_read_only')"
    count = f"length({settings}) + count - count AS count"
    bench.run(f"CREATE OR REPLACE VIEW report.word_count AS SELECT word, {count}, txid FROM state.word_count")
    bench.topology.new_query_stream("words", "word string").state_query(counts, "word")
    assert reports.ask(bench.topology, "words", ["dog"]) == [[{"word": "dog", "count": len("repeatable readon")}]]


@pytest.mark.rule("R23")
def test_a_job_that_defines_a_state_otherwise_is_told_so(bench: Bench, reports: Reports) -> None:
    bench.whole(words(dog=3), "1")
    other = word_count(LogSpout({"a": 9}), most=Count())
    other.new_query_stream("words", "word string").state_query(other.aggregates[0], "word")
    with refused("TX601", "'word_count'", "'most'", "`txbatch plan`"):
        reports.ask(other, "words", ["dog"])
    topology, spout = Topology("word_count"), LogSpout({"a": 9})
    spout.fields = "name string"
    state = (
        topology.new_stream("words", spout)
        .group_by("name")
        .persistent_aggregate(OpaqueState("word_count"), count=Count())
    )
    topology.new_query_stream("words", "name string").state_query(state, "name")
    with pytest.raises(SchemaMismatch, match="its key is word text here"):
        reports.ask(topology, "words", ["dog"])
