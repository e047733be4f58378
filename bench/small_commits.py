"""Small commits, many in a row: what a batch of 33 keys costs, as each day of a year does, against a transaction by hand.

By hand it is a connection that stays, a temporary table, COPY, a MERGE sorted by key and a durable COMMIT.
"""

from __future__ import annotations

import io
import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from bench import batches
from bench.case import as_csv
from bench.database import Server, server
from bench.measure import Figure, Stopwatch, interleaved
from bench.results import Results
from txbatch.postgres.database.engine import connect
from txbatch.postgres.ledger import PostgresLedger
from txbatch.storage import parquet

KEYS, ROWS, IN_A_ROW, WARM = 10_000, 33, 120, 20
MERGE = (
    "MERGE INTO state.counts s USING (SELECT key, count FROM staged ORDER BY key OFFSET 0) e ON s.key = e.key "
    "WHEN MATCHED THEN UPDATE SET prev_count = s.count, prev_txid = s.txid, count = s.count + e.count, txid = 2 "
    "WHEN NOT MATCHED THEN INSERT (key, count, txid) VALUES (e.key, e.count, 2)"
)


def measure(section: str, results: Results) -> None:
    """Each run is the median of many commits, behind some that warm up."""
    with server() as running:
        batches.fill(running, "keys", KEYS, contributions=True)
        runs = interleaved({"txbatch": partial(_ours, running), "by hand": partial(_by_hand, running)}, repeats=5)
    figure = Figure(f"commit of {ROWS} keys / a durable temp-table commit + MERGE by hand", "txbatch", "by hand", 3, 2)
    results.add(section, runs, [figure], one_run=f"the median of {IN_A_ROW} commits")


def _partials(number: int) -> pa.Table:
    return batches.table(batches.key_numbers(ROWS, KEYS, 0.9, seed=number))


def _ours(running: Server, watch: Stopwatch) -> None:
    """All that the commit does: reading the staged Parquet, R7's checks, COPY, upsert, contributions, offsets and COMMIT."""
    defined = batches.topology(contributions=True, max_pending=IN_A_ROW + WARM)
    with running.copy_of("keys") as database:
        engine = connect(running.url_of(database))
        ledger, staging = PostgresLedger(engine), batches.staging(running.home)
        ledger.register(defined, batches.JOB)
        staged = [batches.emitted(ledger, defined, staging, _partials(number)) for number in range(IN_A_ROW + WARM)]

        def commit(number: int) -> None:
            batch, folder = staged[number]
            manifest = ledger.newest_attempt(batch)[1]
            assert manifest
            partials = {"counts": parquet.read(folder, manifest.states["counts"])}
            assert ledger.commit(defined, batch, partials).applied

        _timed(commit, watch)
        engine.dispose()
    shutil.rmtree(running.home / "staging")


def _by_hand(running: Server, watch: Stopwatch) -> None:
    with running.copy_of("keys") as database:
        connection = running.connect(database)
        contents = [as_csv(_partials(number)).getvalue() for number in range(IN_A_ROW + WARM)]

        def commit(number: int) -> None:
            with connection, connection.cursor() as cursor:
                cursor.execute('CREATE TEMP TABLE staged (key text COLLATE "C", count bigint) ON COMMIT DROP')
                cursor.copy_expert("COPY staged FROM STDIN (FORMAT csv)", io.BytesIO(contents[number]), size=1 << 20)
                cursor.execute(MERGE)

        _timed(commit, watch)
        connection.close()


def _timed(commit: Callable[[int], None], watch: Stopwatch) -> None:
    took = []
    for number in range(IN_A_ROW + WARM):
        if number == WARM:
            used = time.process_time()
        began = time.perf_counter()
        commit(number)
        took.append(time.perf_counter() - began)
    watch.seconds, watch.cpu = statistics.median(took[WARM:]), (time.process_time() - used) / IN_A_ROW


SECTIONS = {"small commit": measure}
