"""A table that grows is read once: whole transactions, whatever is open, from a server with one history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from source_tables import FIELDS, READ, TABLE, VARIABLE, Shop, role, shop_in, transaction

from txbatch import OpaquePostgresSpout, PostgresSpout
from txbatch.core.errors import PartitionUnreadable, SourceUnfit
from txbatch.settings import source_url
from txbatch.spouts.tables import connection
from txbatch.spouts.tables.copy_text import Copy

Databases = Callable[[str], str]


@pytest.fixture
def shop(databases: Databases) -> Iterator[Shop]:
    with shop_in(databases("shop")) as made:
        yield made


def test_rows_come_once_in_the_order_of_their_transactions(shop: Shop) -> None:
    shop.insert(1, 2)
    assert shop.take() == [1, 2]
    assert shop.take() is None
    shop.insert(3)
    shop.insert(4)
    assert shop.take() == [3, 4]


def test_a_plan_reads_no_more_of_the_index_than_its_batch(shop: Shop) -> None:
    """Also of a window with several stretches, here around the transaction of the rows from before: all rows were sorted."""
    for first in range(0, 100_000, 1000):
        rows = f"SELECT n, 's', 1 FROM generate_series({first}, {first + 999}) n"
        shop.ask(f"INSERT INTO shop.sale (id, shop, amount) {rows}")
    shop.ask("ANALYZE shop.sale")
    read = "SELECT seq_tup_read::int + idx_tup_fetch::int FROM pg_stat_user_tables WHERE relname = 'sale'"
    ((before,),) = shop.ask(read)
    planned = shop.plan(existing=False, max_rows=2000)
    assert planned is not None
    assert planned["shop.sale"]["records"] == 2000
    ((after,),) = shop.ask(read)
    assert after - before < 10_000


def test_what_commits_late_is_read_late_and_once(shop: Shop) -> None:
    late = transaction(shop.url)
    late.cursor().execute("INSERT INTO shop.sale VALUES (1, 'a', 1)")
    shop.insert(2)
    assert shop.take() == [2]
    late.commit()
    assert shop.take() == [1]
    assert shop.take() is None
    late.close()


def test_a_batch_has_whole_transactions(shop: Shop) -> None:
    for first in range(0, 30, 3):
        shop.insert(first, first + 1, first + 2)
    shop.insert(*range(100, 120))
    shop.insert(30)
    batches = list(shop.drain(max_rows=7))
    assert batches == [
        *([*range(first, first + 6)] for first in range(0, 30, 6)),
        [*range(100, 120)],  # a transaction that has more is a batch of its own
        [30],
    ]


def test_rows_from_before_are_read_by_key(databases: Databases) -> None:
    with shop_in(databases("shop"), before=range(10)) as shop:
        shop.insert(20)
        first = shop.plan(max_rows=4)
        assert first is not None
        assert {name: of["records"] for name, of in first.items()} == {"shop.sale": 1, "shop.sale@before": 4}
        assert sorted(row["id"] for row in shop.read(first)) == [0, 1, 2, 3, 20]
        shop.insert(21)
        assert shop.take(max_rows=4) == [4, 5, 6, 7, 21]
        shop.ask("VACUUM FULL shop.sale")
        assert shop.take(max_rows=4) == [8, 9]
        assert shop.offsets["shop.sale@before"]["ended"]
        assert shop.take(max_rows=4) is None


def test_keys_are_in_the_order_of_numbers_not_of_texts(databases: Databases) -> None:
    with shop_in(databases("shop"), before=range(7, 14)) as shop:
        assert list(shop.drain(max_rows=3)) == [[7, 8, 9], [10, 11, 12], [13]]


def test_a_key_of_several_columns_is_cut_anywhere(databases: Databases) -> None:
    table = "CREATE SCHEMA shop; CREATE TABLE shop.sale (shop text, id bigint, amount numeric, PRIMARY KEY (shop, id))"
    with shop_in(databases("shop"), table) as shop:
        shop.ask("ALTER TABLE shop.sale DROP COLUMN xact CASCADE; DROP FUNCTION shop.txbatch_xact")
        shop.ask("INSERT INTO shop.sale SELECT E'it\\'s \\\\' || n % 2, n, 1 FROM generate_series(7, 14) n")
        shop.prepare()
        batches = list(shop.drain(max_rows=3))
        assert batches == [[8, 10, 12], [7, 9, 14], [11, 13]]


def test_rows_from_before_are_left_out(databases: Databases) -> None:
    with shop_in(databases("shop"), before=range(10)) as shop:
        assert shop.take(existing=False) is None
        shop.insert(20)
        assert shop.take(existing=False) == [20]
        assert shop.take(existing=False) is None


def test_of_a_table_without_a_key_what_was_before_is_one_transaction(databases: Databases) -> None:
    with shop_in(databases("shop"), TABLE.replace(" PRIMARY KEY", ""), before=range(10)) as shop:
        assert shop.take(max_rows=4) == [*range(10)]


def test_a_null_in_the_only_column_is_a_row(shop: Shop) -> None:
    shop.fields = "shop string"
    shop.ask("INSERT INTO shop.sale SELECT n, CASE WHEN n <> 3 THEN '' END FROM generate_series(1, 5) n")
    rows = shop.read(shop.plan())
    assert sorted(str(row["shop"]) for row in rows) == ["", "", "", "", "None"]


def test_many_plans_are_one_look(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed while they are planned is in none of them."""
    made = list[str]()

    def connected(source: str, url: str) -> Any:
        made.append(source)
        return connect(source, url)

    connect = connection.connected
    monkeypatch.setattr(connection, "connected", connected)
    for number in range(40):
        shop.insert(number)
    coordinator, planned = shop.spout(max_rows=2).coordinator(), list[int]()
    with coordinator.one_look():
        while (plan := coordinator.initialize_transaction(1, None, None)) is not None:
            coordinator.offsets = {**coordinator.offsets, **plan["partitions"]}
            planned.append(plan["partitions"]["shop.sale"]["records"])
            shop.insert(1000 + len(planned))
    coordinator.close()
    assert planned == [2] * 20
    assert made == ["shop"]


