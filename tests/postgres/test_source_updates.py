"""Rows that an UPDATE moves while several tasks read a batch: each row comes once, or the attempt is tried again (R24)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from source_tables import Shop, shop_in, transaction

from txbatch.core.errors import SourceChanged
from txbatch.settings import source_url
from txbatch.spouts.tables import stretches
from txbatch.spouts.tables.copy_text import Copy, Stretch

UPDATED = r"rows of the batch were updated while several tasks read them: .* emit again"
# Inserts each row of some in a transaction within the transaction.
EACH_BY_ITSELF = (
    "DO $$ BEGIN FOR n IN {first}..{last} LOOP BEGIN INSERT INTO shop.sale (id, shop, amount) VALUES (n, 's', 1); "
    "EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$"
)


@pytest.fixture
def shop(databases: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Batches of more than a hundred rows are read by two tasks."""
    monkeypatch.setattr(stretches, "ROWS_PER_TASK", 100)
    with shop_in(databases("shop")) as made:
        yield made


def insert(shop: Shop, first: int, last: int) -> None:
    shop.ask(f"INSERT INTO shop.sale (id, shop, amount) SELECT n, 's', 1 FROM generate_series({first}, {last}) n")


def read(shop: Shop, stretch: Stretch) -> list[int]:
    copy = Copy("shop", source_url("shop"), "shop.sale", shop.spout()._fields, ["id"])
    return [row["id"] for batch in copy.read(stretch) for row in batch.to_pylist()]


def block(shop: Shop, id_: int) -> int:
    ((found,),) = shop.ask(f"SELECT (ctid::text::point)[0]::bigint FROM shop.sale WHERE id = {id_}")
    return int(found)


@pytest.mark.rule("R24")
@pytest.mark.parametrize("rule", [True, False], ids=["told", "in silence"])
def test_a_row_that_is_missed_and_a_row_that_comes_twice_do_not_cancel_out(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, rule: bool
) -> None:
    """The second task reads first. Then one of its rows moves to the first task, and a row of that to the second."""
    if not rule:
        monkeypatch.setattr(stretches, "_newer", lambda *_: "false")
    insert(shop, 1, 300)
    shop.plan()
    insert(shop, 1001, 5000)
    ranges = shop.plan()
    shop.ask("DELETE FROM shop.sale WHERE id <= 300")
    shop.ask("VACUUM shop.sale")
    first, second = shop.cut(ranges)
    found = read(shop, second)
    down, up = found[10], 1200
    before = block(shop, down)
    shop.ask(f"UPDATE shop.sale SET shop = 'moved' WHERE id = {down}")
    assert block(shop, down) < block(shop, 1200) < before
    insert(shop, 10_001, 10_900)  # no room is left in the first blocks
    shop.ask(f"UPDATE shop.sale SET shop = 'moved' WHERE id = {up}")
    assert block(shop, up) > before
    if rule:
        with pytest.raises(SourceChanged, match=UPDATED):
            read(shop, first)
        assert sorted(id_ for each in shop.cut(ranges) for id_ in read(shop, each)) == [*range(1001, 5001)]
    else:
        found += read(shop, first)
        assert len(found) == 4000
        assert Counter(found) == Counter([*range(1001, 5001), down]) - Counter([up])


@pytest.mark.rule("R24")
def test_a_late_attempt_reads_by_one_task_whatever_is_updated(shop: Shop) -> None:
    insert(shop, 1, 2000)
    ranges = shop.plan()
    spout = shop.spout()
    parts = [stretches.Part("shop.sale", "true", 2000)]
    with spout.session() as asked:
        (alone,) = stretches.cut(
            asked, spout._checked(asked, (ranges or {}).values()), spout._fields, None, parts, None
        )
    shop.ask("UPDATE shop.sale SET shop = 'moved'")
    assert sorted(read(shop, alone)) == [*range(1, 2001)]


@pytest.mark.rule("R24")
def test_rows_updated_before_the_cut_are_read_whatever_is_open(shop: Shop) -> None:
    """By transactions within transactions, too: none of them is one that was open."""
    opened = transaction(shop.url)
    opened.cursor().execute("INSERT INTO shop.sale VALUES (9999, 's', 1)")
    shop.ask(EACH_BY_ITSELF.format(first=1, last=400))
    ranges = shop.plan()
    shop.ask("UPDATE shop.sale SET shop = 'before' WHERE id < 50")
    cut = shop.cut(ranges)
    assert len(cut) == 2
    assert sorted(id_ for each in cut for id_ in read(shop, each)) == [*range(1, 401)]
    opened.close()


@pytest.mark.rule("R24")
def test_of_too_many_transactions_one_task_reads_all(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "KNOWN_MAX", 20)
    opened = transaction(shop.url)
    opened.cursor().execute("INSERT INTO shop.sale VALUES (9999, 's', 1)")
    shop.ask(EACH_BY_ITSELF.format(first=1, last=400))
    ranges = shop.plan()
    (alone,) = shop.cut(ranges)
    shop.ask("UPDATE shop.sale SET shop = 'since'")
    assert sorted(read(shop, alone)) == [*range(1, 401)]
    opened.close()


@pytest.mark.rule("R24")
def test_an_update_that_was_open_at_the_cut_is_told_also_from_within_its_transaction(shop: Shop) -> None:
    insert(shop, 1, 2000)
    ranges = shop.plan()
    opened = transaction(shop.url)
    cursor: Any = opened.cursor()
    cursor.execute("SELECT pg_current_xact_id()")
    cursor.execute("SAVEPOINT within")
    cursor.execute("UPDATE shop.sale SET shop = 'moved' WHERE id = 7")
    cursor.execute("RELEASE SAVEPOINT within")
    shop.insert(9999)  # a later one has ended
    cut = shop.cut(ranges)
    opened.commit()
    opened.close()
    moved = [each for each in cut if _told(shop, each)]
    assert len(moved) == 1


def _told(shop: Shop, stretch: Stretch) -> bool:
    try:
        read(shop, stretch)
    except SourceChanged:
        return True
    return False
