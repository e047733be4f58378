"""One batch of the commit's bench and the states that it goes into."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from psycopg2.extras import execute_values
from pyarrow import csv
from sqlalchemy import column, create_engine
from sqlalchemy import table as sql_table
from sqlalchemy.dialects.postgresql import insert

from bench import batches
from bench.database import Server
from bench.measure import Stopwatch

WITH, WITHOUT = "with_contributions", "without_contributions"
ON_CONFLICT = "ON CONFLICT (key) DO UPDATE SET count = s.count + EXCLUDED.count, txid = EXCLUDED.txid"


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


def as_csv(partials: pa.Table) -> io.BytesIO:
    """For COPY."""
    sink = io.BytesIO()
    csv.write_csv(partials, sink, csv.WriteOptions(include_header=False))
    sink.seek(0)
    return sink
