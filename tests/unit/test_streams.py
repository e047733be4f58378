"""Streams that merge, look up or add up to one value: what is accepted and refused, and the in-memory twin (R9, R11)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from refusals import refused
from support import ListSpout, LogSpout

from txbatch import (
    Avg,
    BatchSpout,
    Count,
    FixedBatchSpout,
    LiveState,
    Max,
    NonTransactionalState,
    OpaqueState,
    SpoutKind,
    StaticState,
    Stream,
    Sum,
    Topology,
    TransactionalState,
)
from txbatch.core.batch.transaction import Run
from txbatch.core.errors import BadRecord, DefinitionError, NotExactlyOnce
from txbatch.core.protocol import planning
from txbatch.core.protocol.ledger import Head
from txbatch.memory.runner import run

NEW_YEAR = date(2026, 1, 1)
AIRLINES = StaticState("airlines", [("AA", "American"), ("UA", "United")], "carrier string, name string")


def fixed(topology: Topology, name: str, fields: str, *records: Any, size: int = 2) -> Stream:
    return topology.new_stream(name, FixedBatchSpout(fields, size, *records))


def values(topology: Topology, state: str) -> dict[Any, Any]:
    return {key: row.value for key, row in run(topology).rows(state).items()}


# ---- merge


def test_merged_streams_after_their_own_operations_and_then_their_own() -> None:
    topology = Topology("t")
    shop = fixed(topology, "shop", "item string, pieces int", ("a", 1), ("b", 2), ("a", 3))
    web = fixed(topology, "web", "amount bigint, article string", (10, "a"), (20, "c"), (30, "a"), (40, "b"), (50, "x"))
    merged = topology.merge(
        shop.each(lambda r: r["pieces"], "n bigint").project("item", "n"),
        web.map(lambda r: (r["article"], r["amount"]), "article string, amount bigint"),
        name="sales",
    ).filter(lambda r: r["item"] != "x")
    assert [field.name for field in merged.fields] == ["item", "n"]
    assert [root.name for root in merged.roots] == ["shop", "web"]
    merged.group_by("item").persistent_aggregate(OpaqueState("sales"), n=Sum("n"), records=Count())
    assert values(topology, "sales") == {("a",): (44, 4), ("b",): (42, 2), ("c",): (20, 1)}


def test_a_stream_merged_with_itself_is_read_once_and_counts_twice() -> None:
    topology = Topology("t")
    words = fixed(topology, "words", "word string", "a", "b", "a")
    both = topology.merge(words, words.filter(lambda r: r["word"] == "a"), name="both")
    assert [root.name for root in both.roots] == ["words"]
    both.group_by("word").persistent_aggregate(OpaqueState("s"), n=Count())
    assert values(topology, "s") == {("a",): (4,), ("b",): (1,)}


def kinds(*kinds: SpoutKind) -> Stream:
    topology = Topology("t")
    streams = [topology.new_stream(f"s{n}", LogSpout({"a": 1}, kind=kind)) for n, kind in enumerate(kinds)]
    return topology.merge(*streams, name="merged")


@pytest.mark.parametrize("kind", list(SpoutKind))
def test_the_weakest_kind_counts(kind: SpoutKind) -> None:
    assert kinds(SpoutKind.TRANSACTIONAL, kind).kind is kind
    assert kinds(kind, SpoutKind.NON_TRANSACTIONAL, SpoutKind.OPAQUE).kind is SpoutKind.NON_TRANSACTIONAL
    grouped = kinds(SpoutKind.TRANSACTIONAL, SpoutKind.OPAQUE).group_by("word")
    assert grouped.persistent_aggregate(OpaqueState("s"), n=Count()).guarantee == "exactly_once"
    with pytest.raises(NotExactlyOnce, match="an opaque spout with transactional state is not exactly-once"):
        grouped.persistent_aggregate(TransactionalState("other"), n=Count())


def merge_of(other: str = "a string", name: str = "merged", **more: Any) -> Any:
    topology = Topology("t")
    first, second = fixed(topology, "first", "a string", "x"), fixed(topology, "second", other, more.get("record", "x"))
    return topology.merge(first, second, name=name)


# ---- static state


def test_fields_are_looked_up_and_null_where_there_is_none() -> None:
    topology = Topology("t")
    airlines = topology.new_static_state(AIRLINES)
    flights = fixed(topology, "flights", "carrier string, delay int", ("AA", 5), ("XX", 1), ("AA", 7), (None, 3))
    named = flights.state_query(airlines, "carrier").each(lambda r: r["name"] or "unknown", "airline string")
    assert [field.name for field in named.fields] == ["carrier", "delay", "name", "airline"]
    named.group_by("airline").persistent_aggregate(OpaqueState("delays"), n=Count(), top=Max("delay"))
    assert values(topology, "delays") == {("American",): (2, 7), ("unknown",): (2, 3)}


@pytest.mark.parametrize(("show", "key"), [(True, r" \(a, 2026-01-01\)"), (False, "")])
def test_a_key_that_is_there_twice_is_refused(show: bool, key: str) -> None:
    topology = Topology("t", show_records=show)
    twice = topology.new_static_state(
        StaticState("twice", [("a", NEW_YEAR, n) for n in (1, 2)], "word string, day date, n int")
    )
    words = fixed(topology, "words", "word string, day date", ("a", NEW_YEAR)).state_query(twice, "word", "day")
    words.group_by("word").persistent_aggregate(OpaqueState("s"), n=Count())
    with pytest.raises(
        BadRecord,
        match=rf"^TX306 \(no retry helps\): t 1:1: static state 'twice' has two rows with one word, day{key}; a key has one",
    ):
        run(topology)


def test_what_spark_reads_is_not_read_in_memory() -> None:
    topology = Topology("t")
    read = topology.new_static_state(StaticState("read", lambda spark: spark.table("x"), "word string, n int"))
    words = fixed(topology, "words", "word string", "a").state_query(read, "word")
    words.group_by("word").persistent_aggregate(OpaqueState("s"), n=Max("n"))
    with refused("TX113", "'read'", "Spark", "rows"):
        run(topology)


def query(*keys: str, fields: Any = None, static: str = "word string, n int", known: bool = True) -> Any:
    topology = Topology("t")
    state = StaticState("table", [], static)
    if known:
        topology.new_static_state(state)
    return fixed(topology, "words", "word string, x int", ("a", 1)).state_query(state, *keys, fields=fields)


# ---- global value


def test_a_global_value_and_an_empty_batch() -> None:
    topology = Topology("t")
    numbers = fixed(topology, "numbers", "n int", 1, 2, 3, 4, 5)
    numbers.filter(lambda r: r["n"] > 2).persistent_aggregate(
        OpaqueState("total"), records=Count(), total=Sum("n"), mean=Avg("n", scale=1)
    )
    ledger = run(topology)
    row = ledger.rows("total")[()]
    assert (row.value, row.prev) == ((3, 12, Decimal("12.0"), 3), (2, 7, Decimal("7.0"), 2))
    assert ledger.tables.states["total"].contributions[(), 1, 1] == (0, None, None, 0)


# ---- BatchSpout


class Ticks(BatchSpout):
    fields = "n bigint"

    def __init__(self, ready: bool = True) -> None:
        self.ready, self.acked = ready, list[int]()

    @property
    def identity(self) -> Any:
        return {"spout": "Ticks"}

    def emit_batch(self, spark: Any, txid: int) -> Any:
        return spark, txid

    def is_ready(self, txid: int) -> bool:
        return self.ready

    def ack(self, txid: int) -> None:
        self.acked.append(txid)


def test_a_batch_spout_keeps_no_metadata_and_gives_no_guarantee() -> None:
    from txbatch.core.batch.transaction import TransactionAttempt

    spout = Ticks()
    ticks = Topology("t").new_stream("ticks", spout)
    with refused("TX109", "non_transactional"):
        ticks.persistent_aggregate(OpaqueState("s"), n=Count())
    ticks.persistent_aggregate(OpaqueState("s"), guarantee="at_least_once", n=Count())
    head = Head("t", 3, None, (), None, {})
    assert planning.plan_batch(ticks.topology, head, Run("run")) == {"format": 2, "streams": {"ticks": {"plan": {}}}}
    read: Any = spout.emitter().emit_batch("spark", TransactionAttempt(3, 2), {})  # type: ignore[arg-type]
    assert read == ("spark", 3)
    spout.coordinator().success(3)
    assert spout.acked == [3]
    spout.ready = False
    assert planning.plan_batch(ticks.topology, head, Run("run")) is None


REFUSED: list[tuple[str, Any, tuple[str, ...]]] = [
    ("one stream", lambda: kinds(SpoutKind.OPAQUE), ("TX106", "'merged'")),
    ("name taken", lambda: merge_of(name="first"), ("TX102", "'first'", "twice")),
    (
        "other types",
        lambda: merge_of("a int", record=1),
        ("TX104", "'merged'", "'first'", "'second'"),
    ),
    (
        "other topology",
        lambda: Topology("t").merge(
            fixed(Topology("a"), "x", "a int", 1), fixed(Topology("b"), "y", "a int", 1), name="m"
        ),
        ("TX107", "'y'"),
    ),
    ("spout of merged", lambda: merge_of().spout, ("TX107", "'merged'")),
    ("no key", lambda: query(), ("TX106", "'table'", "state_query", "key")),
    ("unknown key", lambda: query("wrod"), ("TX103", "'words'", "'wrod'")),
    ("key not there", lambda: query("x"), ("TX103", "'table'", "'x'")),
    (
        "key of another type",
        lambda: query("word", static="word int, n int"),
        ("TX104", "key", "'word'"),
    ),
    ("unknown field", lambda: query("word", fields=["m"]), ("TX103", "'table'", "'m'")),
    ("field taken", lambda: query("word", static="word string, x int"), ("TX102", "'x'", "twice")),
    (
        "not taken in",
        lambda: query("word", known=False),
        ("TX107", "'table'", "new_static_state"),
    ),
    (
        "static twice",
        lambda: query("word").topology.new_static_state(StaticState("table", [], "a int")),
        ("TX102", "twice"),
    ),
    ("row too short", lambda: StaticState("s", [("a",)], "a string, b int"), ("TX105", "1", "'a'")),
    (
        "row is a text",
        lambda: StaticState("s", [("a", 1), "ab"], "a string, b int"),
        ("TX105", "2", "'ab'"),
    ),
    (
        "row is bytes",
        lambda: StaticState("s", [b"ab"], "a string, b int"),
        ("TX105", "'s'", "1", "b'ab'"),
    ),
    (
        "row is a set",
        lambda: StaticState("s", [{"a", "b"}], "a string, b string"),
        ("TX105", "1"),
    ),
    (
        "row of other names",
        lambda: StaticState("s", [{"a": 1, "c": 2}], "a int, b int"),
        ("TX105", "1", "'a'", "'c'", "2"),
    ),
    (
        "aggregate into static",
        lambda: kinds(SpoutKind.OPAQUE, SpoutKind.OPAQUE).group_by("word").persistent_aggregate(AIRLINES, n=Count()),  # type: ignore[arg-type]
        ("TX105", "'airlines'"),
    ),
    (
        "global remove",
        lambda: merge_of().persistent_aggregate(OpaqueState("s"), remove="true", n=Count()),
        ("TX106", "'s'", "key", "group_by"),
    ),
    (
        "global value named as its key",
        lambda: merge_of().persistent_aggregate(OpaqueState("s"), only=Count()),
        ("TX102", "column", "'only'", "twice"),
    ),
    (
        "global, not exactly once",
        lambda: merge_of().persistent_aggregate(NonTransactionalState("s"), n=Count()),
        ("TX109", "at_least_once"),
    ),
    (
        "global without aggregates",
        lambda: merge_of().persistent_aggregate(OpaqueState("s")),
        ("TX106", "count=Count()"),
    ),
]


@pytest.mark.parametrize(("define", "says"), [pytest.param(*each[1:], id=each[0]) for each in REFUSED])
def test_what_cannot_be_is_refused_where_it_stands(define: Any, says: tuple[str, ...]) -> None:
    with refused(*says):
        define()


def test_a_spout_without_a_txid_of_its_own_starts_where_the_topology_is() -> None:
    """Streams of several kinds in one topology: each has its own plan in the batch."""
    topology = Topology("t")
    for name, spout in (("list", ListSpout(1)), ("ticks", Ticks())):
        topology.new_stream(name, spout)
    plan = planning.plan_batch(topology, Head("t", 1, None, (), None, {}), Run("run"))
    assert plan is not None
    assert plan["streams"] == {"list": {"plan": {"number": 0, "start": 0, "end": 1}}, "ticks": {"plan": {}}}


def test_a_question_is_of_no_batch_and_looks_up_in_no_live_state_as_of_its_txid() -> None:
    topology = Topology("t")
    counts = (
        fixed(topology, "words", "word string", "a").group_by("word").persistent_aggregate(OpaqueState("s"), n=Count())
    )
    asked = topology.new_query_stream("asked", "word string")
    with pytest.raises(
        DefinitionError, match="is looked up as of the txid of a batch, and a question is of none; give"
    ):
        asked.state_query(LiveState("s", "word string, n bigint"), "word")
    with refused("TX107", "LiveState"):
        fixed(topology, "more", "word string", "a").state_query(counts, "word")


def test_given_rows_and_records_are_by_order_by_name_or_of_a_dataclass() -> None:
    """A dict was read as its keys."""

    @dataclass
    class Carrier:
        name: str
        carrier: str

    given = [("AA", "a"), ["UA", "u"], {"name": "d", "carrier": "DL"}, Carrier("b", "BA")]
    rows = [("AA", "a"), ("UA", "u"), ("DL", "d"), ("BA", "b")]
    assert StaticState("s", given, "carrier string, name string").reader == rows
    assert FixedBatchSpout("carrier string, name string", 9, *given).batch({"start": 0, "end": 9}) == rows
    assert StaticState("s", ["AA", {"carrier": "UA"}], "carrier string").reader == [("AA",), ("UA",)]
