"""A table of PostgreSQL as a source: planning, reading against Spark's JDBC reader, and what more states cost.

Of a log: a thousand batches of sixteen partitions, rebuilt, against one batch of the same records.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import psycopg2

from bench import extras
from bench.database import Server, server
from bench.measure import Contestant, Figure, LeftOut, Stopwatch, calls_of, interleaved, noted
from bench.plan import told
from bench.results import Results
from bench.words import Words
from bench.year import txbatch
from txbatch.settings import source_variable
from txbatch.spouts.partitioned_log import PartitionedLog
from txbatch.spouts.postgres_table import PostgresSpout
from txbatch.spouts.tables import prepare
from txbatch.spouts.tables.connection import reading, run_all
from txbatch.spouts.tables.description import describe

MANY, BATCH, OPEN, PLANS = 10_000_000, 100_000, 400, 400
SOURCE, TABLE, SMALL, LARGE = "bench", "shop.sale", "two_million", "ten_million"
BATCHES, PARTITIONS, RECORDS = 1_000, 16, 10
ROWS, TASKS = 2_000_000, 2
FIELDS = "id bigint, shop string, amount decimal(12,2), sold_at timestamp, pieces int"
MADE = """
CREATE SCHEMA shop;
CREATE TABLE shop.sale (id bigint PRIMARY KEY, shop text, amount numeric(12, 2), sold_at timestamptz, pieces int)
"""
FILL = """
INSERT INTO shop.sale (id, shop, amount, sold_at, pieces)
SELECT n, 'shop ' || n % 1000, n % 9973 / 100.0, '2026-01-01Z'::timestamptz + n * interval '1 s', n % 7
  FROM generate_series({}, {}) n
"""
LOG_JOB = """
from txbatch import *

topology = Topology("clicks")
clicks = topology.new_stream("clicks", PartitionedLogSpout({root!r}, max_records={records}))
clicks.group_by("line").persistent_aggregate(OpaqueState("clicks"), clicks=Count())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""


def fill(running: Server, database: str, rows: int, each: int) -> None:
    """A prepared table with so many rows, in transactions of `each` rows."""
    running.run(f"CREATE DATABASE {database}")
    running.run(MADE, database=database)
    with source(running, database) as url:
        with reading(SOURCE, url, TABLE) as session:
            statements = prepare.statements(describe(session, TABLE))
        run_all(SOURCE, url, statements, TABLE)
    filled = [FILL.format(first, first + each - 1) for first in range(1, rows, each)]
    running.run(*filled, "VACUUM (FREEZE, ANALYZE)", "CHECKPOINT", database=database)


@contextmanager
def source(running: Server, database: str) -> Iterator[str]:
    """Context manager. The URL of the source, which this process and its children find."""
    url = running.url_of(database)
    with patch.dict(os.environ, {source_variable(SOURCE): url}):
        yield url


