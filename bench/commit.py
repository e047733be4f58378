"""The commit: rows of a batch into a state, against the floor of what PostgreSQL must do and against other ways."""

from __future__ import annotations

import io
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
from psycopg2.extras import execute_values
from pyarrow import csv
from sqlalchemy import column, create_engine
from sqlalchemy import table as sql_table
from sqlalchemy.dialects.postgresql import insert

from bench import batches, rivals
from bench.database import Server, server
from bench.measure import Contestant, Figure, Stopwatch, interleaved
from bench.results import Results

MILLION = 1_000_000
WITH, WITHOUT = "with_contributions", "without_contributions"


@dataclass
class Case:
    """One batch and the states it goes into; every method is a contestant."""

    server: Server
    keys: int
    rows: int
    updates: float

    @cached_property
    def numbers(self) -> list[int]:
        """The keys of the batch, those of the state first."""
        return batches.key_numbers(self.rows, self.keys, self.updates)

    @cached_property
    def partials(self) -> pa.Table:
        """The batch, in no order."""
        return batches.table(self.numbers)

    def template(self, kind: str) -> str:
        """The database that copies are made of."""
        return f"keys_{self.keys}_{kind}"

    def floor(self, watch: Stopwatch) -> None:
        """What PostgreSQL must do if it is told which rows are new and where the others are: COPY into an unlogged table,
        UPDATE of rows by their place, and COPY of the new rows, in order, into a table with a primary key.
        """
        known = self.numbers[: int(self.rows * self.updates)]
        new = batches.table(sorted(self.numbers[len(known) :]))
        with self.server.copy_of(self.template(WITHOUT)) as database:
            self.server.run(
                "CREATE UNLOGGED TABLE staged (key text, count bigint)",
                "CREATE TABLE inserted (LIKE state.counts INCLUDING ALL)",
                'CREATE UNLOGGED TABLE known (key text COLLATE "C")',
                database=database,
            )
            connection = self.server.connect(database)
            with connection, connection.cursor() as cursor:
                cursor.copy_expert("COPY known FROM STDIN", io.StringIO("".join(batches.KEY % n + "\n" for n in known)))
                cursor.execute(
                    "CREATE TABLE places AS SELECT s.ctid AS place FROM state.counts s JOIN known USING (key) ORDER BY 1"
                )
                cursor.execute("ANALYZE places")
            self.server.run("CHECKPOINT", database=database)
            everything, fresh = (
                as_csv(self.partials),
                as_csv(new.sort_by("key").append_column("txid", pa.array([2] * new.num_rows))),
            )
            with watch.timed(), connection, connection.cursor() as cursor:
                cursor.copy_expert("COPY staged FROM STDIN (FORMAT csv)", everything, size=1 << 20)
                cursor.execute("SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off")
                cursor.execute(
                    "UPDATE state.counts s SET prev_count = count, prev_txid = txid, count = count + 1, txid = 2 "
                    "FROM places WHERE s.ctid = place"
                )
                assert cursor.rowcount == len(known)
                cursor.copy_expert("COPY inserted (key, count, txid) FROM STDIN (FORMAT csv)", fresh, size=1 << 20)
            connection.close()

    def txbatch(self, kind: str, watch: Stopwatch, *, new_values: str | None = None) -> None:
        """Reading the staged Parquet, R7's checks, COPY, upsert and COMMIT: all that the commit task does."""
        defined = batches.topology(contributions=kind == WITH)
        if new_values:
            defined.aggregates[0].new_values_into(new_values)
        batches.timed_commit(self.server, self.template(kind), defined, self.partials, watch)

    def plain(self, watch: Stopwatch) -> None:
        """The upsert without any guarantee: COPY into a temporary table, one statement sorted by key."""
        self._by_hand(watch, self._plain)

    def execute_values(self, watch: Stopwatch) -> None:
        """psycopg2's execute_values, pages of 1,000."""
        self._by_hand(watch, self._execute_values)

    def _plain(self, connection: Any) -> None:
        with connection, connection.cursor() as cursor:
            cursor.execute('CREATE TEMP TABLE staged (key text COLLATE "C", count bigint) ON COMMIT DROP')
            cursor.copy_expert("COPY staged FROM STDIN (FORMAT csv)", as_csv(self.partials), size=1 << 20)
            cursor.execute(
                f"INSERT INTO state.counts AS s (key, count, txid) SELECT key, count, 2 FROM staged ORDER BY key {ON_CONFLICT}"
            )

    def _execute_values(self, connection: Any) -> None:
        rows = list(zip(*self.partials.to_pydict().values(), strict=True))
        with connection, connection.cursor() as cursor:
            statement = f"INSERT INTO state.counts AS s (key, count, txid) VALUES %s {ON_CONFLICT}"
            execute_values(cursor, statement, rows, template="(%s, %s, 2)", page_size=1000)

    def _by_hand(self, watch: Stopwatch, load: Any) -> None:
        with self.server.copy_of(self.template(WITHOUT)) as database:
            connection = self.server.connect(database)
            with watch.timed():
                load(connection)
            connection.close()

    def sqlalchemy(self, watch: Stopwatch) -> None:
        """SQLAlchemy's bulk insert with ON CONFLICT, on psycopg2, as its guide writes it (insertmanyvalues)."""
        counts = sql_table("counts", column("key"), column("count"), column("txid"), schema="state")
        statement = insert(counts)
        updated = {"count": counts.c.count + statement.excluded.count, "txid": statement.excluded.txid}
        statement = statement.on_conflict_do_update(index_elements=["key"], set_=updated)
        with self.server.copy_of(self.template(WITHOUT)) as database:
            engine = create_engine(self.server.url_of(database))
            with watch.timed(), engine.begin() as connection:
                connection.execute(statement, [{**row, "txid": 2} for row in self.partials.to_pylist()])
            engine.dispose()


