"""A table whose rows change: each version that is the newest when it is read, once; nothing is lost, and nothing is added up."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

import psycopg2
import pytest
from source_tables import TABLE, Shop, known, shop_in

from txbatch import (
    ApproxCountDistinct,
    Avg,
    CollectSet,
    CombinerAggregator,
    Count,
    Max,
    MaxBy,
    Min,
    MinBy,
    OpaquePostgresSpout,
    OpaqueState,
    PostgresSpout,
    Sum,
    TopN,
    Topology,
)
from txbatch.core.errors import NotExactlyOnce, OtherHistory, PartitionUnreadable, RowsDiffer, SourceUnfit
from txbatch.core.topology.guarantee import guarantees

Databases = Callable[[str], str]


@pytest.fixture
def shop(databases: Databases) -> Iterator[Shop]:
    with shop_in(databases("shop"), of=OpaquePostgresSpout) as made:
        yield made


def versions(shop: Shop, **options: Any) -> dict[int, str]:
    """The next batch: the shop of each id."""
    ranges = shop.plan(**options)
    return {row["id"]: row["shop"] for row in shop.read(ranges, **options)} if ranges else {}


def test_a_changed_row_comes_again_in_its_newest_version(shop: Shop) -> None:
    shop.insert(1, 2)
    assert versions(shop) == {1: "s1", 2: "s2"}
    shop.ask("UPDATE shop.sale SET shop = 'b' WHERE id = 1")
    shop.ask("UPDATE shop.sale SET shop = 'c' WHERE id = 1")
    assert versions(shop) == {1: "c"}
    assert versions(shop) == {}


def test_another_attempt_reads_without_the_rows_that_changed_since(shop: Shop) -> None:
    shop.insert(1, 2)
    ranges = shop.plan()
    shop.ask("UPDATE shop.sale SET shop = 'b' WHERE id = 1")
    assert {row["id"] for row in shop.read(ranges)} == {2}
    assert versions(shop) == {1: "b"}


def test_a_row_from_before_that_changes_is_read_as_changed(databases: Databases) -> None:
    with shop_in(databases("shop"), before=range(6), of=OpaquePostgresSpout) as shop:
        assert versions(shop, max_rows=4) == {0: "s0", 1: "s1", 2: "s2", 3: "s0"}
        shop.ask("UPDATE shop.sale SET shop = 'b' WHERE id IN (1, 5)")
        assert versions(shop, max_rows=4) == {1: "b", 4: "s1", 5: "b"}
        assert versions(shop, max_rows=4) == {}


def test_each_row_ends_in_its_newest_version_beside_writers(shop: Shop) -> None:
    """Writers that change, insert and hold transactions open; the newest version read of each row is the last one."""
    shop.insert(*range(50))
    stop = Event()
    writers = [Thread(target=write, args=(shop.url, seed, stop)) for seed in range(4)]
    for writer in writers:
        writer.start()
    found = dict[int, str]()
    for _ in range(60):
        found |= versions(shop, max_rows=40)
    stop.set()
    for writer in writers:
        writer.join()
    while newest := versions(shop, max_rows=40):
        found |= newest
    assert found == dict(shop.ask("SELECT id, shop FROM shop.sale"))


def write(url: str, seed: int, stop: Event) -> None:
    shop, chance, number = Shop(url), random.Random(seed), 0
    with shop.open() as ask:
        while not stop.is_set():
            number += 1
            ask("BEGIN")
            for id_ in sorted({chance.randrange(60) for _ in range(3)}):  # in order: no deadlock
                ask(
                    f"INSERT INTO shop.sale (id, shop) VALUES ({id_}, 'w{seed}-{number}') "
                    "ON CONFLICT (id) DO UPDATE SET shop = EXCLUDED.shop"
                )
            ask("ROLLBACK" if chance.random() < 0.2 else "COMMIT")


def test_a_row_that_moves_to_another_partition_comes_again(databases: Databases) -> None:
    table = (
        "CREATE SCHEMA shop; CREATE TABLE shop.sale (id bigint, shop text, amount numeric) PARTITION BY LIST (shop); "
        "CREATE TABLE shop.a PARTITION OF shop.sale FOR VALUES IN ('a'); CREATE TABLE shop.b PARTITION OF shop.sale DEFAULT"
    )
    with shop_in(databases("shop"), table, of=OpaquePostgresSpout) as shop:
        shop.ask("INSERT INTO shop.sale VALUES (1, 'a', 1), (2, 'a', 1)")
        assert versions(shop) == {1: "a", 2: "a"}
        shop.ask("UPDATE shop.sale SET shop = 'b' WHERE id = 2")
        assert versions(shop) == {2: "b"}


def test_no_number_is_forged(shop: Shop) -> None:
    shop.insert(1)
    for forged in (
        "UPDATE shop.sale SET xact = '5'::xid8",
        "INSERT INTO shop.sale (id, xact) VALUES (2, '5'::xid8)",
    ):
        with pytest.raises(psycopg2.errors.RaiseException, match="xact is set by the server alone"):
            shop.ask(forged)


def test_a_table_is_prepared_for_one_of_both_spouts(databases: Databases) -> None:
    with shop_in(databases("shop")) as shop:
        shop.insert(1)
        changing = Shop(shop.url, of=OpaquePostgresSpout)
        with pytest.raises(SourceUnfit, match=r"no trigger gives a changed row a new number .*prepare --changing"):
            changing.plan()
        changing.prepare()
        assert versions(changing) == {1: "s1"}
        with pytest.raises(
            SourceUnfit, match=r"txbatch_xact_change gives a changed row a new number.*OpaquePostgresSpout"
        ):
            shop.plan()


def test_a_transaction_that_has_more_rows_than_were_read_is_refused(shop: Shop) -> None:
    """Fewer rows of a transaction are rows that changed; more are of another history."""
    shop.insert(1, 2)
    versions(shop)
    shop.offsets["shop.sale"]["witness"][1] = 1
    with pytest.raises(RowsDiffer):
        versions(shop)


def test_a_table_made_anew_is_refused(shop: Shop) -> None:
    shop.insert(1)
    ranges = shop.plan()
    shop.ask("DROP SCHEMA shop CASCADE")
    shop.ask(TABLE)
    shop.prepare()
    with pytest.raises(OtherHistory):
        shop.read(ranges)


def test_while_the_server_is_away_nothing_is_planned_and_no_batch_is_empty(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with known("postgresql://reader@127.0.0.1:1/shop"), pytest.raises(PartitionUnreadable):
        shop.plan()
    assert shop.spout().unreadable({}) == {}
    assert not shop.spout().leaves_out


RIGHT = [Max("amount"), Min("amount"), MaxBy("shop", "amount"), MinBy("shop", "amount"), CollectSet("shop")]
WRONG = [Count(), Sum("amount"), Avg("amount"), TopN(3, "amount")]


def changes(aggregator: CombinerAggregator, spout: type[PostgresSpout], **options: Any) -> Topology:
    topology = Topology("changes")
    stream = topology.new_stream(
        "rows", spout("shop.sale", "id bigint, shop string, amount decimal(12,2)", source="shop")
    )
    stream.group_by("id").persistent_aggregate(OpaqueState("changes"), value=aggregator, **options)
    return topology


@pytest.mark.parametrize("aggregator", [*RIGHT, ApproxCountDistinct("shop")], ids=lambda each: type(each).__name__)
def test_values_that_take_a_row_twice(aggregator: CombinerAggregator) -> None:
    (told,) = guarantees(changes(aggregator, OpaquePostgresSpout))
    assert told["guarantee"] == "exactly once"


@pytest.mark.parametrize("aggregator", WRONG, ids=lambda each: type(each).__name__)
def test_values_that_would_count_a_row_again(aggregator: CombinerAggregator) -> None:
    with pytest.raises(NotExactlyOnce, match="state 'changes': value would count a row of OpaquePostgresSpout again"):
        changes(aggregator, OpaquePostgresSpout)
    (told,) = guarantees(changes(aggregator, OpaquePostgresSpout, guarantee="at_least_once"))
    assert told["guarantee"] == "at least once"
    (told,) = guarantees(changes(aggregator, PostgresSpout))
    assert told["guarantee"] == "exactly once"