def planning(section: str, results: Results) -> None:
    """One batch of a hundred thousand of ten million rows, at rest and beside 400 open transactions; 400 batches by one look."""
    with server(max_connections=str(OPEN + 20)) as running, ExitStack() as ending:
        fill(running, LARGE, MANY, BATCH // 10)
        ending.enter_context(source(running, LARGE))
        open_ = [running.connect(LARGE) for _ in range(OPEN)]
        contestants: dict[str, Contestant] = {
            "one plan": partial(_planned, 1),
            f"{OPEN} open": partial(_beside, open_),
            f"{PLANS} plans": partial(_planned, PLANS),
        }
        runs = interleaved(contestants)
        results.add(section, runs | noted(runs, f"{PLANS} plans", "looks"), PLANNING, rows=MANY, batch=BATCH)
        for connection in open_:
            connection.close()


def _planned(number: int, watch: Stopwatch) -> None:
    spout = PostgresSpout(TABLE, FIELDS, source=SOURCE, max_rows=BATCH if number == 1 else BATCH // 10, existing=False)
    coordinator = spout.coordinator()
    looks = calls_of("txbatch.spouts.postgres_table.Planner", watch, "looks")
    with looks, watch.timed(), coordinator.one_look():
        for _ in range(number):
            plan = coordinator.initialize_transaction(1, None, None)
            assert plan is not None
            coordinator.offsets = {**coordinator.offsets, **plan["partitions"]}
    coordinator.close()
    assert coordinator.offsets[TABLE]["records"] > 0


def _beside(open_: Sequence[psycopg2.extensions.connection], watch: Stopwatch) -> None:
    for connection in open_:
        connection.cursor().execute("SELECT pg_current_xact_id()")
    _planned(1, watch)
    for connection in open_:
        connection.rollback()


def read(section: str, results: Results) -> None:
    """Two million rows of five columns into Spark, and into one state and three, in one warm session."""
    with server() as running:
        fill(running, SMALL, ROWS, ROWS)
        what = Words.submission()
        conf = [part for name, value in what.conf.items() for part in ("--conf", f"{name}={value}")]
        jdbc = _jdbc()
        with source(running, SMALL) as url, tempfile.TemporaryDirectory(prefix="txbatch-bench.") as home:
            program = [str(extras.PROGRAMS / "tables.py"), f"{home}/partials"]
            master = ["--master", f"local[{TASKS}]", *conf, *jdbc]
            command = [extras.spark_submit(), *master, "--py-files", what.py_files, *program]
            environment = {**what.environment, source_variable(SOURCE): url, **running.told(SMALL)}
            runs = told(command, {**environment, **({"BENCH_JDBC": "1"} if jdbc else {})})
        results.add(section, runs, READ if jdbc else READ[2:], rows=ROWS, tasks=TASKS)


def _jdbc() -> list[str]:
    try:
        return ["--driver-class-path", str(extras.jdbc_jar())]
    except LeftOut as error:
        print(f"    Spark JDBC: left out, {error}", flush=True)
        return []


def rebuilt(section: str, results: Results) -> None:
    """A thousand committed batches of a log, rebuilt; and one batch of the same records."""
    with server() as running:
        root = running.home / "log"
        log = PartitionedLog(root)
        for number in range(PARTITIONS):
            lines = [f"line {at % 1000}" for at in range(BATCHES * RECORDS)]
            log.append(f"{number:02}", lines)
        running.run("CREATE DATABASE migrated")
        txbatch(running, "migrated", "migrate")
        many, one = (_job(running.home, root, records) for records in (RECORDS, BATCHES * RECORDS))
        running.run("CREATE DATABASE counted TEMPLATE migrated")
        txbatch(running, "counted", "run", str(many), "--until-idle")
        contestants: dict[str, Contestant] = {
            "one batch": partial(commanded, running, "migrated", ["run", str(one)]),
            "rebuild": partial(commanded, running, "counted", ["rebuild", str(many), "--why", "bench"]),
        }
        results.add(section, interleaved(contestants), REBUILT, batches=BATCHES, partitions=PARTITIONS)


def _job(home: Path, root: Path, records: int) -> Path:
    folder = home / f"of_{records}"
    folder.mkdir()
    path = folder / "clicks.py"
    path.write_text(LOG_JOB.format(root=str(root), records=records))
    return path


def commanded(running: Server, template: str, arguments: list[str], watch: Stopwatch) -> None:
    """Run a command of txbatch on a copy of a database."""
    with running.copy_of(template) as database:
        took = txbatch(running, database, *arguments)
        watch.seconds, watch.cpu = took.seconds, took.cpu


OF = f"planning {BATCH:,} of {MANY:,} rows"
PLANNING = [
    Figure(f"{OF}, s", "one plan", None, 0.3, 0.15, unit=1),
    Figure(f"{OF} beside {OPEN} open transactions, s", f"{OPEN} open", None, 0.3, 0.15, unit=1),
    Figure(f"{PLANS} plans of a train, s", f"{PLANS} plans", None, unit=1),
    Figure(f"{PLANS} plans of a train, looks at the table", f"{PLANS} plans, looks", None, 5, 1, unit=1),
]
READ = [
    Figure(f"{ROWS:,} rows into Spark / Spark JDBC, CPU", "PostgresSpout, CPU", "Spark JDBC, CPU", 1.2, 0.9),
    Figure(f"{ROWS:,} rows into Spark / Spark JDBC", "PostgresSpout", "Spark JDBC", 1.0, 0.9),
    Figure("three states over a table / one", "three states", "one state", 1.4, 1.2),
    Figure("three states over a table / one, CPU", "three states, CPU", "one state, CPU", 1.4, 1.2),
]
REBUILT = [Figure(f"{BATCHES:,} batches of a log rebuilt / one batch of its records", "rebuild", "one batch", 2.5, 2)]
SECTIONS = {"a table, planned": planning, "a table, read": read, "a log, rebuilt": rebuilt}
