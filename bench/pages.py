"""What a page asks first, in the server, among 100,000 txids; why and as-of of one key; what a batch changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import Connection

from bench import corrections
from bench.database import server
from bench.measure import Contestant, Figure, Stopwatch, interleaved
from bench.results import Results
from txbatch.ui import reading
from txbatch.ui.payloads import Dags
from txbatch.ui.reader import Reader
from txbatch.ui.values import StatePages

TXIDS, KEYS, WINDOW = 100_000, 1_000, 60
MIDDLE, DATABASE, TOPOLOGY, STATE = TXIDS // 2, "paged", "bench", "counts"
# Each batch has two of a thousand keys.
SPREAD = f"SELECT 'key' || (t + i * 7) % {KEYS}, t FROM generate_series(1, {TXIDS}) t, generate_series(0, 1) i"
# What Airflow is asked for beside the ledger.
TOLD: dict[str, Any] = {
    "paused": None,
    "may_trigger": False,
    "show_values": True,
    "dags": Dags(None, None, None),
}
FIRST: dict[str, Callable[[Connection], object]] = {
    "list": lambda connection: reading.topologies(connection, reading.names(connection)),
    "turn": lambda connection: (
        reading.one(connection, TOPOLOGY, TOLD),
        reading.batches(connection, TOPOLOGY, None, WINDOW, None, failed=False),
    ),
    "overview": lambda connection: reading.overview(connection, TOPOLOGY),
    "batch": lambda connection: reading.detail(connection, TOPOLOGY, MIDDLE),
    "partitions": lambda connection: reading.partitions(connection, TOPOLOGY, (1, WINDOW), ("", ""), ""),
}
FIGURES = [
    *(Figure(f"first data of a page, 100,000 txids: {name}, ms", name, None, 100, 30) for name in FIRST),
    Figure("why of one key by the pages, 100,000 txids, ms", "why", None, 100, 30),
    Figure("as-of of one key by the pages, 100,000 txids, ms", "as-of", None, 100, 30),
    Figure("what a batch changed by the pages, 100,000 txids, ms", "changes", None, 300, 100),
]


def first(section: str, results: Results) -> None:
    """Each page's first question, as a route asks it, with the connection and the caches warm."""
    with server() as running:
        corrections.fill(running, DATABASE, TXIDS, SPREAD, 2)
        reader = Reader(lambda: (running.url_of(DATABASE), "the ledger of the bench"))
        pages = StatePages(reader.engine, TOPOLOGY)
        contestants: dict[str, Contestant] = {name: partial(_page, reader, ask) for name, ask in FIRST.items()}
        contestants |= {
            "why": partial(_asked, lambda: pages.explained(STATE, ["key7"])),
            "as-of": partial(_asked, lambda: pages.then(STATE, MIDDLE, ["key7"], corrected=False)),
            "changes": partial(_asked, lambda: pages.changed(STATE, MIDDLE - 1, MIDDLE, 50)),
        }
        for contestant in contestants.values():
            contestant(Stopwatch())
        results.add(section, interleaved(contestants), FIGURES, txids=TXIDS, keys=KEYS)
        reader.engine.dispose()


def _page(reader: Reader, ask: Callable[[Connection], object], watch: Stopwatch) -> None:
    with watch.timed(), reader.snapshot() as connection:
        ask(connection)


def _asked(ask: Callable[[], object], watch: Stopwatch) -> None:
    with watch.timed():
        ask()


SECTIONS = {"pages": first}
