"""Windows and sessions in any batches, against one query of DuckDB over all records (R18, R25, R27).

A history has records of two shops, which come out of order and late, around nights in which clocks change; their batches are
random, die on the way, are replayed, and miss a partition for some time. The SQL knows nothing of how we cut time.
24 of them, 120 in `make test-all`; `DUCKDB_HISTORIES=4000` tries so many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from model import test_any_batches as any_batches
from model.on_postgres import on_postgres
from model.test_any_batches import PARTITIONS, Submit, run
from sizes import some_of
from sqlalchemy import Engine

from txbatch import Count, Max, Min, OpaqueState, Sum, Topology, session_window, window
from txbatch.core.errors import PartitionUnreadable, TerminalError
from txbatch.direct import emitter
from txbatch.testing import FeederPartitionedSpout, LocalTopology, submit_topology
from txbatch.testing.local import POINTS

HISTORIES = some_of(24, 120, "DUCKDB_HISTORIES")
FEEDS = 6
Record = tuple[datetime, str, int | None]
# Nights of 2026 in which clocks change: in New York, Berlin, Santiago (over midnight), Lord Howe (half an hour); and a new year.
NIGHTS = ("03-08", "11-01", "03-29", "10-25", "04-05", "09-06", "10-04", "01-01")
ORIGIN = "TIMESTAMPTZ '1970-01-01 00:00:00+00'"
OF = "count(*), sum(n), min(n), max(n)"


def bucket(length: str) -> str:
    """The query of windows of a length."""
    return f"SELECT time_bucket(INTERVAL '{length}', seen, {ORIGIN}), shop, {OF} FROM records GROUP BY 1, 2"


def of_zone(unit: str, zone: str) -> str:
    """The query of windows that begin at a zone's midnight."""
    start = f"timezone('{zone}', date_trunc('{unit}', timezone('{zone}', seen)))"
    return f"SELECT {start}, shop, {OF} FROM records GROUP BY 1, 2"


def from_another_time(unit: str, later: str, zone: str) -> str:
    """The query of windows that begin later than a zone's midnight, by its clocks."""
    local = f"timezone('{zone}', seen) - INTERVAL '{later}'"
    start = f"timezone('{zone}', date_trunc('{unit}', {local}) + INTERVAL '{later}')"
    return f"SELECT {start}, shop, {OF} FROM records GROUP BY 1, 2"


SLIDING = f"""
SELECT time_bucket(INTERVAL '20 minutes', seen, {ORIGIN}) - i * INTERVAL '20 minutes', shop, {OF}
  FROM records, generate_series(0, 2) s (i) GROUP BY 1, 2
"""
SESSIONS = f"""
WITH parted AS (SELECT *, seen - lag(seen) OVER (PARTITION BY shop ORDER BY seen) > INTERVAL '30 minutes' AS parts FROM records),
     numbered AS (SELECT *, count(*) FILTER (WHERE parts) OVER (PARTITION BY shop ORDER BY seen) AS session FROM parted)
SELECT min(seen), shop, {OF}, max(seen) FROM numbered GROUP BY shop, session
"""
# By state what it counts by, and the query of the same.
CASES = {
    "hours": (window("at", "1 hour"), bucket("1 hour")),
    "sevens": (window("at", "7 minutes"), bucket("7 minutes")),
    "weeks": (window("at", "1 week"), "SELECT date_trunc('week', seen), shop, " + OF + " FROM records GROUP BY 1, 2"),
    "sliding": (window("at", "1 hour", slide="20 minutes"), SLIDING),
    "new_york": (window("at", "1 day", timezone="America/New_York"), of_zone("day", "America/New_York")),
    "santiago": (window("at", "1 day", timezone="America/Santiago"), of_zone("day", "America/Santiago")),
    "berlin": (window("at", "1 week", timezone="Europe/Berlin"), of_zone("week", "Europe/Berlin")),
    "lord_howe": (window("at", "1 month", timezone="Australia/Lord_Howe"), of_zone("month", "Australia/Lord_Howe")),
    "from_six": (
        window("at", "1 day", timezone="America/New_York", start="6 hours"),
        from_another_time("day", "6 hours", "America/New_York"),
    ),
    "sundays": (
        window("at", "1 week", timezone="Europe/Berlin", start="-1 day"),
        from_another_time("week", "-1 day", "Europe/Berlin"),
    ),
    "sessions": (session_window("at", "30 minutes"), SESSIONS),
}


def topology_of(name: str, states: Sequence[str]) -> Topology:
    """Each of these states counts the same records by its own windows."""
    topology = Topology(name)
    spout = FeederPartitionedSpout("at timestamp, shop string, n int", kind="opaque")
    stream = topology.new_stream("in", spout).with_watermark("at", "1 hour")
    for state in states:
        values: dict[str, Any] = {"records": Count(), "total": Sum("n"), "least": Min("n"), "most": Max("n")}
        stream.group_by(CASES[state][0], "shop").persistent_aggregate(OpaqueState(f"{name}_{state}"), **values)
    return topology


