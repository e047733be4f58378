"""Among 100,000 txids: the newest batches, the first data of each page in the server, why, as-of and what a batch changed.

A route is timed where the application begins and ends its answer: a browser, or what stands for one here, is not the server.

The newest batches are also asked by `report.batches` as the view was while each row had a time of its own. Besides: the bytes of
the static files, and what the plugin costs a process that is no API server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy import Engine, text

from bench import corrections
from bench.database import Server, server
from bench.measure import Contestant, Figure, Stopwatch, interleaved
from bench.results import Results
from txbatch import places
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.queries import statements
from txbatch.postgres.reading.ledger_reader import LedgerReader

TXIDS, KEYS, WINDOW, PROCESSES = 100_000, 1_000, 60, 5
MIDDLE, DATABASE, TOPOLOGY, BY_TIME = TXIDS // 2, "paged", "bench", "hours"
# Each batch has two of a thousand keys.
SPREAD = f"SELECT 'key' || (t + i * 7) % {KEYS}, t FROM generate_series(1, {TXIDS}) t, generate_series(0, 1) i"
# A partition that each batch has read, and a topology of as many hours.
MORE = f"""
INSERT INTO txbatch.consumed (topology, stream, partition, txid, metadata)
VALUES ('{TOPOLOGY}', 'keys', 'a', {TXIDS}, '{{"start": 0, "end": 10}}');
INSERT INTO txbatch.partition (topology, stream, partition, txid, status, metadata, records, fingerprint)
SELECT '{TOPOLOGY}', 'keys', 'a', n, 'read', '{{"start": 0, "end": 10}}', 0, 0 FROM generate_series(1, {TXIDS}) n;
INSERT INTO txbatch.batch_key (topology, key, ordinal, txid, dag_id, run_id)
SELECT '{TOPOLOGY}', 'run:' || n, 1, n, '{TOPOLOGY}', 'run ' || n FROM generate_series(1, {TXIDS}) n;
INSERT INTO txbatch.topology (topology, job, by_interval, source, streams, zone)
VALUES ('{BY_TIME}', 'jobs/hours.py', true, '{{}}', '{{"in": {{"key": "string"}}}}', 'UTC');
INSERT INTO txbatch.batch (topology, txid, position, status, key, metadata, fence, token, lease_until, committed_at,
                           committed_fence, records, records_to, keys, data_interval)
SELECT '{BY_TIME}', n, n, 'committed', 'run:' || n, '{{"streams": {{}}}}', 1, n, now(), now(), 1, 10, 10 * n,
       '{{"{BY_TIME}": 1}}', tstzrange(timestamptz '2013-01-01Z' + n * interval '1 h',
                                       timestamptz '2013-01-01Z' + (n + 1) * interval '1 h')
  FROM generate_series(1, {TXIDS}) n;
INSERT INTO txbatch.attempt (topology, txid, attempt_id, token, status, run, code, manifest, finished_at)
SELECT '{BY_TIME}', n, 1, '{BY_TIME} ' || n, 'committed', 'bench', '0', '{{}}', now() FROM generate_series(1, {TXIDS}) n;
INSERT INTO txbatch.counted (topology, starts, ends)
SELECT topology, min(lower(data_interval)), max(upper(data_interval)) FROM txbatch.batch WHERE topology = '{BY_TIME}' GROUP BY 1
"""
# The view of f211290 differs in this: a time that is not the same for all rows of a statement, so that all rows are made.
NOW, THEN = "statement_timestamp()", "clock_timestamp()"
AS_IT_WAS = "public.batches_as_they_were"
NEWEST = f"SELECT * FROM {{}} WHERE topology = '{TOPOLOGY}' ORDER BY txid DESC LIMIT {WINDOW}"
OF = f"/api/topologies/{TOPOLOGY}"
ROUTES = {
    "list": "/api/topologies",
    "turn": f"{OF}/turn?limit={WINDOW}",
    "overview": f"{OF}/overview",
    "batch": f"{OF}/batches/{MIDDLE}",
    "partitions": f"{OF}/partitions?first={TXIDS - WINDOW}&last={TXIDS}",
    "intervals": f"/api/topologies/{BY_TIME}/intervals",
}
STATE = {
    "why": f"{OF}/states/counts/why?key=key7",
    "as-of": f"{OF}/states/counts/as-of?key=key7&txid={MIDDLE}",
    "changes": f"{OF}/batches/{MIDDLE}/changes",
}
BY_ROUTE = f"{OF}/batches?limit={WINDOW}"
# What a process of Airflow does with the plugin.
LOADED = """
import json, sys, time
sys.path.insert(0, {plugins!r})
import airflow.plugins_manager, airflow.listeners, logging, re, functools
began = time.perf_counter()
import txbatch_plugin
txbatch_plugin.TxbatchPlugin()
took = time.perf_counter() - began
print(json.dumps([took, "fastapi" in sys.modules]))
"""


def first(section: str, results: Results) -> None:
    """Each page's first question to its route, as a user who may read all, with connections and caches warm."""
    with server() as running:
        corrections.fill(running, DATABASE, TXIDS, SPREAD, 2)
        _fill_more(running)
        engine = connect(running.url_of(DATABASE))
        with _airflow_home(running), _asking(running.url_of(DATABASE)) as ask:
            contestants = _newest(running, engine, ask)
            contestants |= {name: partial(_asked, ask, path) for name, path in (ROUTES | STATE).items()}
            for contestant in contestants.values():
                contestant(Stopwatch())
            runs = interleaved(contestants) | _buffers(engine) | {"static": [Stopwatch(_static_bytes())]}
            runs |= interleaved({"plugin": _plugin}, PROCESSES)
        results.add(section, runs, FIGURES, txids=TXIDS, keys=KEYS)
        engine.dispose()


