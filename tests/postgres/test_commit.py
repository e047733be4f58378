"""The commit on a real PostgreSQL: all or nothing, whatever comes in (R7, R9, R10)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from postgres_bench import Bench, words
from refusals import refused
from sqlalchemy import Engine
from support import LogSpout, manifest_of, record_batch, run, word_count

from txbatch import Count, Max, NonTransactionalState, OpaqueState, Sum, TransactionalState
from txbatch.core.batch.manifest import StagedState
from txbatch.core.errors import BadRecord, Incomplete, SchemaMismatch, StaleAttempt, StateAhead
from txbatch.core.topology.topology import Topology
from txbatch.postgres.state import copy_in, writer
from txbatch.postgres.state.statements import INDEX_PROBES, INDEX_WALK, StateStatements
from txbatch.storage import parquet
from txbatch.storage.staging import AttemptFolder

NOTHING: list[Any] = []


def everything(bench: Bench) -> list[Any]:
    """All that a commit changes."""
    return [
        bench.rows("SELECT * FROM state.word_count ORDER BY word"),
        bench.rows("SELECT * FROM contribution.word_count ORDER BY word, txid"),
        bench.rows("SELECT * FROM txbatch.consumed"),
        bench.rows("SELECT * FROM txbatch.partition"),
        bench.rows("SELECT txid, status, committed_at, records FROM txbatch.batch ORDER BY txid"),
        bench.rows("SELECT txid, attempt_id, status FROM txbatch.attempt ORDER BY 1, 2"),
    ]


@pytest.mark.rule("R9", "R10")
def test_all_that_a_commit_writes(bench: Bench) -> None:
    bench.whole(words(dog=1, man=2), "1")
    bench.whole(words(dog=1), "2")
    assert bench.rows("SELECT word, count, prev_count, prev_txid, txid FROM state.word_count ORDER BY 1") == [
        ("dog", 2, 1, 1, 2),
        ("man", 2, None, None, 1),
    ]
    assert bench.rows("SELECT word, position, txid, count FROM contribution.word_count ORDER BY 1, 2") == [
        ("dog", 1, 1, 1),
        ("dog", 2, 2, 1),
        ("man", 1, 1, 2),
    ]
    assert bench.rows("SELECT stream, partition, txid, metadata FROM txbatch.consumed") == [
        ("words", "a", 2, {"start": 10, "end": 20})
    ]
    assert bench.rows("SELECT partition, txid, status, records, fingerprint FROM txbatch.partition ORDER BY txid") == [
        ("a", 1, "read", 10, Decimal(10)),
        ("a", 2, "read", 10, Decimal(10020)),
    ]


@pytest.mark.rule("R7")
@pytest.mark.parametrize("totals", [{"count": "4"}, {"count": None}])
def test_a_partial_changed_on_the_way_is_noticed(bench: Bench, totals: Any) -> None:
    """The rows are as many as the manifest says, one value is not."""
    bench.whole(words(dog=1), "1")
    lies = {"word_count": StagedState((), 2, totals)}
    batch = bench.emitted(words(dog=1, man=2), "2", states=lies)
    before = everything(bench)
    with pytest.raises(Incomplete, match=r"loaded as rows and totals .*'3'.*the manifest says"):
        bench.commit(batch, words(dog=1, man=2))
    assert everything(bench) == before


@pytest.mark.rule("R7")
def test_a_row_that_a_trigger_swallows_is_noticed(bench: Bench) -> None:
    """The upsert may not lose a row in silence, whoever takes it away."""
    bench.whole(words(dog=1, man=1), "1")
    bench.run(
        "CREATE FUNCTION state.swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER swallow BEFORE UPDATE ON state.word_count FOR EACH ROW WHEN (OLD.word = 'dog')"
        " EXECUTE FUNCTION state.swallow()",
    )
    batch = bench.emitted(words(dog=1, man=1), "2")
    before = everything(bench)
    with pytest.raises(StateAhead, match=r"word_count.*outside the ledger"):
        bench.commit(batch, words(dog=1, man=1))
    assert everything(bench) == before


def test_a_value_out_of_range_changes_nothing(engine: Engine) -> None:
    spout = LogSpout({"a": 100})
    spout.fields = "word string, amount bigint"
    bench = Bench(engine, word_count(spout, total=Sum("amount")))
    bench.whole({"word_count": [(("dog",), (2**63 - 1,)), (("cat",), (1,))]}, "1")
    more = {"word_count": [(("cat",), (1,)), (("dog",), (1,))]}
    batch = bench.emitted(more, "2")
    before = everything(bench)
    with refused("TX305", "word_count 2:1", "'word_count'", "'total'"):
        bench.commit(batch, more)
    assert everything(bench) == before


def test_an_error_in_the_middle_of_the_partials_is_told_as_it_is(bench: Bench) -> None:
    """COPY reads them; the driver would say only that the query was canceled."""

    def broken() -> Iterator[Any]:
        yield record_batch(bench.topology.aggregates[0], [(("dog",), (1,))])
        raise Incomplete("partials/0/part-1.parquet is not the file that the manifest describes; emit again")

    batch = bench.emitted(words(dog=1, man=1))
    before = everything(bench)
    with pytest.raises(Incomplete, match="not the file that the manifest describes"):
        bench.ledger.commit(bench.topology, batch, {"word_count": broken()})
    assert everything(bench) == before


def test_u0000_is_refused(bench: Bench) -> None:
    batch = bench.emitted({"word_count": [(("do\0g",), (1,))]})
    with pytest.raises(
        BadRecord,
        match=r"word_count 1:1, state 'word_count': column 'word' holds U.0000, which PostgreSQL cannot store",
    ):
        bench.commit(batch, {"word_count": [(("do\0g",), (1,))]})
    assert bench.rows("SELECT * FROM state.word_count") == NOTHING


def test_a_null_key_is_refused(bench: Bench) -> None:
    batch = bench.emitted({"word_count": [((None,), (1,))]})
    with pytest.raises(BadRecord, match="null"):
        bench.commit(batch, {"word_count": [((None,), (1,))]})
    assert bench.rows("SELECT * FROM state.word_count") == NOTHING


def test_many_record_batches_and_none(bench: Bench) -> None:
    aggregate = bench.topology.aggregates[0]
    rows = [((f"word {number:05}",), (number,)) for number in range(3000)]
    batch = bench.emitted({"word_count": rows}, "1")
    chunks = [record_batch(aggregate, rows[at : at + 100]) for at in range(0, len(rows), 100)]
    empty = record_batch(aggregate, [])
    assert bench.ledger.commit(bench.topology, batch, {"word_count": [empty, *chunks, empty]}).applied
    assert bench.rows("SELECT count(*), sum(count) FROM state.word_count") == [(3000, sum(range(3000)))]
    second = bench.emitted({"word_count": []}, "2")
    assert bench.ledger.commit(bench.topology, second, {"word_count": []}).applied


def test_columns_are_found_by_name_not_by_place(bench: Bench) -> None:
    batch = bench.emitted(words(dog=5))
    turned = pa.record_batch([pa.array([5]), pa.array(["dog"])], names=["count", "word"])
    assert bench.ledger.commit(bench.topology, batch, {"word_count": [turned]}).applied
    assert bench.rows("SELECT word, count FROM state.word_count") == [("dog", 5)]


@pytest.mark.rule("R10")
@pytest.mark.rule("R10")
def test_several_states_commit_together_or_not_at_all(engine: Engine) -> None:
    """Of every kind, keyed and global; the last one fails, by a value out of range. Then the batch is retried, whole."""
    spout = LogSpout({"a": 100})
    spout.fields = "word string, n bigint"
    topology = Topology("word_count")
    stream = topology.new_stream("words", spout)
    grouped = stream.group_by("word")
    grouped.persistent_aggregate(OpaqueState("word_count"), remove="n < 0", n=Count())
    grouped.persistent_aggregate(TransactionalState("lean", contributions=False), n=Count())
    grouped.persistent_aggregate(NonTransactionalState("loose"), guarantee="at_least_once", n=Count())
    stream.persistent_aggregate(OpaqueState("total"), n=Sum("n"))
    names = ["word_count", "lean", "loose", "total"]
    bench = Bench(engine, topology)

    def partials(n: int) -> dict[str, Any]:
        dog: Any = [(("dog",), (1,))]
        return {"word_count": [(("dog",), (1, False, True))], "lean": dog, "loose": dog, "total": [((), (n,))]}

    def states() -> list[Any]:
        return [bench.rows(f"SELECT * FROM state.{name}") for name in names]

    bench.whole(partials(2**63 - 10), "1")
    before = everything(bench), states()
    removal: Any = {**partials(11), "word_count": [(("dog",), (None, True, False))]}
    batch = bench.emitted(removal, "2")
    emitted = everything(bench)
    with pytest.raises(BadRecord, match="out of range"):
        bench.commit(batch, removal)
    assert everything(bench) == emitted
    assert states() == before[1]
    assignment = bench.ledger.start_attempt(batch, run("2"), "code")
    good = partials(9)
    retried = bench.ledger.record_manifests([(assignment, manifest_of(topology, assignment, good))])[0]
    assert bench.commit(retried, good)
    assert bench.rows("SELECT n FROM report.total") == [(2**63 - 1,)]
    for name in names[:3]:
        assert bench.rows(f"SELECT n, txid FROM report.{name}") == [(2, 2)]


def test_one_of_two_states_fails(engine: Engine) -> None:
    topology = word_count(LogSpout({"a": 100}))
    topology.streams["words"].group_by("word").persistent_aggregate(TransactionalState("second"), top=Max("word"))
    bench = Bench(engine, topology)
    good = {"word_count": [(("dog",), (1,))], "second": [(("dog",), ("dog",))]}
    bench.whole(good, "1")
    batch = bench.emitted(good, "2")
    bench.run("UPDATE state.second SET txid = 99")
    before = everything(bench)
    with pytest.raises(StateAhead, match=r"state 'second', key .'dog',.: the row is at txid 99, the batch is txid 2"):
        bench.commit(batch, good)
    assert everything(bench) == before


def removal(word: str, *values: int) -> Any:
    """Removes the word; with a value, other records of it count."""
    return ((word,), (*(values or (None,)), True, bool(values)))


@pytest.mark.rule("R9", "R18")
def test_state_is_the_fold_of_contributions_by_position_also_where_keys_are_removed(engine: Engine) -> None:
    topology = Topology("word_count")
    grouped = topology.new_stream("words", LogSpout({"a": 1_000})).group_by("word")
    aggregate = grouped.persistent_aggregate(OpaqueState("word_count"), remove="word = ''", count=Count())
    bench = Bench(engine, topology)

    def count(word: str, value: int) -> Any:
        return ((word,), (value, False, True))

    batches = [
        [count("dog", 4), count("man", 1)],
        [removal("dog"), removal("cat"), count("man", 1)],
        [count("dog", 1), removal("man", 5)],
        [removal("dog", 2), count("man", 1), removal("cat")],
        [removal("man"), count("owl", 1)],
    ]
    for number, partials in enumerate(batches):
        bench.whole({"word_count": partials}, str(number))
        assert bench.rows("SELECT count(*) FROM state.word_count WHERE NOT counted") == [(0,)]
    contributed = bench.rows(
        "SELECT position, word, count, removed, counted FROM contribution.word_count ORDER BY 1, 2"
    )
    assert len(contributed) == sum(map(len, batches))
    fold: dict[str, int] = {}
    for _, word, value, removed, counted in contributed:
        if removed:
            fold.pop(word, None)
        if counted:
            fold[word] = fold.get(word, 0) + value
    assert fold == {"dog": 2, "owl": 1}
    assert dict(bench.rows("SELECT word, count FROM report.word_count")) == fold
    plain = Topology("word_count")
    again = plain.new_stream("words", LogSpout({"a": 1_000})).group_by("word")
    again.persistent_aggregate(aggregate.state, count=Count())
    with pytest.raises(SchemaMismatch, match="state 'word_count' changes from with remove= to without remove="):
        bench.ledger.register(plain, "jobs/job.py")


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "EUC_JP"])
def test_the_roles_encoding_does_not_reach_the_keys(
    bench: Bench, postgres_url: str, encoding: str, monkeypatch: Any
) -> None:
    """Else the bytes of UTF-8 would be taken for something else, in silence."""
    monkeypatch.setenv("PGCLIENTENCODING", encoding)
    bench.engine.dispose()  # read when a connection is made
    bench.whole(words(**{"naïve ü": 1}))
    monkeypatch.delenv("PGCLIENTENCODING")
    bench.engine.dispose()
    assert bench.rows("SELECT word FROM state.word_count") == [("naïve ü",)]


@pytest.mark.parametrize("keys", [0, 1, 1_000])
@pytest.mark.parametrize("walk", [True, False])
def test_the_upsert_finds_its_rows_by_the_primary_key(bench: Bench, keys: int, walk: bool) -> None:
    """Whatever the planner knows of the tables: it never scans the state, nor what the batch itself puts there."""
    bench.whole(words(**{f"key{n}": 1 for n in range(keys)}))
    bench.run("ANALYZE state.word_count")
    statements = StateStatements(bench.topology.aggregates[0])
    with bench.engine.connect() as connection:
        cursor = connection.connection.cursor()
        cursor.execute(statements.create_staged())
        way = INDEX_WALK if walk else INDEX_PROBES
        cursor.execute(f"{way}; EXPLAIN (VERBOSE, COSTS OFF) {statements.upsert(2, walk=walk)}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Index Scan using word_count_pkey on state.word_count" in plan
    assert ("Index Cond: (s.word = ANY" in plan) is walk, plan
    assert plan.count("Seq Scan") == 1 + walk, plan  # of the staged rows


@pytest.mark.parametrize("version", [170000, 990000], ids=["walk", "probes"])
def test_both_ways_to_the_keys_write_the_same(bench: Bench, monkeypatch: Any, version: int) -> None:
    monkeypatch.setattr(writer, "INDEX_WALK_VERSION_MIN", version)
    bench.whole(words(dog=1, man=2, owl=3), "1")
    bench.whole(words(cat=1, dog=1, yak=1), "2")
    assert bench.rows("SELECT word, count, prev_count, prev_txid, txid FROM state.word_count ORDER BY 1") == [
        ("cat", 1, None, None, 2),
        ("dog", 2, 1, 1, 2),
        ("man", 2, None, None, 1),
        ("owl", 3, None, None, 1),
        ("yak", 1, None, None, 2),
    ]


NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)
TYPED = [
    pytest.param("string", ["", "\\", "a\nb", "x" * 2_000, "ü"], id="string"),
    pytest.param("boolean", [False, True], id="boolean"),
    pytest.param("smallint", [-(2**15), 0, 2**15 - 1], id="smallint"),
    pytest.param("int", [-(2**31), 0, 2**31 - 1], id="int"),
    pytest.param("bigint", [-(2**63), 0, 2**63 - 1], id="bigint"),
    pytest.param("date", [date(1970, 1, 1), date(2000, 2, 29), date(9999, 12, 31)], id="date"),
    pytest.param("timestamp", [NOON, NOON + timedelta(microseconds=1), NOON + timedelta(days=1)], id="timestamp"),
    pytest.param("decimal(9,2)", [Decimal("-0.01"), Decimal("0.00"), Decimal("9999999.99")], id="decimal"),
    pytest.param("binary", [b"", b"\0", b"\\x", b"\xff"], id="binary"),
]


@pytest.mark.rule("R9")
@pytest.mark.parametrize("version", [170000, 990000], ids=["walk", "probes"])
@pytest.mark.parametrize(("type_", "values"), TYPED)
def test_a_key_of_any_type_is_found_again(
    engine: Engine, monkeypatch: Any, type_: str, values: list[Any], version: int
) -> None:
    monkeypatch.setattr(writer, "INDEX_WALK_VERSION_MIN", version)
    spout = LogSpout({"a": 100})
    spout.fields = f"k {type_}"
    topology = Topology("t")
    topology.new_stream("s", spout).group_by("k").persistent_aggregate(OpaqueState("t"), n=Count())
    bench = Bench(engine, topology)
    for txid in (1, 2):
        bench.whole({"t": [((value,), (1,)) for value in values]}, f"{txid}")
    found = bench.rows("SELECT k, n, prev_n, txid FROM state.t ORDER BY k")
    assert [(bytes(k) if isinstance(k, memoryview) else k, *rest) for k, *rest in found] == [
        (value, 2, 1, 2) for value in values
    ]


@pytest.mark.rule("R7", "R9")
@pytest.mark.parametrize("sizes", [(2_000, 100), (500, 2_000), (300, 50)])
def test_runs_and_their_parts_lose_nothing(bench: Bench, monkeypatch: Any, sizes: tuple[int, int]) -> None:
    """A batch of several runs, each sorted in parts, with keys that come in several of them."""
    monkeypatch.setattr(copy_in, "SORTED_ROWS", sizes[0])
    monkeypatch.setattr(copy_in, "SORTED_ROWS_FIRST", sizes[1])
    monkeypatch.setattr(copy_in, "_SAMPLE_ROWS", 10)
    aggregate = bench.topology.aggregates[0]
    rows = [((f"word {number * 7919 % 601:05}",), (number,)) for number in range(1_500)]
    batch = bench.emitted({"word_count": rows})
    chunks = [record_batch(aggregate, rows[at : at + 100]) for at in range(0, len(rows), 100)]
    assert bench.ledger.commit(bench.topology, batch, {"word_count": chunks}).applied
    expected: dict[str, int] = {}
    for (word,), (number,) in rows:
        expected[word] = expected.get(word, 0) + number
    assert dict(bench.rows("SELECT word, count FROM state.word_count")) == expected


KEYS = [
    pytest.param("string", ["", "a", "b", "ü", None], id="text"),
    pytest.param("boolean", [True, False, None], id="boolean"),
    pytest.param("double", [float("nan"), 1.5, -2.0, float("inf"), None], id="double"),
    pytest.param("decimal(9,2)", [Decimal("1.50"), Decimal("-3"), None], id="decimal"),
    pytest.param("binary", [b"", b"\0", b"a", None], id="binary"),
]


@pytest.mark.parametrize(("type_", "values"), KEYS)
def test_sorting_in_parts_keeps_every_row(monkeypatch: Any, type_: str, values: list[Any]) -> None:
    """Whatever compares with nothing: null and NaN."""
    monkeypatch.setattr(copy_in, "SORTED_ROWS_FIRST", 3)
    monkeypatch.setattr(copy_in, "_SAMPLE_ROWS", 2)
    spout = LogSpout({"a": 1})
    spout.fields = f"k {type_}"
    topology = Topology("t")
    aggregate = topology.new_stream("s", spout).group_by("k").persistent_aggregate(OpaqueState("t"), n=Count())
    rows = [((value,), (number,)) for number, value in enumerate(values * 5)]
    parts = list(copy_in.in_key_order([record_batch(aggregate, rows)], ["k"]))
    found = pa.Table.from_batches(parts)
    assert sorted(found["n"].to_pylist()) == list(range(len(rows)))
    assert str(found["k"].to_pylist()) == str(pa.table({"k": found["k"]}).sort_by("k")["k"].to_pylist())


def test_a_commit_against_a_changed_definition_is_refused(bench: Bench) -> None:
    batch = bench.emitted(words(dog=1))
    changed = word_count(LogSpout({"a": 1}), other=Count())
    with pytest.raises(SchemaMismatch, match=r"value 'count' of state 'word_count' is gone; value 'other' .* is new"):
        bench.ledger.commit(changed, batch, {"word_count": []})


# ---- from the files of an attempt


def staged_in(folder: AttemptFolder, topology: Topology, rows: Any, files: int = 2) -> Any:
    """Parquet files as Spark writes them."""
    import pyarrow.parquet as pq

    found = {}
    for number, aggregate in enumerate(topology.aggregates):
        path = folder.path(f"partials/{number}")
        folder.filesystem.makedirs(path, exist_ok=True)
        for file in range(files):
            table = pa.Table.from_batches([record_batch(aggregate, rows[aggregate.state.name][file::files])])
            pq.write_table(table, f"{path}/part-{file}.parquet")
        found[aggregate.state.name] = parquet.describe(folder, number, aggregate)
    return found


AMOUNTS = [
    pytest.param("decimal(20,10)", ["0.0000000000", "0.0000000000"], id="zero of ten digits"),
    pytest.param("decimal(20,10)", ["0.0000000001", None], id="tiny"),
    pytest.param("decimal(38,0)", ["9" * 37, "1"], id="many digits"),
    pytest.param("bigint", [2**63 - 1, 5], id="beyond bigint in all"),
    pytest.param("bigint", [None, None], id="nothing"),
    pytest.param("bigint", [-5, 3], id="negative"),
]


@pytest.mark.parametrize(("type_", "amounts"), AMOUNTS)
def test_totals_of_the_files_and_of_the_database_are_the_same(
    engine: Engine, tmp_path: Any, type_: str, amounts: Any
) -> None:
    """Reckoned twice, by Arrow and by PostgreSQL, printed the same."""
    spout = LogSpout({"a": 100})
    spout.fields = f"word string, amount {type_}"
    bench = Bench(engine, word_count(spout, total=Sum("amount"), top=Max("amount"), n=Count()))
    values = [Decimal(each) if isinstance(each, str) else each for each in amounts]
    rows = {"word_count": [((f"word {n}",), (value, value, 1)) for n, value in enumerate(values)]}
    folder = AttemptFolder(f"{tmp_path.as_uri()}/attempt")
    staged = staged_in(folder, bench.topology, rows)
    batch = bench.emitted(rows, states=staged)
    committed = bench.ledger.commit(bench.topology, batch, {"word_count": parquet.read(folder, staged["word_count"])})
    assert committed.applied
    assert bench.rows("SELECT total FROM state.word_count ORDER BY word") == [(value,) for value in values]


@pytest.mark.rule("R7")
@pytest.mark.parametrize("what", ["changed", "gone", "swapped"])
def test_a_file_that_is_not_the_manifests_is_refused(bench: Bench, tmp_path: Any, what: str) -> None:
    rows = words(dog=1, man=2)
    folder = AttemptFolder(f"{tmp_path.as_uri()}/attempt")
    staged = staged_in(folder, bench.topology, rows)
    batch = bench.emitted(rows, states=staged)
    first, second = (tmp_path / "attempt" / "partials" / "0" / f"part-{n}.parquet" for n in (0, 1))
    if what == "changed":
        first.write_bytes(first.read_bytes()[:-1] + b"!")
    elif what == "gone":
        second.unlink()
    else:
        first.write_bytes(second.read_bytes())
    before = everything(bench)
    with pytest.raises(Incomplete, match=r"part-\d.parquet is not the file that the manifest describes; emit again"):
        bench.ledger.commit(bench.topology, batch, {"word_count": parquet.read(folder, staged["word_count"])})
    assert everything(bench) == before


@pytest.mark.rule("R5")
def test_two_attempts_of_one_batch_and_only_the_newest_files_count(bench: Bench) -> None:
    batch = bench.emitted(words(dog=99))
    assignment = bench.ledger.start_attempt(batch, run("run"), "code")
    emitted = bench.ledger.record_manifests([(assignment, manifest_of(bench.topology, assignment, words(dog=1)))])[0]
    with pytest.raises(StaleAttempt, match="1:1 is not the newest"):
        bench.commit(batch, words(dog=99))
    with pytest.raises(Incomplete, match="'99'"):
        bench.commit(emitted, words(dog=99))
    assert bench.commit(emitted, words(dog=1))


def test_names_that_need_quoting_from_plan_to_report(engine: Engine) -> None:
    for number, name in enumerate(("select", "Ünïcode", 'a"b', "a%b", "a:b", "x" * 43)):
        spout = LogSpout({"a": 100})
        spout.fields = f"`{name}` string"
        topology = Topology(f"t{number}")
        grouped = topology.new_stream(name, spout).group_by(name)
        grouped.persistent_aggregate(OpaqueState(name), **{f"n {name}": Count()})
        bench = Bench(engine, topology)
        bench.whole({name: [(("dog",), (number,))]})
        quoted = name.replace('"', '""').replace(":", "\\:")
        assert bench.rows(f'SELECT * FROM report."{quoted}"') == [("dog", number, 1)]
