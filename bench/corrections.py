"""Life after the commit: restate, why, as-of and retention, on a thousand batches of ten thousand keys over a million.

And a rebuild of the year of flights, a batch a day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench import batches, year
from bench.commit import MILLION
from bench.database import Server, server
from bench.measure import Contestant, Figure, Stopwatch, interleaved
from bench.results import Results
from txbatch.core.batch.transaction import Restate, Run
from txbatch.postgres.corrections.retention import Retention
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import migrate
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.ledger import PostgresLedger
from txbatch.postgres.schema.state_tables import PARTITION_TXIDS, create_partition
from txbatch.storage import parquet

BATCHES, KEYS_EACH, MANY, FOLDED = 1_000, 10_000, 10_000, 100
DATABASE, ASKED = "history", "asked"
BACK = (5, 50, 500, 900)  # every key is touched by the last hundred
# Batch t has the keys t, t + 100, t + 200, ... modulo a million: each key is in ten of a thousand batches.
SPREAD = f"""
SELECT 'key' || lpad((((t + i * 100) % {MILLION}))::text, 11, '0'), t
  FROM generate_series(1, {BATCHES}) t, generate_series(0, {KEYS_EACH - 1}) i
"""
# One key that every batch has, and one of a thousand.
NARROW = f"""
SELECT 'hot', t FROM generate_series(1, {MANY}) t
 UNION ALL SELECT 'key' || t % 1000, t FROM generate_series(1, {MANY}) t
"""
_PLAN = """('{"format": 2, "streams": {"keys": {"plan": {"number": ' || t || '}}}}')::json"""
_MANIFEST = """('{"topology": "bench", "attempt": {"txid": ' || t || ', "attempt_id": 1}, "token": "' || t || '", "code": "0",
"metadata_digest": "0", "streams": {"keys": {"": {"records": 1, "fingerprint": "0"}}}, "states": {}, "unreadable": {}}')::json"""
_COMMITTED = f"""
INSERT INTO txbatch.batch (topology, txid, position, status, key, metadata, prev_txid, fence, token, lease_until, committed_at,
                           committed_fence, records, records_to, keys, succeeded_at)
SELECT 'bench', t, t, 'committed', 'run:' || t, {_PLAN}, nullif(t - 1, 0), 1, t, now(), now(), 1, 1, t,
       '{{"counts": {{keys}}}}', now()
  FROM generate_series(1, {{count}}) t;
INSERT INTO txbatch.attempt (topology, txid, attempt_id, token, status, run, code, manifest, finished_at)
SELECT 'bench', t, 1, t, 'committed', 'bench', '0', {_MANIFEST}, now() FROM generate_series(1, {{count}}) t;
INSERT INTO txbatch.partition (topology, stream, partition, txid, status, metadata, records, fingerprint)
SELECT 'bench', 'keys', '', t, 'read', '{{}}', 1, 0 FROM generate_series(1, {{count}}) t;
INSERT INTO contribution.counts (key, position, txid, count)
SELECT key, txid, txid, 1 FROM ({{contributions}}) c (key, txid) ORDER BY txid, key;
INSERT INTO state.counts (key, count, txid)
SELECT key, sum(count), max(txid) FROM contribution.counts GROUP BY 1 ORDER BY 1;
"""


def fill(running: Server, database: str, count: int, contributions: str, keys: int) -> None:
    """A migrated database with so many committed batches of so many keys, whose contributions are selected as key and txid."""
    running.run(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)", f"CREATE DATABASE {database}")
    engine = connect(running.url_of(database))
    migrate(engine)
    PostgresLedger(engine).register(batches.topology(contributions=True), batches.JOB)
    with transaction(engine) as connection:
        for first in range(1 + PARTITION_TXIDS, count + 1, PARTITION_TXIDS):
            create_partition(connection, "counts", first)
    engine.dispose()
    made = (
        _COMMITTED.replace("{count}", str(count)).replace("{contributions}", contributions).replace("{keys}", str(keys))
    )
    running.run(made, "VACUUM (FREEZE, ANALYZE)", "CHECKPOINT", database=database)


