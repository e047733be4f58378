"""Partitions that come, go and come back: no row of theirs is left out in silence."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg2
import pytest
from source_tables import Shop, shop_in

from txbatch import OpaquePostgresSpout, PostgresSpout
from txbatch.core.errors import RowsDiffer, SourceChanged
from txbatch.spouts.tables import description

Databases = Callable[[str], str]
TABLE = (
    "CREATE SCHEMA shop; CREATE TABLE shop.sale (id bigint PRIMARY KEY, shop text, amount numeric(12,2)) "
    "PARTITION BY RANGE (id); CREATE TABLE shop.low PARTITION OF shop.sale FOR VALUES FROM (0) TO (1000)"
)
ATTACH = "ALTER TABLE shop.sale ATTACH PARTITION shop.high FOR VALUES FROM (1000) TO (9000)"
LIKE = "CREATE TABLE shop.high (LIKE shop.sale INCLUDING DEFAULTS)"
REFUSED = r"its partition shop\.high was attached with rows of transaction \d+, which was counted"


@pytest.fixture(params=[PostgresSpout, OpaquePostgresSpout])
def shop(databases: Databases, request: pytest.FixtureRequest) -> Iterator[Shop]:
    with shop_in(databases("shop"), TABLE, of=request.param) as made:
        yield made


@pytest.mark.parametrize(
    "made",
    [
        [LIKE, "INSERT INTO shop.high VALUES (2000, 's', 1)"],
        [
            "CREATE TABLE shop.high (id bigint NOT NULL, shop text, amount numeric(12,2))",
            "INSERT INTO shop.high VALUES (2000, 's', 1)",
            "ALTER TABLE shop.high ADD COLUMN xact xid8 NOT NULL DEFAULT pg_current_xact_id()",
        ],
    ],
    ids=["loaded", "old"],
)
def test_a_partition_that_was_loaded_before_what_was_counted_is_refused(shop: Shop, made: list[str]) -> None:
    shop.insert(1)
    assert shop.take() == [1]
    for statement in made:
        shop.ask(statement)
    shop.insert(2)
    assert shop.take() == [2]
    shop.ask(ATTACH)
    shop.insert(3)
    with pytest.raises(RowsDiffer, match=REFUSED):
        shop.take()
    assert shop.take(accept="shop.high") == [3]
    shop.insert(4, 3000)
    assert shop.take() == [4, 3000]


def test_a_partition_that_comes_back_is_refused(shop: Shop) -> None:
    shop.ask("CREATE TABLE shop.high PARTITION OF shop.sale FOR VALUES FROM (1000) TO (9000)")
    shop.insert(2000)
    shop.insert(1)
    assert shop.take() == [1, 2000]
    shop.ask("ALTER TABLE shop.sale DETACH PARTITION shop.high")
    shop.ask("INSERT INTO shop.high VALUES (2001, 's', 1)")
    shop.insert(2)
    assert shop.take() == [2]
    shop.ask(ATTACH)
    shop.insert(3)
    with pytest.raises(RowsDiffer, match=REFUSED):
        shop.take()


def test_a_partition_that_is_loaded_and_attached_in_one_transaction_is_read(shop: Shop) -> None:
    shop.insert(1)
    assert shop.take() == [1]
    shop.ask(f"BEGIN; {LIKE}; INSERT INTO shop.high VALUES (2000, 's', 1); {ATTACH}; COMMIT")
    assert shop.take() == [2000]
    shop.ask("CREATE TABLE shop.more PARTITION OF shop.sale FOR VALUES FROM (9000) TO (9999)")
    shop.insert(9001)
    assert shop.take() == [9001]


def test_a_plan_from_before_partitions_were_kept_goes_on(shop: Shop) -> None:
    shop.insert(1)
    assert shop.take() == [1]
    del shop.offsets["shop.sale"]["leaves"]
    shop.insert(2)
    assert shop.take() == [2]
    assert len(shop.offsets["shop.sale"]["leaves"]) == 1


def test_a_partition_that_is_attached_while_rows_are_counted_is_tried_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.insert(1)
    shop.ask(LIKE)
    shop.ask("INSERT INTO shop.high VALUES (2000, 's', 1)")
    coordinator, plain, asked = shop.spout().coordinator(), description.leaves, list[object]()

    def leaves(*given: object) -> list[description.Leaf]:
        found = plain(*given)  # type: ignore[arg-type]
        asked.append(found)
        if len(asked) == 1:
            shop.ask(ATTACH)
        return found

    monkeypatch.setattr(description, "leaves", leaves)
    with pytest.raises(SourceChanged, match="partitions were attached or detached"):
        coordinator.initialize_transaction(1, None, None)
    coordinator.close()
    assert shop.take() == [1, 2000]


def test_an_update_that_moves_a_row_to_another_partition_loses_and_doubles_nothing(shop: Shop) -> None:
    """Where rows stay the writer is refused: the row would be inserted with its old number. Where rows change it comes again."""
    shop.ask("CREATE TABLE shop.high PARTITION OF shop.sale FOR VALUES FROM (1000) TO (9000)")
    shop.insert(1, 2)
    assert shop.take() == [1, 2]
    if shop.of is OpaquePostgresSpout:
        shop.ask("UPDATE shop.sale SET id = 2001 WHERE id = 1")
        assert shop.take() == [2001]
        return
    with pytest.raises(psycopg2.errors.RaiseException, match="an UPDATE moves no row of a source to another partition"):
        shop.ask("UPDATE shop.sale SET id = 2001 WHERE id = 1")
    shop.ask("BEGIN; INSERT INTO shop.sale VALUES (3, 's', 1); UPDATE shop.sale SET id = 2003 WHERE id = 3; COMMIT")
    assert shop.take() == [2003]
    assert shop.take() is None