def test_a_range_is_planned_again_as_it_is_now(shop: Shop) -> None:
    shop.insert(1, 2, 3)
    ranges = shop.plan()
    assert ranges is not None
    shop.ask("DELETE FROM shop.sale WHERE id = 2")
    again = shop.spout().plan_again("shop.sale", ranges["shop.sale"])
    assert again == {**ranges["shop.sale"], "records": 2}
    assert shop.spout().count_records("shop.sale", ranges["shop.sale"]) == 2
    assert sorted(row["id"] for row in shop.read({"shop.sale": again})) == [1, 3]


def test_a_statement_that_is_cut_off_is_tried_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.insert(1)
    with role(shop.url, *READ, "ALTER ROLE {role} SET statement_timeout = '1ms'") as url:
        monkeypatch.setenv(VARIABLE, url)
        shop.ask("INSERT INTO shop.sale SELECT n, 's', 1 FROM generate_series(10, 200000) n")
        with pytest.raises(PartitionUnreadable, match="57014"):
            shop.take()


def test_a_server_that_goes_within_the_read_is_tried_again(shop: Shop) -> None:
    shop.ask("INSERT INTO shop.sale SELECT n, repeat('x', 1000), n FROM generate_series(1, 30000) n")
    ranges, spout = shop.plan(), shop.spout()
    (stretch,) = shop.cut(ranges, 1)
    reading = Copy("shop", source_url("shop"), "shop.sale", spout._fields, ["id"]).read(stretch)
    next(reading)
    ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'txbatch source'"
    shop.ask(f"{ends} AND datname = current_database()")
    with pytest.raises(PartitionUnreadable, match=r"shop\.sale .* does not answer"):
        list(reading)


def test_many_rows_are_read_by_blocks(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txbatch.spouts.tables.stretches.ROWS_PER_TASK", 100)
    shop.ask("INSERT INTO shop.sale SELECT n, 's', n FROM generate_series(1, 5000) n")
    shop.ask("INSERT INTO shop.sale SELECT n, 's', n FROM generate_series(5001, 6000) n")
    for size in (5000, 1000):
        ranges = shop.plan(max_rows=1000)
        assert len(shop.read(ranges, cores=4)) == size
    assert shop.fields == FIELDS


@pytest.mark.parametrize("changed", ["shop, id", None])
def test_a_key_that_changes_while_rows_from_before_are_read_is_refused(
    databases: Databases, changed: str | None
) -> None:
    """A range of another key would have other rows."""
    with shop_in(databases("shop"), before=range(10)) as shop:
        assert shop.take(max_rows=4) == [0, 1, 2, 3]
        shop.ask("ALTER TABLE shop.sale DROP CONSTRAINT sale_pkey")
        if changed is not None:
            shop.ask(f"ALTER TABLE shop.sale ADD PRIMARY KEY ({changed})")
        with pytest.raises(SourceUnfit, match=r"rows from before are read by the primary key \(id bigint\)"):
            shop.take(max_rows=4)


@pytest.mark.parametrize("of", [PostgresSpout, OpaquePostgresSpout])
def test_rows_with_numbers_of_another_server_are_refused(databases: Databases, of: type[PostgresSpout]) -> None:
    """As a dump that was put back has them: no batch would have the rows until the server has come so far."""
    with shop_in(databases("shop"), of=of) as shop:
        shop.insert(1)
        shop.ask("ALTER TABLE shop.sale DISABLE TRIGGER ALL")
        shop.ask("INSERT INTO shop.sale VALUES (2, 's', 1, '5000000000000')")
        shop.ask("DROP TRIGGER txbatch_xact_insert ON shop.sale; DROP TRIGGER txbatch_xact_update ON shop.sale")
        shop.ask("DROP TRIGGER IF EXISTS txbatch_xact_change ON shop.sale")
        shop.prepare()
        with pytest.raises(SourceUnfit, match="a row has transaction 5000000000000, which this server has not begun"):
            shop.take()
