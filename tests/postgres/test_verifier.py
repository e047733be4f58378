"""What compares as equal and what does not, in PostgreSQL: keys and values of all types, doubles within a tolerance (R24)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from postgres_bench import Bench
from sqlalchemy import Engine, text
from support import Keyed, LogSpout, code, manifest_of, record_batch, run

from txbatch import Count, Max, Min, OpaqueState, Sum, Topology
from txbatch.core.batch.transaction import Batch, Restate
from txbatch.core.corrections.audit import Audit
from txbatch.core.corrections.verify import Compared, Outcome, Unverifiable
from txbatch.core.protocol import coordinator
from txbatch.postgres.corrections.verify import PostgresBooks

pytestmark = pytest.mark.rule("R24")
KEYED = "k\"%' string, n bigint, d date, t timestamp, b binary, m decimal(20,4)"
KEY = ('a"%\\', -1, date(2024, 2, 29), datetime(2024, 1, 1, 12, 30, 0, 5, UTC), b"\0\xff", Decimal("1.5000"))


RUN = run("next")


class Compare:
    """A topology of one state with what it stored, and what comes out when that is read again."""

    def __init__(self, engine: Engine, topology: Topology) -> None:
        self.bench, self.books, self.topology = Bench(engine, topology), PostgresBooks(engine), topology
        (self.aggregate,) = topology.aggregates
        self.state = self.aggregate.state.name

    def store(self, *partials: Keyed) -> Batch:
        return self.bench.whole(
            {self.state: partials}, f"run {self.bench.ledger.head(self.topology.name, RUN).next_txid}"
        )

    def again(self, txid: int, *partials: Keyed) -> Compared:
        recorded = self.books.recorded(self.topology.name, txid)
        assignment, _ = self.bench.ledger.newest_attempt(self.bench.ledger.batch(self.topology.name, recorded.txid))
        manifest = manifest_of(self.topology, assignment, {self.state: partials})
        (found,) = self.books.compare(
            self.topology, recorded, manifest, {self.state: [record_batch(self.aggregate, partials)]}
        )
        return found

    def now(self) -> Compared:
        (found,) = self.books.states(self.topology)
        return found


def doubles() -> Topology:
    topology = Topology("t")
    stream = topology.new_stream("words", LogSpout({"a": 1_000_000})).each("cast(1 as double)", "x double")
    stream.group_by("word").persistent_aggregate(
        OpaqueState("s"), guarantee="at_least_once", n=Count(), x=Sum("x", approximate=True), most=Max("x")
    )
    return topology


@pytest.mark.parametrize(
    ("stored", "again", "equal"),
    [
        (1.0, 1.0 + 1e-12, True),
        (1.0, 1.0 + 1e-8, False),
        (1e308, -1e308, False),
        (1e-308, 1.000000000001e-308, True),
        (float("nan"), float("nan"), True),
        (float("nan"), 1.0, False),
        (float("inf"), float("inf"), True),
        (float("inf"), float("-inf"), False),
        (float("inf"), 1e308, False),
        (None, None, True),
        (None, 0.0, False),
        (0.0, -0.0, True),
    ],
)
def test_sums_of_doubles_are_equal_within_a_billionth(engine: Engine, stored: Any, again: Any, equal: bool) -> None:
    compare = Compare(engine, doubles())
    compare.store((("w",), (1, stored, 1.0)))
    found = compare.again(1, (("w",), (1, again, 1.0)))
    assert (found.outcome is Outcome.EQUAL) is equal
    assert compare.now().outcome is Outcome.EQUAL


def test_the_greatest_of_doubles_is_compared_exactly(engine: Engine) -> None:
    compare = Compare(engine, doubles())
    compare.store((("w",), (1, 1.0, 1.0)))
    (example,) = compare.again(1, (("w",), (1, 1.0, 1.0 + 1e-12))).examples
    assert example.recomputed == {"n": "1", "x": "1", "most": "1.000000000001"}


def test_keys_of_all_types_and_names_that_need_quotes(engine: Engine) -> None:
    topology = Topology("t")
    stream = topology.new_stream("words", LogSpout({"a": 1_000_000})).map("1", KEYED.partition(",")[0])
    for field in KEYED.split(", ")[1:]:
        stream = stream.each("null", field)
    grouped = stream.group_by(*(field.split()[0] for field in KEYED.split(", ")))
    grouped.persistent_aggregate(OpaqueState("a%'\" s"), guarantee="at_least_once", **{"c%'": Count(), "l": Min("n")})
    compare = Compare(engine, topology)
    compare.store((KEY, (1, -1)))
    assert compare.again(1, (KEY, (1, -1))) == Compared("a%'\" s", keys=1)
    other = (*KEY[:-1], Decimal("1.5001"))
    found = compare.again(1, (other, (1, None)))
    assert (found.keys, found.different) == (1, 2)
    assert [(each.stored is None, each.recomputed) for each in found.examples] == [
        (False, None),
        (True, {"c%'": "1", "l": None}),
    ]
    assert found.examples[0].key["b"] == "\\x00ff"


def test_several_rows_of_one_key_are_one_and_ten_keys_are_told(engine: Engine) -> None:
    topology = Topology("t")
    grouped = topology.new_stream("words", LogSpout({"a": 1_000_000})).group_by("word")
    grouped.persistent_aggregate(OpaqueState("s"), guarantee="at_least_once", n=Count())
    compare = Compare(engine, topology)
    compare.store(*(((f"w{n:02}",), (2,)) for n in range(15)))
    assert compare.again(1, *(((f"w{n % 15:02}",), (1,)) for n in range(30))) == Compared("s", keys=15)
    found = compare.again(1)
    assert (found.different, [each.key["word"] for each in found.examples]) == (15, [f"w{n:02}" for n in range(10)])


def test_a_global_value_and_one_that_is_removed(engine: Engine) -> None:
    topology = Topology("t")
    stream = topology.new_stream("words", LogSpout({"a": 1_000_000}))
    stream.persistent_aggregate(OpaqueState("s"), guarantee="at_least_once", n=Count())
    compare = Compare(engine, topology)
    compare.store(((), (3,)))
    assert compare.again(1, ((), (3,))).outcome is Outcome.EQUAL
    (example,) = compare.again(1, ((), (4,))).examples
    assert (example.key, example.stored, example.recomputed) == ({}, {"n": "3"}, {"n": "4"})


def test_what_removes_keys_is_compared_by_its_marks_and_folds_in_order(engine: Engine) -> None:
    topology = Topology("t")
    grouped = topology.new_stream("words", LogSpout({"a": 1_000_000})).group_by("word")
    grouped.persistent_aggregate(OpaqueState("s"), guarantee="at_least_once", n=Count(), remove="true")
    compare = Compare(engine, topology)
    compare.store((("a",), (1, False, True)), (("b",), (1, False, True)))
    compare.store((("a",), (2, True, True)), (("b",), (None, True, False)))
    assert compare.now() == Compared("s", keys=1)
    assert compare.again(2, (("a",), (2, True, True)), (("b",), (None, True, False))).outcome is Outcome.EQUAL
    found = compare.again(2, (("a",), (2, False, True)), (("b",), (None, True, False)))
    assert [each.key for each in found.examples] == [{"word": "a"}]


def test_a_restate_of_keys_that_a_later_position_removes_is_nothing_changed_by_hand(engine: Engine) -> None:
    topology = Topology("t")
    grouped = topology.new_stream("words", LogSpout({"a": 1_000_000})).group_by("word")
    grouped.persistent_aggregate(OpaqueState("s"), guarantee="at_least_once", n=Count(), remove="word = 'x'")
    bench = Bench(engine, topology)
    bench.whole({"s": [(("a",), (2, False, True))]}, "1")
    bench.whole({"s": [(("a",), (None, True, False))]}, "2")
    again, partials = replace(run("again"), restate=Restate(1, "it was wrong")), {"s": [(("a",), (3, False, True))]}
    batch = coordinator.initialize_transaction(bench.ledger, topology, again)
    assert isinstance(batch, Batch)
    assignment = bench.ledger.start_attempt(batch, again, code())
    emitted = bench.ledger.record_manifests([(assignment, manifest_of(topology, assignment, partials))])[0]
    assert bench.commit(emitted, partials)
    assert bench.rows("SELECT * FROM report.s") == []
    assert PostgresBooks(engine).audit(topology) == Audit()


def test_a_version_that_was_replaced_meanwhile_is_not_compared(engine: Engine) -> None:
    compare = Compare(engine, doubles())
    compare.store((("w",), (1, 1.0, 1.0)))
    recorded = compare.books.recorded("t", 1)
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO txbatch.batch (topology, txid, position, kind, status, key, metadata, fence, token, lease_until, "
                "committed_at, committed_fence) SELECT topology, 2, 1, 'restate', status, 'restate:1:x', metadata, fence, token, "
                "lease_until, committed_at, committed_fence FROM txbatch.batch"
            )
        )
        connection.execute(text("UPDATE txbatch.batch SET replaced_by = 2 WHERE txid = 1"))
    _, manifest = compare.bench.ledger.newest_attempt(compare.bench.ledger.batch("t", 1))
    assert manifest is not None
    with pytest.raises(Unverifiable, match="txid 1 was replaced by 2 meanwhile; verify again"):
        compare.books.compare(compare.topology, recorded, manifest, {"s": []})
