"""Each row once, whole transactions in a batch, beside writers whose transactions end in any order, some prepared and late."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count

import psycopg2
import pytest
from servers import Server
from sizes import some_of
from source_tables import TABLE, Shop, known

SECONDS = some_of(10, 600)
WRITERS = 4
_ids, _names = count(1), count(1)
pytestmark = pytest.mark.timeout(SECONDS + 300)


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of this test alone."""
    made = Server(tmp_path_factory.mktemp("w") / "w").make().start()
    yield made
    made.kill()


@dataclass
class Writers:
    """What writers did: the rows of each transaction that was committed, and the prepared transactions that are open."""

    server: Server
    random: random.Random
    ended: threading.Event = field(default_factory=threading.Event)
    committed: dict[int, list[int]] = field(default_factory=dict)
    prepared: list[tuple[float, str, list[int]]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self) -> None:
        """Insert rows in transactions, with savepoints, until the end."""
        connection = self.server.connect()
        cursor = connection.cursor()
        while not self.ended.is_set():
            cursor.execute("BEGIN")
            ids = [next(_ids) for _ in range(self.random.randint(1, 4))]
            for number in ids:
                cursor.execute(f"SAVEPOINT s; INSERT INTO shop.sale VALUES ({number}, 's', 1); RELEASE s")
                cursor.execute(f"SAVEPOINT s; INSERT INTO shop.sale VALUES ({-number}, 's', 1); ROLLBACK TO s")
                time.sleep(self.random.random() / 20)
            self._end(cursor, ids)

    def _end(self, cursor: psycopg2.extensions.cursor, ids: list[int]) -> None:
        kind, name = self.random.random(), f"p{next(_names)}"
        if kind < 0.2:
            cursor.execute("ROLLBACK")
            return
        if kind < 0.5:
            with suppress(psycopg2.Error):  # as many are prepared as the server takes
                cursor.execute(f"PREPARE TRANSACTION '{name}'")
                with self.lock:
                    self.prepared.append((time.monotonic() + self.random.random() * SECONDS / 20, name, ids))
                return
            cursor.execute("ROLLBACK")
            return
        cursor.execute("COMMIT")
        self._took(ids)

    def finish(self, *, all_of_them: bool = False) -> None:
        """End prepared transactions whose time has come."""
        with self.lock:
            due = [each for each in self.prepared if all_of_them or each[0] < time.monotonic()]
            self.prepared = [each for each in self.prepared if each not in due]
        for _, name, ids in due:
            if self.random.random() < 0.2:
                self.server.ask(f"ROLLBACK PREPARED '{name}'")
            else:
                self.server.ask(f"COMMIT PREPARED '{name}'")
                self._took(ids)

    def _took(self, ids: list[int]) -> None:
        with self.lock:
            self.committed[len(self.committed)] = ids


@contextmanager
def writing(server: Server, seed: int) -> Iterator[Writers]:
    """Context manager. Writers write in the block; afterwards all has ended."""
    writers = Writers(server, random.Random(seed))
    threads = [threading.Thread(target=writers.write) for _ in range(WRITERS)]
    for each in threads:
        each.start()
    try:
        yield writers
    finally:
        writers.ended.set()
        for each in threads:
            each.join()
        writers.finish(all_of_them=True)


def test_each_row_once_and_no_transaction_in_part_beside_prepared_ones(server: Server) -> None:
    with known(server.url):
        shop = Shop(server.url)
        shop.ask(TABLE)
        shop.prepare()
        batches = list[list[int]]()
        with writing(server, 1) as writers:
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                writers.finish()
                batches += [ids for ids in (shop.take(max_rows=20),) if ids is not None]
                time.sleep(0.2)
        batches += shop.drain(max_rows=20)
    of = defaultdict[int, list[int]](list)
    for number, ids in enumerate(batches):
        for each in ids:
            of[each].append(number)
    committed = [each for ids in writers.committed.values() for each in ids]
    assert {each: len(numbers) for each, numbers in of.items()} == dict.fromkeys(committed, 1)
    split = [ids for ids in writers.committed.values() if len({of[each][0] for each in ids}) > 1]
    assert split == []
    assert len(batches) > 5
