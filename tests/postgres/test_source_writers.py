"""Windows and cuts held against PostgreSQL's own words, and against writers that do all that writers do."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
import pytest
from sizes import some_of
from source_tables import Shop, shop_in, transaction

from txbatch.core.sources.snapshots import Snapshot, both, until
from txbatch.spouts.tables.windows import any_of, window

WRITERS, SECONDS = 6, some_of(3, 60)
PAIRS = some_of(60, 3000)


@pytest.fixture
def shop(databases: Callable[[str], str]) -> Iterator[Shop]:
    with shop_in(databases("shop")) as made:
        yield made


def test_a_window_is_what_the_server_sees_in_one_snapshot_and_not_in_the_other(shop: Shop) -> None:
    """Cuts, too: on pairs of snapshots made at random, of transactions that are all there."""
    chance = random.Random(7)
    shop.ask("CREATE TABLE shop.x AS SELECT n::text::xid8 AS xact FROM generate_series(3, 60) n")
    seen = "pg_visible_in_snapshot(xact, '{}') AND NOT pg_visible_in_snapshot(xact, '{}')"
    with shop.open() as ask:

        def xids(condition: str) -> list[int]:
            return [int(xid) for (xid,) in ask(f"SELECT xact::text FROM shop.x WHERE {condition} ORDER BY xact")]

        for _ in range(PAIRS):
            a = Snapshot.of(chance.randint(3, 50), chance.sample(range(3, 60), 8))
            b = both(a, Snapshot.of(chance.randint(3, 60), chance.sample(range(3, 60), 8)))
            of_server = xids(seen.format(b, a))
            assert xids(any_of(window(a, b))) == of_server
            but = chance.randint(3, 60)
            assert xids(any_of(window(a, b, but))) == [xid for xid in of_server if xid != but]
            for cut in of_server[:3]:
                assert xids(seen.format(until(a, b, cut), a)) == [xid for xid in of_server if xid <= cut]


class Writer(threading.Thread):
    """Commits, rolls back, prepares, waits, and writes within savepoints, until it is told to stop."""

    def __init__(self, url: str, number: int, stop: threading.Event) -> None:
        super().__init__()
        self.url, self.number, self.stop = url, number, stop
        self.chance, self.failure = random.Random(number), ""

    def run(self) -> None:
        connection = transaction(self.url)
        try:
            for turn in range(1_000_000):
                if self.stop.is_set():
                    return
                self.one(connection, self.number * 10_000_000 + turn * 100)
        except psycopg2.Error as error:
            self.failure = str(error)
        finally:
            connection.close()

    def one(self, connection: Any, first: int) -> None:
        cursor, chance = connection.cursor(), self.chance
        cursor.execute(f"SET LOCAL synchronous_commit = {chance.choice(['on', 'off'])}")
        for number in range(first, first + chance.randint(1, 9)):
            nested = chance.random() < 0.3
            if nested:
                cursor.execute("SAVEPOINT s")
            cursor.execute("INSERT INTO shop.sale VALUES (%s, 's', 1)", [number])
            if nested and chance.random() < 0.5:
                cursor.execute("ROLLBACK TO s")
        if chance.random() < 0.1:
            self.stop.wait(chance.random())
        connection.rollback() if chance.random() < 0.2 else connection.commit()


def test_beside_writers_each_row_is_read_once_and_no_transaction_in_part(shop: Shop) -> None:
    stop = threading.Event()
    writers = [Writer(shop.url, number, stop) for number in range(1, WRITERS + 1)]
    batches: list[dict[str, Any]] = []
    threading.Timer(SECONDS, stop.set).start()
    for each in writers:
        each.start()
    while any(each.is_alive() for each in writers):
        if (ranges := shop.plan(max_rows=20)) is not None:
            batches.append(ranges)
    for each in writers:
        each.join()
        assert each.failure == ""
    while (ranges := shop.plan(max_rows=20)) is not None:
        batches.append(ranges)
    found, batch_of = list[int](), defaultdict[int, set[int]](set)
    for number, ranges in enumerate(batches):
        for row in shop.read(ranges):
            found.append(row["id"])
            batch_of[row["id"]].add(number)
    rows = shop.ask("SELECT id, xact::text FROM shop.sale")
    assert sorted(found) == sorted(number for number, _ in rows)
    by_transaction = defaultdict[str, set[int]](set)
    for number, xact in rows:
        by_transaction[xact] |= batch_of[number]
    assert [xact for xact, numbers in by_transaction.items() if len(numbers) > 1] == []
    assert len(batches) > SECONDS