def _fill_more(running: Server) -> None:
    connection = running.connect(DATABASE)
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_viewdef('report.batches')")
        (made,) = cursor.fetchone() or ("",)
    connection.close()
    assert NOW in made
    view = f"CREATE VIEW {AS_IT_WAS} AS {made.replace(NOW, THEN)}"
    running.run(MORE, view, "VACUUM (FREEZE, ANALYZE)", "CHECKPOINT", database=DATABASE)


def _newest(running: Server, engine: Engine, ask: Callable[[str], tuple[Any, float]]) -> dict[str, Contestant]:
    """Return who asks for the newest batches: by the view in SQL, by the reader of the command line, and by a route."""
    reader = LedgerReader(engine)
    return {
        "as it was": partial(_selected, running, AS_IT_WAS),
        "view": partial(_selected, running, "report.batches"),
        "reader": partial(_read, reader),
        "route": partial(_asked, ask, BY_ROUTE),
    }


def _selected(running: Server, view: str, watch: Stopwatch) -> None:
    connection = running.connect(DATABASE)
    with connection, connection.cursor() as cursor:
        cursor.execute(NEWEST.format("report.batches"))  # the catalog, which a session reads once
        with watch.timed():
            cursor.execute(NEWEST.format(view))
            assert len(cursor.fetchall()) == WINDOW
    connection.close()


def _read(reader: LedgerReader, watch: Stopwatch) -> None:
    with watch.timed():
        assert len(reader.batches(TOPOLOGY, WINDOW)) == WINDOW


def _asked(ask: Callable[[str], tuple[Any, float]], path: str, watch: Stopwatch) -> None:
    answer, seconds = ask(path)
    watch.seconds += seconds
    assert answer.status_code == 200, (path, answer.text)


def _buffers(engine: Engine) -> dict[str, list[Stopwatch]]:
    """Return how many buffers the newest batches touch."""
    page = {"topology": TOPOLOGY, "before": None, "status": None, "txids": None, "limit": WINDOW + 1}
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "as it was": (NEWEST.format(AS_IT_WAS), {}),
        "view": (NEWEST.format("report.batches"), {}),
        "reader": (statements()["batches"], {"topology": TOPOLOGY, "limit": WINDOW}),
        "route": (statements()["page_batches"], page),
    }
    return {f"{name}, buffers": [Stopwatch(_touched(engine, *of))] for name, of in asked.items()}


def _touched(engine: Engine, statement: str, given: dict[str, Any]) -> float:
    with engine.connect() as connection:
        (plan,) = connection.execute(text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"), given).scalar_one()
    return float(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


@contextmanager
def _airflow_home(running: Server) -> Iterator[None]:
    """Context manager. An Airflow without a past, for its modules alone."""
    with patch.dict(
        os.environ, {"AIRFLOW_HOME": str(running.home / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    ):
        yield


@contextmanager
def _asking(url: str) -> Iterator[Callable[[str], tuple[Any, float]]]:
    """Context manager. The pages' application in this process, which answers in so many seconds; Airflow is not asked who may
    read.
    """
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.testclient import TestClient

    from txbatch.ui import airflow_auth
    from txbatch.ui.app import create_app

    app = create_app(database=lambda: (url, "the ledger of the bench"))
    app.dependency_overrides |= {airflow_auth.readable: _named, get_user: lambda: None}
    told: dict[str, Any] = {
        "dags": lambda _: {},
        "triggered_by": lambda *_: {},
        "may": lambda *_: True,
        "show_values": lambda: True,
    }
    timed = Timed(app)
    with patch.multiple(airflow_auth, **told), TestClient(timed) as client:
        yield lambda path: (client.get(path), timed.seconds)


@dataclass
class Timed:
    """An application, and how long its last answer took it."""

    app: Any
    seconds: float = 0.0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer, and keep the time."""
        began = time.perf_counter()
        await self.app(scope, receive, send)
        self.seconds = time.perf_counter() - began


def _named(dag_id: str) -> str:
    return dag_id


def _static_bytes() -> float:
    """Return the bytes of all static files together."""
    folder = Path(places.__file__).parent / "ui" / "static"
    return float(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()))


def _plugin(watch: Stopwatch) -> None:
    plugins = str(Path(places.__file__).parents[1])
    command = [sys.executable, "-c", LOADED.format(plugins=plugins)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    watch.seconds, fastapi = json.loads(done.stdout.splitlines()[-1])
    assert not fastapi, "a process that is no API server has imported FastAPI"


AMONG = f"among {TXIDS:,} txids"
FIGURES = [
    *(
        Figure(f"newest {WINDOW} batches {AMONG} by the {by} / by the view as it was", by, "as it was", 0.01)
        for by in ("view", "reader", "route")
    ),
    *(
        Figure(f"newest {WINDOW} batches {AMONG} by the {by}, buffers", f"{by}, buffers", None, 2_000, unit=1)
        for by in ("view", "reader", "route")
    ),
    *(Figure(f"first data of a page {AMONG}: {name}, ms", name, None, 100, 30) for name in ROUTES),
    Figure(f"why of one key by the pages {AMONG}, ms", "why", None, 100, 30),
    Figure(f"as-of of one key by the pages {AMONG}, ms", "as-of", None, 100, 30),
    Figure(f"what a batch changed by the pages {AMONG}, ms", "changes", None, 300, 100),
    Figure("a poll of an open page, ms", "turn", None, 30),
    Figure("static files of the pages, bytes", "static", None, 120_000, unit=1),
    Figure("the plugin in a process that is no API server, ms", "plugin", None, 5),
]
SECTIONS = {"pages": first}
