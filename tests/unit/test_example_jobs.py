"""The example jobs in memory: their SQL said in Python, their sources fed. Spark runs them in tests/spark/."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from txbatch import Interval
from txbatch.testing import FeederBatchSpout, LocalTopology, submit_topology

JOBS = Path(__file__).parents[2] / "jobs"
DAY = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))


@pytest.mark.parametrize(
    "job", ["top_words", "reach", "orders", "hourly", "busy_hours", "sessions", "sales", "sales_by_day", "clicks"]
)
def test_an_example_is_short(job: str) -> None:
    assert len((JOBS / f"{job}.py").read_text().splitlines()) < 60


def test_top_words_are_those_that_occur_often() -> None:
    """One that falls below the least goes, and comes back; every word is in one count."""
    top = submit_topology(
        JOBS / "top_words.py",
        functions={
            "coalesce(count_after, 0) < 100": lambda r: (r["count_after"] or 0) < 100,
            "array(named_struct('n', count_before, 'words', -1L), named_struct('n', count_after, 'words', 1L))": lambda r: [
                (r["count_before"], -1),
                (r["count_after"], 1),
            ],
            "occurrences is not null": lambda r: r["occurrences"] is not None,
        },
    )
    changes = top.spouts["changes"]
    for fed in (
        [("the", None, 150, 1), ("a", None, 99, 1)],
        [("a", 99, 100, 2), ("the", 150, 20, 3)],
        [("the", 20, 150, 4)],
    ):
        changes.feed(*fed, partition="word_count")
        top.run()
    assert listed(top, "top_words", "word", "count") == {"a": 100, "the": 150}
    assert {n: words for n, words in listed(top, "word_ranks", "occurrences", "words").items() if words} == {
        100: 1,
        150: 1,
    }


def test_reach_has_each_follower_of_a_link_once() -> None:
    follows = [("ann", "cid"), ("ann", "dan"), ("bob", "dan"), ("bob", "eve")]
    reach = submit_topology(
        JOBS / "reach.py",
        functions={
            "split_part(line, ' ', 1)": lambda r: r["line"].split(" ")[0],
            "split_part(line, ' ', 2)": lambda r: r["line"].split(" ")[1],
        },
        static={"follows": follows},
    )
    shares = reach.spouts["shares"]
    shares.feed("x ann", "y bob", "x nobody", partition="monday.txt")
    reach.run()
    shares.feed("x bob", partition="tuesday.txt")
    reach.run()
    reached = [(row["link"], row["follower"], row["times"]) for row in reach.rows("reached")]
    assert reached == [("x", "cid", 1), ("x", "dan", 2), ("x", "eve", 1), ("y", "dan", 1), ("y", "eve", 1)]


def test_orders_are_joined_by_day_and_kept_but_for_a_bad_line() -> None:
    at = datetime(2026, 1, 1, 9, tzinfo=UTC)
    orders = submit_topology(
        JOBS / "orders.py",
        functions={
            "coalesce(city, 'unknown')": lambda r: r["city"] or "unknown",
            "cast(quantity * price as decimal(20,2))": lambda r: r["quantity"] * r["price"],
        },
        static={"shops": [("Soho", "London")]},
        spouts={
            "orders": FeederBatchSpout("order_id bigint, shop string, ordered_at timestamp", time="ordered_at"),
            "lines": FeederBatchSpout(
                "order_id bigint, item string, quantity string, price string, sold_at timestamp", time="sold_at"
            ),
        },
    )
    orders.spouts["orders"].feed((1, "Soho", at), (2, "Rome", at))
    orders.spouts["lines"].feed(
        (1, "nut", "3", "1.50", at),
        (1, "cog", "1", "2.00", at),
        (9, "nut", "1", "1.50", at),
        (1, "nut", "1", "1,50", at),
    )
    assert orders.run(interval=DAY) == (1,)
    assert listed(orders, "turnover", "place", "amount") == {"London": Decimal("6.50"), "unknown": Decimal("1.50")}
    assert [(row["item"], row["shop"]) for row in orders.rows("order_lines")] == [
        ("cog", "Soho"),
        ("nut", "Soho"),
        ("nut", None),
    ]
    (bad,) = orders.rows("orders_quarantine")
    assert (bad["stream"], bad["operation"]) == ("lines", "1. map parsed")
    assert json.loads(bad["data"])["price"] == "1,50"


def test_views_count_in_their_hour_however_late_they_arrive() -> None:
    hourly = submit_topology(
        JOBS / "hourly.py",
        functions={
            "arrived >= window_start + interval 1 hour": lambda r: (
                r["arrived"] >= r["window_start"] + timedelta(hours=1)
            )
        },
    )
    assert hourly.run() == (1, 2, 3, 4, 5, 6)
    hours, days = hourly.rows("hourly"), hourly.rows("daily")
    assert sum(row["views"] for row in hours) == sum(row["views"] for row in days) == 1_200
    assert {row["window_end"] - row["window_start"] for row in hours} == {timedelta(hours=1)}
    assert 0 < sum(row["late"] for row in hours) < 120
    assert all((row["newest"] >= row["window_end"]) is (row["late"] > 0) for row in hours)
    assert [(row["window_end"] - row["window_start"]) // timedelta(hours=1) for row in days] == [24, 24, 25, 24]


def test_busy_hours_has_each_closed_hour_once() -> None:
    busy = submit_topology(
        JOBS / "busy_hours.py",
        functions={"hour(window_start)": lambda r: r["window_start"].hour},
    )
    ten, next_day = DAY.start + timedelta(hours=10), DAY.start + timedelta(hours=34)
    for start, views, txid in ((ten, 7, 3), (next_day, 9, 8)):
        busy.spouts["closed"].feed((start, start + timedelta(hours=1), "home", views, 0, txid), partition="hourly")
        busy.run()
    assert busy.rows("busy_hours") == [{"hour": 10, "page": "home", "hours": 2, "views": 16, "most": 9}]
    assert [(row["window_start"], row["closed_by"]) for row in busy.rows("closed_hours")] == [(ten, 3), (next_day, 8)]


def test_visits_are_the_same_whatever_the_batches() -> None:
    found = []
    for size in (50, 400):
        sessions = submit_topology(JOBS / "sessions.py", functions={"page = 'paid'": lambda r: r["page"] == "paid"})
        sessions.topology.streams["views"].spout.max_batch_size = size  # type: ignore[attr-defined]
        sessions.run()
        found.append(sessions.rows("sessions"))
    assert found[0] == found[1]
    assert len(found[0]) > 200
    assert all(row["session_start"] <= row["session_end"] <= row["newest"] for row in found[0])


def listed(of: LocalTopology, state: str, key: str, value: str) -> dict[Any, Any]:
    return {row[key]: row[value] for row in of.rows(state)}
