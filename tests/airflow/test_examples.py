"""The examples that no other test here runs as DAGs, each once; as jobs tests/spark/test_example_jobs.py runs them.

Reach, hourly and sessions by a trigger, busy_hours by what hourly has committed, orders by its schedule.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from airflow_support import Stack
from support import until

pytestmark = [pytest.mark.whole, pytest.mark.timeout(600)]


def write_reach(folder: Path) -> None:
    (folder / "follows").mkdir(parents=True)
    (folder / "follows" / "all.csv").write_text("ann,cid\nann,dan\nbob,dan\n")
    (folder / "shares").mkdir()
    (folder / "shares" / "monday.txt").write_text("x ann\nx bob\ny nobody\n")


def write_orders(folder: Path) -> None:
    """The same orders on each of three days, of which the schedule takes the last that is over."""
    tables = {"orders": ["order_id,shop,ordered_at"], "lines": ["order_id,item,quantity,price,sold_at"]}
    for number in range(3):
        at = (datetime.now(UTC) - timedelta(days=number)).strftime("%Y-%m-%dT09:00:00Z")
        tables["orders"] += [f"{number},Soho,{at}"]
        tables["lines"] += [f"{number},nut,3,1.50,{at}", f"{number + 90},cog,1,1.50,{at}", f"{number},nut,3,-,{at}"]
    for name, lines in (*tables.items(), ("shops", ["Soho,London"])):
        (folder / name).mkdir(parents=True)
        (folder / name / "all.csv").write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="module")
def started(stack: Stack, examples_folder: Path) -> Stack:
    write_reach(examples_folder / "reach")
    write_orders(examples_folder / "orders")
    for dag_id in ("reach", "busy_hours", "hourly", "sessions", "orders"):
        stack.api.unpause(dag_id)
    for dag_id in ("reach", "hourly", "sessions"):
        stack.api.trigger(dag_id, "one")
    return stack


def test_reach_counts_followers(started: Stack) -> None:
    assert started.end("reach", "one")[0] == "success"
    reached = started.sql("SELECT link, follower, times FROM report.reached ORDER BY follower")
    assert reached == [("x", "cid", 1), ("x", "dan", 2)]


def test_hourly_counts_the_first_views(started: Stack) -> None:
    assert started.end("hourly", "one")[0] == "success"
    assert started.sql("SELECT DISTINCT window_end - window_start FROM report.hourly") == [(timedelta(hours=1),)]
    assert (
        started.sql("SELECT sum(views) FROM report.hourly")
        == started.sql("SELECT sum(views) FROM report.daily")
        == [(200,)]
    )


def test_busy_hours_gets_each_closed_hour_once(started: Stack) -> None:
    run = until(lambda: started.api.dag_runs("busy_hours"), "busy_hours does not run")[0]
    assert started.end("busy_hours", run["dag_run_id"])[0] == "success"
    of_hour = "window_start, window_end, page, views, late, closed_by FROM report"
    closed = started.sql(f"SELECT {of_hour}.closed_hourly(0, 1) ORDER BY 1, 3")
    assert closed
    assert started.sql(f"SELECT {of_hour}.closed_hours ORDER BY 1, 3") == closed
    assert started.sql("SELECT sum(hours), sum(views) FROM report.busy_hours") == [
        (len(closed), sum(row[3] for row in closed))
    ]


def test_sessions_closes_the_visits_that_are_over(started: Stack) -> None:
    assert started.end("sessions", "one")[0] == "success"
    assert started.sql("SELECT sum(views) FROM report.sessions") == [(200,)]
    closed_to, over = (
        "(SELECT closed_to FROM report.batches WHERE topology = 'sessions')",
        "session_end + interval '30 minutes'",
    )
    closed = started.sql(
        'SELECT "user", session_start, views, closed_by FROM report.closed_sessions(0, 1) ORDER BY 1, 2'
    )
    assert closed
    assert closed == started.sql(
        f'SELECT "user", session_start, views, 1 FROM report.sessions WHERE {over} < {closed_to} ORDER BY 1, 2'
    )
    assert started.sql(f"SELECT 1 FROM report.sessions WHERE {over} >= {closed_to} LIMIT 1") == [(1,)]


def test_orders_counts_the_day_that_is_over(started: Stack) -> None:
    run = until(lambda: started.api.dag_runs("orders"), "orders does not run")[0]
    assert started.end("orders", run["dag_run_id"])[0] == "success"
    turnover = started.sql("SELECT place, lines, amount FROM report.turnover ORDER BY place")
    assert turnover == [("London", 1, Decimal("4.50")), ("unknown", 1, Decimal("1.50"))]
    kept = started.sql("SELECT item, shop, place FROM report.order_lines ORDER BY item")
    assert kept == [("cog", None, "unknown"), ("nut", "Soho", "London")]
    bad = started.sql("SELECT operation, data::json ->> 'price' FROM report.orders_quarantine")
    assert bad == [("1. map parsed", "-")]
