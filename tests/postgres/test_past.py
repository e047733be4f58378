"""What people ask a state for its past: the functions in `report` against `core.state.fold`, after any history (R17, R19,
R22).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from past_model import BASE, HISTORY, KEYS, WAYS, Model, few, positions
from postgres_bench import Bench, words
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError
from support import LogSpout, word_count

from txbatch import Avg, Count, Max, Min, NonTransactionalState, OpaqueState, Sum, Topology, TransactionalState
from txbatch.core.errors import TerminalError
from txbatch.core.state.update import Change
from txbatch.postgres.reading.history_reader import HistoryReader
from txbatch.postgres.schema.state_tables import drop

STATES = {"opaque": OpaqueState, "transactional": TransactionalState, "non_transactional": NonTransactionalState}
LOOSE = "at_least_once"


EVERY_TYPE: dict[str, tuple[Any, Any]] = {
    "string": ("a", "B"),
    "int": (7, -7),
    "bigint": (2**62, -(2**62)),
    "smallint": (7, -7),
    "boolean": (True, False),
    "double": (1.5, float("inf")),
    "float": (0.5, -0.5),
    "date": (date(2013, 1, 1), date(1, 1, 1)),
    "timestamp": (datetime(2013, 1, 1, 5, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)),
    "binary": (b"ab", b"\x00"),
    "decimal(38,10)": (Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.0000000001")),
}


@pytest.mark.rule("R17", "R19")
def test_every_type_as_key_and_as_value(connection: Connection, engine: Engine) -> None:
    topology, spout = Topology("t"), LogSpout({"a": 1})
    spout.fields = ", ".join(f"`{type_}` {type_}" for type_ in EVERY_TYPE)
    stream = topology.new_stream("in", spout)
    for type_ in EVERY_TYPE:
        stream.group_by(type_).persistent_aggregate(OpaqueState(f"by {type_}"), low=Min(type_), high=Max(type_))
    Bench(engine, topology)
    for aggregate, (first, other) in zip(topology.aggregates, EVERY_TYPE.values(), strict=True):
        connection.exec_driver_sql("TRUNCATE txbatch.batch CASCADE")
        key, (low, high) = (first,), sorted([first, other])
        model = Model(connection, aggregate)
        one, two = Change((first, first)), Change((other, other))
        model.fill({}, [(1, {key: one}), (2, {key: two}), (1, {key: two}), (4, {key: one})])
        name = aggregate.state.name
        for way in WAYS:
            connection.exec_driver_sql(f"SET LOCAL txbatch.far_back = {way}")
            asked = [model.rows(f'SELECT low, high, txid FROM report."as_of_{name}"({at})') for at in range(5)]
            assert [[tuple(map(plain, row)) for row in rows] for rows in asked] == [
                [],
                [(first, first, 1)],
                [(low, high, 2)],
                [(other, other, 3)],
                [(low, high, 4)],
            ]
            assert model.rows(f'SELECT change FROM report."changes_{name}"(2, 3)') == [("changed",)]
        (literal,) = connection.exec_driver_sql(f'SELECT quote_literal(c."{name[3:]}") FROM report."{name}" c').one()
        assert len(model.rows(f'SELECT txid FROM report."why_{name}"({literal})')) == 4


def plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


@pytest.mark.rule("R17", "R19")
def test_a_global_value_has_a_past(connection: Connection, engine: Engine) -> None:
    topology = Topology("t")
    topology.new_stream("in", LogSpout({"a": 1})).persistent_aggregate(
        NonTransactionalState("all"), guarantee=LOOSE, n=Count()
    )
    Bench(engine, topology)
    model = Model(connection, topology.aggregates[0])
    model.fill({}, [(1, {(True,): Change((5,))}), (2, {(True,): Change((2,))}), (1, {(True,): Change((1,))})])
    for way in WAYS:
        connection.exec_driver_sql(f"SET LOCAL txbatch.far_back = {way}")
        assert [model.rows(f"SELECT * FROM report.as_of_all({at})") for at in range(4)] == [
            [],
            [(5, 1)],
            [(7, 2)],
            [(3, 3)],
        ]
        assert [model.rows(f"SELECT * FROM report.corrected_all({at})") for at in range(3)] == [[], [(1, 3)], [(3, 3)]]
        assert model.rows("SELECT * FROM report.changes_all(1, 3)") == [("changed", 5, 3, 3)]
    why = "SELECT position, txid, replaced_by, n, counts FROM report.why_all()"
    assert model.rows(why) == [(1, 1, 3, 5, False), (1, 3, None, 1, True), (2, 2, None, 2, True)]


def test_a_partition_that_several_streams_have_is_told_with_its_stream(engine: Engine) -> None:
    topology = Topology("t")
    streams = [
        topology.new_stream(name, LogSpout(ends)) for name, ends in {"a": {"d0": 1, "d1": 1}, "b": {"d0": 1}}.items()
    ]
    topology.merge(*streams, name="both").persistent_aggregate(OpaqueState("n"), n=Count())
    bench = Bench(engine, topology)
    bench.whole({"n": [((), (3,))]})
    assert bench.rows("SELECT reads FROM report.why_n()") == [(["d0 (stream a) 0-1", "d0 (stream b) 0-1", "d1 0-1"],)]


def test_columns_that_are_called_as_ours_keep_their_names(engine: Engine) -> None:
    topology, spout = Topology("t"), LogSpout({"a": 99})
    spout.fields = "counts string, `reads` int, k0 int, `c` int"
    stream = topology.new_stream("in", spout).group_by("counts", "reads", "k0")
    long = "n" * 58
    stream.persistent_aggregate(
        OpaqueState("a\"b % 'x' \\ :p"),
        attempt=Count(),
        change=Count(),
        p0=Sum("c"),
        as_of_txid=Count(),
        **{long: Count()},
    )
    bench = Bench(engine, topology)
    row = (("x", 1, 2), (1, 2, 3, 4, 5))
    bench.whole({topology.aggregates[0].state.name: [row]}, "1")
    bench.whole({topology.aggregates[0].state.name: [row]}, "2")
    name = bench.topology.aggregates[0].state.name.replace('"', '""').replace("%", "%%")
    values = ["attempt", "change", "p0", "as_of_txid", long]
    columns = {
        "as_of": ["counts", "reads", "k0", *values, "txid"],
        "why": ["position", "txid", "replaced_by", *values, "counts_2", "attempt_2"],
    }
    with engine.connect() as connection:
        asked = (("as_of", "1"), ("corrected", "1"), ("why", "'x', 1, 2"), ("changes", "1, 2"))
        for way, (function, arguments) in product(WAYS, asked):
            connection.exec_driver_sql(f"SET LOCAL txbatch.far_back = {way}")
            found = connection.exec_driver_sql(f'SELECT * FROM report."{function}_{name}"({arguments})')
            names = list(found.keys())
            assert names[: len(columns.get(function, []))] == columns.get(function, []), function
            assert len(found.fetchall()) == (2 if function == "why" else 1)
        assert {"change", "change_before", "p0_after", "n" * 56 + "_before"} <= set(names)


def test_a_key_is_found_by_index_also_among_what_changed(bench: Bench, connection: Connection) -> None:
    bench.whole(words(dog=1, cat=1), "1")
    for way in ("seqscan", "bitmapscan"):
        connection.exec_driver_sql(f"SET LOCAL enable_{way} = off")
    for function, asked in (("as_of_word_count(0)", "'dog'"), ("changes_word_count(0, 1)", "'dog' COLLATE \"C\"")):
        plan = connection.exec_driver_sql(f"EXPLAIN SELECT * FROM report.{function} WHERE word = {asked}").scalars()
        lines = [line.strip() for line in plan]
        assert [line for line in lines if "Index Cond: ((word = 'dog'" in line], lines
        assert not [line for line in lines if line.startswith("Filter") and "word = 'dog'" in line], lines


def test_a_state_is_asked_for_what_it_knows(bench: Bench) -> None:
    for name in ("1", "2", "3"):
        bench.whole(words(dog=1), name)
    bench.run("UPDATE txbatch.state SET horizon = 2")
    told = {
        "as_of_word_count(1)": "state 'word_count' cannot be asked as of txid 1: retention has folded what it was before txid 2",
        "as_of_word_count(4)": "state 'word_count' cannot be asked as of txid 4: the newest committed one is 3",
        "as_of_word_count(-1)": "as of txid -1: the newest",
        "as_of_word_count(NULL)": "as of txid null: the newest",
        "corrected_word_count(1)": "retention has folded",
        "changes_word_count(1, 3)": "retention has folded",
        "changes_word_count(2, 4)": "the newest committed one is 3",
    }
    for call, why in told.items():
        with pytest.raises(DBAPIError) as error:
            bench.rows(f"SELECT * FROM report.{call}")
        assert why in str(error.value), call
        assert "; ask for one of 2 to 3" in error.value.orig.diag.message_primary
    assert bench.rows("SELECT * FROM report.as_of_word_count(2) WHERE word = 'dog'") == [("dog", 2, 2)]


@pytest.mark.parametrize("way", WAYS)
def test_a_state_without_rows_answers_as_others_do(engine: Engine, way: str) -> None:
    """In SQL and to the command, whichever way is taken, before anything is committed and after nothing was counted."""
    topology = Topology("t")
    stream = topology.new_stream("in", LogSpout({"a": 1}))
    stream.group_by("word").persistent_aggregate(OpaqueState("by word"), n=Count())
    stream.persistent_aggregate(OpaqueState("all"), n=Count())
    bench, reader = Bench(engine, topology), HistoryReader(engine)
    asked = [f'{function}_{state}"({{}})' for function in ("as_of", "corrected") for state in ("by word", "all")]
    asked += ["as_of_by word\"({}) WHERE word = 'a'", 'changes_by word"(0, {})', 'changes_all"({}, 0)']

    def check_asked(newest: int) -> None:
        why = f"cannot be asked as of txid {newest + 1}: the newest committed one is {newest}"
        for call in asked:
            with engine.connect() as connection:
                connection.execute(text(f"SET LOCAL txbatch.far_back = {way}"))
                with pytest.raises(DBAPIError, match=why):
                    connection.execute(text(f'SELECT * FROM report."{call}'.format(newest + 1)))
        for state, keys, corrected in product(("by word", "all"), ([], [["a"]]), (False, True)):
            if not (state == "all" and keys):
                with pytest.raises(TerminalError, match=f"{why}; ask for one of 0 to {newest}"):
                    reader.as_of(state, newest + 1, keys, corrected=corrected)

    check_asked(0)
    bench.whole({"by word": [], "all": []}, "1")
    check_asked(1)


@pytest.mark.rule("R19")
@pytest.mark.parametrize("analyzed", [False, True])
def test_what_lies_far_back_is_told_in_one_pass(bench: Bench, analyzed: bool) -> None:
    bench.whole({"word_count": [((f"word {n}",), (1,)) for n in range(5000)]}, "all of them")
    for n in range(2, 130):
        bench.whole(words(**{f"word{n}": 1}), f"one {n}")
    if analyzed:
        with bench.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("ANALYZE")
    far = "SELECT report.far_back('word_count', {})"
    assert bench.rows(far.format(0)) == [(True,)]
    assert [bench.rows(far.format(txids)) for txids in ("1", "60", "128", "129", "1, 90")] == [[(False,)]] * 5
    assert bench.rows(far.format("0, 129")) == [(True,)]
    for way, told in (("on", True), ("off", False), ("auto", False), ("", False)):
        with bench.engine.connect() as connection:
            connection.execute(text("SELECT set_config('txbatch.far_back', :way, true)"), {"way": way})
            assert connection.execute(text(far.format(60))).scalar_one() is told
            assert connection.execute(text("SELECT count(*) FROM report.as_of_word_count(60)")).scalar_one() == 5059


@pytest.mark.rule("R16", "R19")
def test_a_skip_above_what_is_open_is_no_txid_to_ask_as_of(engine: Engine) -> None:
    """What is told as of a txid, or of a moment, stays what it is: the skip counts once all below it is final."""
    bench = Bench(engine, word_count(LogSpout({"a": 3}, size=1), max_pending=3))
    bench.whole(words(dog=1), "1")
    emitted = [bench.emitted(words(dog=10**number), f"{number + 1}") for number in (1, 2)]
    bench.ledger.skip("word_count", emitted[0].txid, "a test")
    reader, (at,) = HistoryReader(engine), bench.rows("SELECT clock_timestamp()")[0]
    assert bench.rows("SELECT txid, final FROM report.batches WHERE kind = 'skip'") == [(4, False)]
    told = "cannot be asked as of txid 4: txid 3 is open, and what it counts would change the answer"
    told += "; ask for one of 0 to 2, or once txid 3 is committed or aborted"
    with pytest.raises(DBAPIError, match=told):
        bench.rows("SELECT * FROM report.as_of_word_count(4)")
    with pytest.raises(DBAPIError, match=told):
        bench.rows("SELECT * FROM report.changes_word_count(1, 4)")
    assert reader.txid_at("word_count", at) == 1
    assert bench.rows("SELECT count FROM report.as_of_word_count(2)") == [(1,)]  # aborted: as after txid 1
    assert bench.commit(emitted[1], words(dog=100))
    assert bench.rows("SELECT count FROM report.as_of_word_count(4)") == [(101,)]
    (now,) = bench.rows("SELECT clock_timestamp()")[0]
    assert (reader.txid_at("word_count", at), reader.txid_at("word_count", now)) == (1, 4)
    assert bench.rows("SELECT count FROM report.as_of_word_count(1)") == [(1,)]


def test_a_way_that_is_none_is_named(bench: Bench) -> None:
    bench.whole(words(dog=1), "1")
    with bench.engine.connect() as connection:
        connection.execute(text("SET LOCAL txbatch.far_back = often"))
        with pytest.raises(DBAPIError, match=r"txbatch\.far_back is 'often'"):
            connection.execute(text("SELECT * FROM report.as_of_word_count(1)"))
        connection.rollback()


def test_a_reader_of_reports_may_ask_and_sees_nothing_else(bench: Bench, engine: Engine) -> None:
    bench.whole(words(dog=1), "1")
    bench.whole(words(dog=1), "2")
    with engine.connect() as connection:
        for statement in (
            "CREATE ROLE asks NOLOGIN",
            "GRANT USAGE ON SCHEMA report TO asks",
            "GRANT SELECT ON ALL TABLES IN SCHEMA report TO asks",
            "SET LOCAL ROLE asks",
        ):
            connection.execute(text(statement))
        asked = [
            connection.execute(text(f"SELECT count(*) FROM report.{call}")).scalar_one()
            for call in (
                "as_of_word_count(1)",
                "corrected_word_count(1)",
                "changes_word_count(1, 2)",
                "why_word_count('dog')",
            )
        ]
        assert asked == [1, 1, 1, 2]
        connection.execute(text("RESET ROLE"))
        connection.execute(text('REVOKE SELECT ON report."word_count@versions" FROM asks'))
        connection.execute(text("SET LOCAL ROLE asks"))
        with pytest.raises(DBAPIError, match="permission denied for view word_count@versions"):
            connection.execute(text("SELECT * FROM report.as_of_word_count(1)"))
        connection.rollback()


def test_a_state_from_before_gets_its_past_and_another_ones_name_is_left_alone(engine: Engine) -> None:
    bench = Bench(engine)
    bench.whole(words(dog=1), "1")
    bench.run(
        "DROP FUNCTION report.as_of_word_count, report.why_word_count, report.changes_word_count, report.corrected_word_count",
        'DROP VIEW report."word_count@versions"',
        "DROP VIEW report.word_count_changes",
        "CREATE VIEW report.word_count_changes AS SELECT c.word, c.count, c.txid, b.committed_at, now() AS interval_start,"
        " now() AS interval_end FROM contribution.word_count c JOIN txbatch.batch b USING (txid)",
    )
    bench.ledger.register(bench.topology, "jobs/job.py")
    assert bench.rows("SELECT * FROM report.as_of_word_count(1)") == [("dog", 1, 1)]
    assert bench.rows("SELECT position, replaced_by FROM report.word_count_changes") == [(1, None)]
    made = "SELECT oid, xmin::text FROM pg_proc UNION ALL SELECT oid, xmin::text FROM pg_class ORDER BY 1"
    before = bench.rows(made)
    bench.ledger.register(bench.topology, "jobs/job.py")
    assert bench.rows(made) == before


def test_every_function_says_what_it_is_for(bench: Bench) -> None:
    silent = "SELECT proname FROM pg_proc WHERE pronamespace = 'report'::regnamespace AND obj_description(oid) IS NULL"
    assert bench.rows(silent) == []
    assert bench.rows("SELECT count(*) FROM pg_proc WHERE pronamespace = 'report'::regnamespace") == [(27,)]


def test_what_is_dropped_leaves_no_function(bench: Bench) -> None:
    with bench.engine.begin() as connection:
        drop(connection, "word_count")
    left = {name for (name,) in bench.rows("SELECT proname FROM pg_proc WHERE pronamespace = 'report'::regnamespace")}
    merges = {f"{of}_{name}" for of in ("merge", "fold") for name in ("top", "smallest", "bins")}
    distinct = {f"distinct_{name}" for name in ("count", "union", "intersection", "difference")}
    rows = {"top_rows", "ordered_number", "ordered_double", "ordered_value"}
    ours = {"by_its_job", "of_one_generation", "known_at", "known_before", "far_back", "far_before", "quantile"}
    assert left == {*ours, *merges, *distinct, *rows}
    assert bench.rows("SELECT relname FROM pg_class WHERE relname LIKE 'word_count%'") == []


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as connection:
        yield connection
        connection.rollback()


@pytest.mark.rule("R17", "R19")
@pytest.mark.parametrize(("kind", "removable"), [("opaque", False), ("opaque", True), ("transactional", False)])
@given(history=HISTORY, base=BASE)
@few
def test_the_past_is_what_the_core_folds(
    engine: Engine, kind: str, removable: bool, history: list[Any], base: tuple[int | None, ...] | None
) -> None:
    topology = Topology("t")
    stream = topology.new_stream("words", LogSpout({"a": 1})).each("1", "n bigint").group_by("word")
    remove: Any = {"remove": "true"} if removable else {}
    stream.persistent_aggregate(STATES[kind]("s%"), count=Count(), most=Max("n"), mean=Avg("n"), **remove)
    Bench(engine, topology)
    with engine.connect() as connection:
        model = Model(connection, topology.aggregates[0])
        folded = {(key,): (n,) * 4 for key, n in zip(KEYS, base or (), strict=False) if n is not None}
        shift = 1 if folded else 0
        changes = []
        for position, (_, each) in zip(positions([again for again, _ in history]), history, strict=True):
            of_keys = {(key,): change for key, change in zip(KEYS, each, strict=True) if change is not None}
            marked = {
                key: Change((value,) * 4, *(marks if removable else (False, True)))
                for key, (value, *marks) in of_keys.items()
            }
            changes.append((position + shift, marked))
        model.fill(folded, changes)
        check(model, "s%")
        connection.rollback()


def check(model: Model, name: str) -> None:
    """Every function at every txid, for all keys and for one; what `why` says folds to the value."""
    state = name.replace("%", "%%")

    def asked(function: str, where: str = "") -> dict[Any, tuple[Any, ...]]:
        keys = len(model.aggregate.keys)
        return {row[:keys]: row[keys:] for row in model.rows(f'SELECT * FROM report."{function}_{state}"{where}')}

    for way, at in product(WAYS, range(model.horizon, model.newest + 1)):
        model.connection.exec_driver_sql(f"SET LOCAL txbatch.far_back = {way}")
        assert asked("as_of", f"({at})") == model.report(at)
        assert asked("corrected", f"({at})") == model.report(corrected=at)
        if model.aggregate.keys:
            for key in KEYS:
                one = {(key,): model.report(at)[(key,)]} if (key,) in model.report(at) else {}
                assert asked("as_of", f"({at}) WHERE word = '{key}'") == one
        for since in range(model.horizon, model.newest + 1):
            assert asked("changes", f"({since}, {at})") == differences(model, since, at)
    for key in {*model.base, *model.given}:
        literal = ", ".join(f"'{part}'" for part in key)
        versions = model.rows(f'SELECT position, txid, replaced_by, counts FROM report."why_{state}"({literal})')
        assert [each[:3] for each in versions] == sorted(
            [(None, model.horizon, None)] * (key in model.base)
            + [(each.position, each.txid, each.replaced_by) for each in model.given.get(key, [])],
            key=lambda each: (each[0] or 0, each[1]),
        )
        counted = model.rows(f'SELECT sum(count), bool_or(true) FROM report."why_{state}"({literal}) WHERE counts')
        value = model.fold(key)
        assert counted == [(None, None) if value is None else (value[0], True)]


def differences(model: Model, since: int, at: int) -> dict[Any, tuple[Any, ...]]:
    before, after = model.report(since), model.report(at)
    found = {}
    for key in before.keys() | after.keys():
        was, now = (each.get(key, (None,) * 99)[: len(model.aggregate.aggregates)] for each in (before, after))
        if was != now or (key in before) != (key in after):
            how = "added" if key not in before else "changed" if key in after else "removed"
            paired = [part for pair in zip(was, now, strict=True) for part in pair]
            found[key] = (how, *paired, model.txid(key, max(since, at)))
    return found
