"""What a page asks for costs the same at any length of a history: buffers are counted, not seconds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text
from ui.conftest import Site

from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.queries import statements

START = datetime(2013, 3, 1, tzinfo=UTC)
NONE = {"before": None, "status": None, "txids": None}
# The most buffers that each statement may touch among 20,000 batches.
ASKED: dict[str, tuple[str, dict[str, Any], int]] = {
    "the list": ("page_topologies", {"names": ["hours", "log"]}, 1_000),
    "all names": ("page_names", {}, 50),
    "one": ("page_topology", {"topology": "hours"}, 500),
    "one that is known": ("page_known", {"topology": "hours"}, 20),
    "states": ("page_states", {"topology": "log"}, 200),
    "streams": ("page_partitioned", {"topology": "log", "streams": ["in"]}, 50),
    "who fails": ("page_failing", {"topology": "log", "limit": 100}, 200),
    "who waits": ("page_waiting", {"topology": "log", "limit": 100}, 100),
    "overview": ("page_exceptions", {"topology": "log", "limit": 2_001}, 200),
    "newest": ("page_batches", {"topology": "log", "limit": 61, **NONE}, 2_000),
    "200 from the middle": ("page_batches", {"topology": "log", "limit": 201, **NONE, "before": 10_000}, 4_000),
    "aborted": ("page_batches", {"topology": "log", "limit": 61, **NONE, "status": "aborted"}, 2_000),
    "in flight": ("page_batches", {"topology": "log", "limit": 61, **NONE, "status": "planned"}, 100),
    "committed before": ("page_committed", {"topology": "log", "newest": 20_000, "before": START}, 500),
    "of a run": ("page_run_txids", {"topology": "log", "run_id": "run 777", "limit": 500}, 100),
    "a batch": ("page_batches", {"topology": "log", "limit": 1, **NONE, "txids": [777]}, 100),
    "its attempts": ("page_attempts", {"topology": "log", "txid": 777, "limit": 101}, 50),
    "its reads": ("page_reads", {"topology": "log", "txid": 777, "limit": 101}, 200),
    "its restates": ("page_restates", {"topology": "log", "position": 777, "limit": 100}, 100),
    "what gives it up": (
        *("page_given_up_by", {"topology": "log", "txid": 777, "reason": "x", "run": "run 777", "start": None}),
        200,
    ),
    "what it gives up": (
        *("page_gives_up", {"topology": "log", "txid": 777, "reason": "x", "run": "run 777", "start": None}),
        200,
    ),
    "what has its interval": (
        "page_interval_by",
        {"topology": "hours", "start": START, "end": START + timedelta(hours=1)},
        50,
    ),
    "its moments": ("page_moments", {"topology": "log", "txid": 777}, 50),
    "its proof": ("page_proof", {"topology": "log", "txid": 777}, 200),
    "all time": ("page_span", {"topology": "hours"}, 200),
    "a month of hours": (
        *("page_intervals", {"topology": "hours", "start": START, "end": START + timedelta(days=31), "limit": 1_001}),
        20_000,
    ),
    "its gaps": (
        "page_gaps",
        {"topology": "hours", "start": START, "end": START + timedelta(days=31), "limit": 1_001},
        500,
    ),
    "cells": (
        *(
            "page_cells",
            {"topology": "log", "streams": ["in"] * 2, "partitions": ["a", "b"], "first": 900, "last": 960},
        ),
        200,
    ),
}


def test_no_page_reads_a_whole_history(ledgers: Callable[[str], str]) -> None:
    engine = connect(ledgers("many"))
    touched = {}
    with engine.connect() as connection:
        for asked, (name, given, _) in ASKED.items():
            given = {"limit": 20_000, **given} if name == "page_cells" else given
            statement = text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statements()[name]}")
            (plan,) = connection.execute(statement, given).scalar_one()
            touched[asked] = int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])
    assert {asked: number for asked, number in touched.items() if number > ASKED[asked][2]} == {}, touched
    engine.dispose()


@pytest.mark.parametrize(
    "path", ["", "/overview", "/batches?limit=60", "/intervals", "/batches/777", "/runs/run%20777"]
)
@pytest.mark.parametrize("topology", ["hours", "log"])
def test_pages_of_many_batches_are_answered(
    site_of: Callable[[str], Site], ledgers: Callable[[str], str], topology: str, path: str
) -> None:
    answer = site_of(ledgers("many")).get(f"/api/topologies/{topology}{path}")
    assert answer.status_code == 200, answer.text