ON_CONFLICT = "ON CONFLICT (key) DO UPDATE SET count = s.count + EXCLUDED.count, txid = EXCLUDED.txid"


def as_csv(partials: pa.Table) -> io.BytesIO:
    """For COPY."""
    sink = io.BytesIO()
    csv.write_csv(partials, sink, csv.WriteOptions(include_header=False))
    sink.seek(0)
    return sink


def measure(
    section: str, results: Results, *, rows: int, keys: int, updates: float, row_wise: bool = False, fewer: int = 0
) -> None:
    """One case, all contestants; with `fewer`, also the same batch into a state of so many keys."""
    with server() as running, rivals.warm_spark() if row_wise else nullcontext() as spark:
        case = Case(running, keys, rows, updates)
        for kind in (WITH, WITHOUT):
            batches.fill(running, case.template(kind), keys, contributions=kind == WITH)
        contestants: dict[str, Contestant] = {
            "composed floor": case.floor,
            "txbatch": partial(case.txbatch, WITHOUT),
            "txbatch with contributions": partial(case.txbatch, WITH),
            "plain upsert": case.plain,
        }
        if spark is not None:
            contestants |= {
                "execute_values": case.execute_values,
                "SQLAlchemy bulk": case.sqlalchemy,
                "Spark JDBC + merge": partial(rivals.jdbc_merge, case, case.template(WITHOUT), spark),
                "dlt merge": partial(rivals.dlt_merge, case),
            }
        if fewer:
            small = Case(running, fewer, rows, updates)
            batches.fill(running, small.template(WITHOUT), fewer, contributions=False)
            contestants["txbatch, a tenth of the state"] = partial(small.txbatch, WITHOUT)
        results.add(section, interleaved(contestants), FIGURES[section], rows=rows, keys=keys, updates=updates)


def _floor(what: str, at_least: float, aim: float, measured: str = "txbatch") -> Figure:
    return Figure(f"commit {what} / composed floor", measured, "composed floor", at_least, aim)


FIGURES = {
    "commit 100 k": [
        _floor("100 k rows", 2.0, 1.6),
        Figure("execute_values / commit of 100 k rows", "execute_values", "txbatch", 2, 3, higher=True),
        Figure("SQLAlchemy bulk / commit of 100 k rows", "SQLAlchemy bulk", "txbatch", 3, 5, higher=True),
        Figure("Spark JDBC + merge / commit of 100 k rows", "Spark JDBC + merge", "txbatch", higher=True),
        Figure("dlt merge / commit of 100 k rows", "dlt merge", "txbatch", higher=True),
    ],
    "commit 1 M": [
        _floor("1 M rows", 1.15, 1.0),
        _floor("1 M rows with contributions", 1.3, 1.1, "txbatch with contributions"),
        Figure(
            "exactly-once with contributions / plain upsert, 1 M rows",
            "txbatch with contributions",
            "plain upsert",
            1.25,
            1.1,
        ),
    ],
    "commit 1 M, all updates": [_floor("1 M rows, all updates", 1.15, 1.0)],
    "commit 1 M into 10 M": [
        Figure("10 times the state, the same batch of 1 M rows", "txbatch", "txbatch, a tenth of the state", 1.2, 1.1)
    ],
}
SECTIONS = {
    "commit 100 k": partial(measure, rows=100_000, keys=MILLION, updates=0.5, row_wise=True),
    "commit 1 M": partial(measure, rows=MILLION, keys=MILLION, updates=0.5),
    "commit 1 M, all updates": partial(measure, rows=MILLION, keys=MILLION, updates=1.0),
    "commit 1 M into 10 M": partial(measure, rows=MILLION, keys=10 * MILLION, updates=0.5, fewer=MILLION),
}
