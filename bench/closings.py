"""Which windows a batch closed, of a million: by the report, and as a topology reads them, `emit="final"`; sessions, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench import batches
from bench.database import Server, server
from bench.measure import Contestant, Figure, Stopwatch, interleaved
from bench.results import Results
from txbatch.core.aggregates.aggregator import Count
from txbatch.core.state.state import OpaqueState
from txbatch.core.topology.topology import Topology
from txbatch.core.windows.session_window import session_window
from txbatch.core.windows.window import window
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import migrate
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.ledger import PostgresLedger
from txbatch.postgres.schema.state_tables import PARTITION_TXIDS, create_partition
from txbatch.postgres.upstream.upstream import PostgresUpstream

BATCHES, CLOSED, USERS = 2_500, 400, 100_000
BACK = (0, 10, 1_250)
_BEGIN = "timestamptz '2026-01-01 00:00+00'"
# Batch t brings four hours of a hundred shops, and more of the last two of those before.
_HOURS = f"""
SELECT {_BEGIN} + h * interval '1 hour', 'shop' || lpad(s::text, 3, '0'), t, t, 1
  FROM generate_series(1, {BATCHES}) t, generate_series(greatest(t * 4 - 6, 0), t * 4 - 1) h, generate_series(0, 99) s
"""
# Batch t brings 400 sessions in ten hours, and more of each fourth of those before.
_OF = f"SELECT 'user' || lpad((i * 7919 % {USERS})::text, 10, '0') AS who, {_BEGIN} + i * interval '90 seconds' AS at"
_SESSIONS = f"""
SELECT who, at, at + interval '10 minutes', t, t, 1
  FROM ({_OF}, i / {CLOSED} + 1 AS t FROM generate_series(0::bigint, {BATCHES * CLOSED - 1}) i) s
 UNION ALL
SELECT who, at + interval '15 minutes', at + interval '20 minutes', t, t, 1
  FROM ({_OF}, i / {CLOSED} + 2 AS t FROM generate_series(0::bigint, {(BATCHES - 1) * CLOSED - 1}, 4) i) s
"""
_FILLED = """
INSERT INTO txbatch.batch (topology, txid, position, status, key, metadata, prev_txid, fence, token, lease_until, committed_at,
                           committed_fence, records, keys, succeeded_at, closed_to, closed)
SELECT 'bench', t, t, 'committed', 'run:' || t, '{{}}', nullif(t - 1, 0), 1, t, now(), now(), 1, 1, '{{"{name}": 500}}', now(),
       json_build_object('{name}', until + {gap}), json_build_object('{name}', json_build_array('{closes_by}', first, until))
  FROM (SELECT t, begins + (t - 2) * {span} AS first, begins + (t - 1) * {span} AS until
          FROM generate_series(1, {batches}) t, (SELECT (extract(epoch FROM {begin}) * 1000000)::bigint AS begins) e) b;
INSERT INTO contribution.{name} ({keys}, position, txid, views) SELECT * FROM ({rows}) c ORDER BY 4, 1, 2;
INSERT INTO state.{name} ({keys}, views, txid)
SELECT {keys}, sum(views), max(txid) FROM contribution.{name} GROUP BY {keys} ORDER BY 1, 2;
"""


class VisitsSpout(batches.NumberedSpout):
    """The same with a time."""

    fields = "at timestamp, who string"


@dataclass(frozen=True)
class Case:
    """A state of a million windows or sessions, of which each of 2,500 batches closed those that the one before it had begun."""

    name: str
    keys: str
    rows: str
    span: int  # of what a batch closes, in microseconds
    gap: int = 0

    @property
    def topology(self) -> Topology:
        """The topology, whose state has contributions."""
        made = Topology("bench")
        stream = made.new_stream("keys", VisitsSpout()).with_watermark("at", "1 hour")
        by = ("who", session_window("at", "30 minutes")) if self.gap else (window("at", "1 hour"), "who")
        stream.group_by(*by).persistent_aggregate(OpaqueState(self.name), views=Count())
        return made

    def fill(self, running: Server) -> None:
        """Make a migrated database of that name, with all of it committed."""
        running.run(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)", f"CREATE DATABASE {self.name}")
        engine = connect(running.url_of(self.name))
        migrate(engine)
        PostgresLedger(engine).register(self.topology, batches.JOB)
        with transaction(engine) as connection:
            for first in range(1 + PARTITION_TXIDS, BATCHES + 1, PARTITION_TXIDS):
                create_partition(connection, self.name, first)
        engine.dispose()
        closes_by = "session_end" if self.gap else "window_start"
        of = {**vars(self), "closes_by": closes_by, "begin": _BEGIN, "batches": BATCHES}
        running.run(_FILLED.format(**of), "VACUUM (FREEZE, ANALYZE)", "CHECKPOINT", database=self.name)


HOURS = Case("hours", "window_start, who", _HOURS, 4 * 3_600_000_000)
SESSIONS = Case("sessions", "who, session_start, session_end", _SESSIONS, CLOSED * 90_000_000, 1_800_000_000)


@contextmanager
def _asking(running: Server, case: Case) -> Iterator[dict[str, Contestant]]:
    """Context manager. The questions of a state, on connections that are warm, as in a service."""
    engine = connect(running.url_of(case.name))
    upstream, connection = PostgresUpstream(engine), running.connect(case.name)
    connection.autocommit = True
    known = upstream.known(case.name)

    def report(watch: Stopwatch) -> None:
        with connection.cursor() as cursor, watch.timed():
            cursor.execute(f"SELECT * FROM report.closed_{case.name}({BATCHES - 1}, {BATCHES})")
            found = cursor.fetchall()
        _check(found, watch)

    def final(back: int, watch: Stopwatch) -> None:
        last = BATCHES - back
        range_ = {"start": last - 1, "end": last, "of": list(known.made), "windows": "new"}
        with watch.timed():
            found = list(upstream.closed(case.name, range_, known.closed))
        _check(found, watch)

    for back in BACK:
        final(back, Stopwatch())
    asked: dict[str, Contestant] = {f"{case.name}, report": report}
    yield asked | {f"{case.name}, final {back} back": partial(final, back) for back in BACK}
    connection.close()
    engine.dispose()


def _check(found: list[Any], watch: Stopwatch) -> None:
    assert CLOSED / 2 < len(found) < CLOSED * 2, len(found)
    watch.notes["closed"] = len(found)


def measure(section: str, results: Results) -> None:
    """Windows of an hour and sessions: the report's function, and a reader at the newest batch and far behind it."""
    with server() as running:
        for case in (HOURS, SESSIONS):
            case.fill(running)
        with _asking(running, HOURS) as hours, _asking(running, SESSIONS) as sessions:
            results.add(section, interleaved(hours | sessions), FIGURES, batches=BATCHES)


FIGURES = [
    *(
        Figure(f"{name} a batch closed of 1 M, report, ms", f"{name}, report", None, 20, 5)
        for name in ("hours", "sessions")
    ),
    *(
        Figure(
            f"{name} a batch closed, emit=final, {back} batches behind, ms", f"{name}, final {back} back", None, 20, 5
        )
        for name in ("hours", "sessions")
        for back in BACK
    ),
]
SECTIONS = {"closings": measure}