@dataclass(frozen=True)
class History:
    """The thousand batches; every method is a contestant."""

    running: Server

    def commit(self, watch: Stopwatch) -> None:
        """Commit one more batch of as many keys."""
        self._committed(Run("next"), BATCHES + 1, watch)

    def restate(self, watch: Stopwatch) -> None:
        """Commit the restate of one in the middle, which has the same keys."""
        self._committed(Run("again", restate=Restate(BATCHES // 2, "bench")), BATCHES // 2, watch)

    def fold(self, watch: Stopwatch) -> None:
        """Fold the oldest hundred."""
        with self.running.copy_of(DATABASE) as database:
            engine = connect(self.running.url_of(database))
            with watch.timed():
                done = list(Retention(engine).fold("bench", FOLDED))
            engine.dispose()
        assert sum(each.rows for each in done) == FOLDED * KEYS_EACH

    def _committed(self, run: Run, like: int, watch: Stopwatch) -> None:
        with self.running.copy_of(DATABASE) as database:
            engine = connect(self.running.url_of(database))
            ledger, defined = PostgresLedger(engine), batches.topology(contributions=True)
            numbers = [(like + number * 100) % MILLION for number in range(KEYS_EACH)]
            staging = batches.staging(self.running.home)
            batch, folder = batches.emitted(ledger, defined, staging, batches.table(numbers), run)
            manifest = ledger.newest_attempt(batch)[1]
            assert manifest
            self.running.run("CHECKPOINT", database=database)
            with watch.timed():
                ledger.commit(defined, batch, {"counts": parquet.read(folder, manifest.states["counts"])})
            engine.dispose()
            folder.remove()


@dataclass(frozen=True)
class Questions:
    """What people ask of a history, on one connection; every method is a contestant."""

    ask: Callable[..., list[Any]]

    def statement(self, statement: str, rows: int, watch: Stopwatch) -> None:
        """Ask, and compare how many rows come."""
        with watch.timed():
            found = self.ask(statement)
        assert len(found) == rows, (statement, len(found))


@contextmanager
def _asking(running: Server, database: str) -> Iterator[Questions]:
    """Context manager. Who asks, with the connection and the caches warm, as in a service."""
    connection = running.connect(database)
    connection.autocommit = True

    def ask(statement: str) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()

    ask("SELECT count(*) FROM state.counts")
    yield Questions(ask)
    connection.close()


def restate(section: str, results: Results) -> None:
    """A restate of one of a thousand batches, against the commit of one more; what a key was, and the whole state."""
    with server() as running:
        fill(running, DATABASE, BATCHES, SPREAD, KEYS_EACH)
        running.run(f"CREATE DATABASE {ASKED} TEMPLATE {DATABASE} STRATEGY file_copy")
        history = History(running)
        contestants: dict[str, Contestant] = {"commit": history.commit, "restate": history.restate, "gc": history.fold}
        with _asking(running, ASKED) as questions:
            contestants |= {"read the state": partial(questions.statement, "SELECT * FROM report.counts", MILLION)}
            for back in BACK:
                contestants[f"as of {back} batches ago"] = partial(
                    questions.statement, f"SELECT * FROM report.as_of_counts({BATCHES - back})", MILLION
                )
            contestants |= {
                "as of, one key": partial(
                    questions.statement, f"SELECT * FROM report.as_of_counts({BATCHES // 2}) WHERE key = '{_A_KEY}'", 1
                ),
                "why, one key": partial(questions.statement, f"SELECT * FROM report.why_counts('{_A_KEY}')", 10),
            }
            results.add(section, interleaved(contestants), FIGURES)


def long(section: str, results: Results) -> None:
    """The same for a key that each of ten thousand batches has."""
    with server() as running:
        fill(running, ASKED, MANY, NARROW, 2)
        with _asking(running, ASKED) as questions:
            contestants: dict[str, Contestant] = {
                "why, one key": partial(questions.statement, "SELECT * FROM report.why_counts('key7')", 10),
                "as of, one key": partial(
                    questions.statement, f"SELECT * FROM report.as_of_counts({MANY // 2}) WHERE key = 'key7'", 1
                ),
                "why, a key of all batches": partial(
                    questions.statement, "SELECT * FROM report.why_counts('hot')", MANY
                ),
            }
            figures = [
                Figure("why of one key, 10,000 txids, ms", "why, one key", None, 20, 5),
                Figure("as-of of one key, 10,000 txids, ms", "as of, one key", None, 20, 5),
            ]
            results.add(section, interleaved(contestants), figures)


def rebuild(section: str, results: Results) -> None:
    """All days of the year verified, and counted again by `txbatch rebuild`, against one `txbatch run`; once, as all are long."""
    with server() as running:
        job = year.prepare(running.home)
        first = year.counted_in_one_call(running, job, "year")
        print(f"    {year.DAYS} days by one run: {first.seconds:.0f} s", flush=True)
        verified = year.txbatch(running, "year", "verify", str(job))
        print(f"    the same verified: {verified.seconds:.0f} s", flush=True)
        again = year.txbatch(running, "year", "rebuild", str(job), "--why", "bench")
        print(f"    the same again by a rebuild: {again.seconds:.0f} s", flush=True)
        year.check(running, "year")
    runs = {"counted": [first], "verified": [verified], "rebuilt": [again]}
    figures = [
        Figure("verify of 365 days / counting them by one run", "verified", "counted", 1.5, 1.0),
        Figure("rebuild of 365 days / counting them by one run", "rebuilt", "counted", 1.2, 1.0),
    ]
    results.add(section, runs, figures, source="Parquet sorted by time")


_A_KEY = batches.KEY % 7
FIGURES = [
    Figure("restate / commit, 10,000 of 1 M keys", "restate", "commit", 3, 2),
    Figure("gc of 100 batches of 10,000 keys, s", "gc", None, 10, 5, unit=1),
    *(
        Figure(f"as of {back} batches ago / reading the state", f"as of {back} batches ago", "read the state", 2, 1.2)
        for back in BACK
    ),
    Figure("as-of of one key, ms", "as of, one key", None, 20, 5),
    Figure("why of one key, ms", "why, one key", None, 20, 5),
]
SECTIONS = {"corrections": restate, "long history": long, "rebuild of the year": rebuild}