def some_records(random: Random, now: datetime) -> list[Record]:
    """A few of the last minutes, some of them hours or weeks late; or none."""
    agos = (random.choice((5, 5, 5, 90, 300, 40_000)) for _ in range(random.randint(0, 8)))
    times = (now - timedelta(seconds=random.randrange(60 * ago)) for ago in agos)
    return [(at, random.choice("xy"), random.choice((None, -3, 0, 7))) for at in times]


def history(submit: Submit, topology: Topology, random: Random) -> tuple[LocalTopology, list[Record]]:
    """Run one, and return it with all records that were fed."""
    local, fed = submit(topology), list[Record]()
    spout: Any = local.spouts["in"]
    now = datetime.fromisoformat(f"2026-{random.choice(NIGHTS)}T00:00Z") + timedelta(hours=random.randint(-30, 30))
    for _ in range(random.randint(1, FEEDS)):
        for partition in random.sample(PARTITIONS, random.randint(1, len(PARTITIONS))):
            now += timedelta(minutes=random.randint(0, 50))
            fed += (records := some_records(random, now))
            spout.feed(*records, partition=partition)
        if random.randint(0, 1):
            with suppress(TerminalError):  # it never came there
                local.run(dies_at="initialize.planned")
        away = random.choice(spout.partitions())
        spout.take_away(away)
        with suppress(PartitionUnreadable):
            run(local, random)
        if random.randint(0, 2):
            spout.give_back(away)
    for partition in spout.partitions():
        spout.give_back(partition)
    run(local, random)
    for txid in random.sample(range(1, 4), random.randint(0, 2)):
        with suppress(TerminalError):
            local.restate(txid, why="again", dies_at=random.choice(POINTS))
        with suppress(TerminalError):  # there is no such batch, or none that is committed
            local.restate(txid, why="again")
    run(local, random)
    return local, fed


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    """A database that has all it needs, zones as well, and loads nothing from anywhere."""
    alone = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    made = duckdb.connect(config={**alone, "threads": "1"})
    made.execute("SET TimeZone = 'UTC'")
    return made


def at_once(duck: duckdb.DuckDBPyConnection, records: Sequence[Record], query: str) -> list[tuple[Any, ...]]:
    at, shop, n = zip(*records, strict=True) if records else ((), (), ())
    types = pa.timestamp("us", "UTC"), pa.string(), pa.int64()
    columns = [pa.array(of, type_) for of, type_ in zip((at, shop, n), types, strict=True)]
    duck.register("records", pa.table(columns, names=["seen", "shop", "n"]))
    return sorted(duck.execute(query).fetchall(), key=lambda row: row[:2])


def check(duck: duckdb.DuckDBPyConnection, seed: int, submit: Submit = submit_topology) -> Counter[str]:
    """Run a history, and compare each state with its query; return how many rows of which state were compared."""
    random, name = Random(seed), f"duck_{seed}"
    states = random.sample(sorted(CASES), 5)
    (local, records), compared = history(submit, topology_of(name, states), random), Counter[str]()
    for state in states:
        by, query = CASES[state]
        names = [by.name, "shop", "records", "total", "least", "most", *["session_end"][: state == "sessions"]]
        rows = [tuple(row[each] for each in names) for row in local.rows(f"{name}_{state}")]
        found = sorted(rows, key=lambda row: row[:2])
        assert found == at_once(duck, records, query), f"seed {seed}: {state} of {records}"
        compared[state] = len(found)
    return compared


@pytest.mark.rule("R18", "R25", "R27")
def test_any_batches_come_to_what_one_query_of_duckdb_does(duck: duckdb.DuckDBPyConnection) -> None:
    compared = sum((check(duck, seed) for seed in range(HISTORIES)), Counter[str]())
    assert all(compared[state] > HISTORIES for state in CASES), compared  # no sample is as empty as it could be


@pytest.mark.rule("R18", "R25", "R27")
def test_so_they_do_on_postgresql(
    duck: duckdb.DuckDBPyConnection, engine: Engine, databases: Callable[[str], str]
) -> None:
    for seed in range(-(-HISTORIES // 24)):
        check(duck, seed, partial(on_postgres, engine, databases))


def test_a_hole_that_counts_as_read_is_found(duck: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitter, "_read", any_batches.no_holes)

    def some_histories() -> None:
        for seed in range(120):
            check(duck, seed)

    with pytest.raises(AssertionError, match="seed"):
        some_histories()


def test_what_is_asked_of_duckdb_tells_a_day_of_23_hours(duck: duckdb.DuckDBPyConnection) -> None:
    begin = datetime(2026, 3, 8, 5, tzinfo=UTC)
    hours: list[Record] = [(begin + timedelta(hours=number), "x", 1) for number in range(-24, 47)]
    days = at_once(duck, hours, CASES["new_york"][1])
    assert [(row[0], row[2]) for row in days] == [
        (begin - timedelta(hours=24), 24),
        (begin, 23),
        (begin + timedelta(hours=23), 24),
    ]
