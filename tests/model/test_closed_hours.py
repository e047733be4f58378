"""Hours, closed and handed on, against one query over all records: random times, batches, outages and deaths, on both sides."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from bench.programs.closing import AWAY, HOURS, course

from txbatch import AppendState, Count, OpaqueState, StateSpout, Topology, window
from txbatch.core.errors import PartitionUnreadable, TerminalError
from txbatch.core.records.time_buckets import micros_of
from txbatch.memory.ledger import MemoryLedger
from txbatch.testing import FeederPartitionedSpout
from txbatch.testing.local import POINTS, LocalTopology

BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
EVERY_HOUR = "SELECT at / 3600000000 * 3600000000, page, count(*) FROM records GROUP BY 1, 2 ORDER BY 1, 2"
# An hour is closed by the first batch up to whose closed_to it has ended, and has the records of batches up to that.
CLOSED_HOURS = """
WITH hours AS (SELECT at / 3600000000 * 3600000000 AS hour, page, batch FROM records),
     closed AS (SELECT hour, min(txid) AS by FROM (SELECT DISTINCT hour FROM hours)
                  JOIN closings ON closed_to >= hour + 3600000000 GROUP BY 1)
SELECT hour, page, count(*), by FROM hours JOIN closed USING (hour) WHERE batch <= by GROUP BY 1, 2, 4 ORDER BY 1, 2
"""


class History:
    """Views of two pages in two partitions, most within the delay of half an hour, and the topology that reads closed hours."""

    def __init__(self, seed: int, kind: str) -> None:
        self.random, self.now, self.fed, self.ledger = Random(seed), 0, 0, MemoryLedger()
        self.spout = FeederPartitionedSpout("at timestamp, page string", kind=kind)
        views = Topology("views")
        stream = views.new_stream("views", self.spout).with_watermark("at", "30 minutes")
        stream.persist(AppendState("records"))
        stream.group_by(window("at", "1 hour"), "page").persistent_aggregate(OpaqueState("hourly"), views=Count())
        closed = Topology("closed")
        fields = "window_start timestamp, page string, views bigint, closed_by bigint"
        closed.new_stream("closed", StateSpout("hourly", fields, emit="final")).persist(AppendState("closed_hours"))
        self.views, self.closed = LocalTopology(views, self.ledger), LocalTopology(closed, self.ledger)

    def feed(self) -> None:
        for partition in self.random.choice(["a", "b", "ab"]):
            records = []
            for _ in range(self.random.randint(1, 6)):
                self.now += self.random.randint(0, 9)
                ago = self.random.randint(0, 200 if self.random.random() < 0.1 else 30)
                records.append((BEGIN + timedelta(minutes=self.now - ago), self.random.choice("xy")))
            self.spout.feed(*records, partition=partition)
            self.fed += len(records)

    def run(self, topology: LocalTopology) -> None:
        """Until nothing is new, a partition is missed, or it dies somewhere; TerminalError: it never came there."""
        with suppress(PartitionUnreadable, TerminalError):
            topology.run(dies_at=self.random.choice([None, *POINTS]))

    def live(self) -> None:
        for _ in range(30):
            self.feed()
            if self.random.random() < 0.2:
                self.spout.take_away(self.random.choice([*self.spout.partitions()]))
            elif self.random.random() < 0.5:
                self.give_back()
            self.run(self.views)
            self.run(self.closed)
        self.give_back()
        self.views.run()
        self.closed.run()

    def give_back(self) -> None:
        for partition in self.spout.partitions():
            self.spout.give_back(partition)

    def asked(self) -> sqlite3.Connection:
        """A database with all records, each with its batch, and up to when each batch has closed windows."""
        database = sqlite3.connect(":memory:")
        database.execute("CREATE TABLE records (at integer, page text, batch integer)")
        database.execute("CREATE TABLE closings (txid integer, closed_to integer)")
        records = [(micros_of(row["at"]), row["page"], row["batch"]) for row in self.views.rows("records")]
        database.executemany("INSERT INTO records VALUES (?, ?, ?)", records)
        times = {txid: of.closed_to for (topology, txid), of in self.ledger.tables.times.items() if topology == "views"}
        told = [(txid, to["hourly"]) for txid, to in times.items() if to]
        database.executemany("INSERT INTO closings VALUES (?, ?)", told)
        return database


def rows(found: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return sorted((micros_of(row["window_start"]), *(row[name] for name in names)) for row in found)


@pytest.mark.parametrize("kind", ["transactional", "opaque"])
@pytest.mark.parametrize("seed", range(3))
def test_hours_are_what_one_query_says_and_each_is_handed_on_once(seed: int, kind: str) -> None:
    history = History(seed, kind)
    history.live()
    database = history.asked()
    assert database.execute("SELECT count(*) FROM records").fetchone() == (history.fed,)
    assert rows(history.views.rows("hourly"), "page", "views") == database.execute(EVERY_HOUR).fetchall()
    closed = database.execute(CLOSED_HOURS).fetchall()
    assert rows(history.closed.rows("closed_hours"), "page", "views", "closed_by") == closed
    assert len({by for *_, by in closed}) > 5
    assert len(closed) < len(history.views.rows("hourly"))


def test_while_a_partition_is_away_nothing_closes_and_all_it_has_comes_in_time() -> None:
    """What the picture of the documents shows."""
    found, (begin, end) = course(), (each / timedelta(hours=1) for each in AWAY)
    watermark, closed_to = dict(found.watermark), dict(found.closed_to)
    assert all(closed_to[at] <= watermark[at] for at in closed_to)
    held = {closed_to[at] for at in closed_to if begin + 0.5 < at <= end}
    assert len(held) == 1
    back = [at for now, at in found.in_time if now == end]
    assert len(back) > 80
    assert max(closed_to.values()) > HOURS - 2
    assert 0 < len(found.late) < 40
