"""The job sales in memory, without Spark and PostgreSQL: killed in its commit, it counts each sale of the day once."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from txbatch import Interval
from txbatch.testing import submit_topology

JOB = Path(__file__).resolve().parents[1] / "jobs" / "sales.py"
DAY = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))


def test_each_sale_of_the_day_counts_once() -> None:
    sales = submit_topology(JOB)
    sales.spouts["sales"].feed((DAY.start, "Bergen", Decimal("5.00")), (DAY.end, "Oslo", Decimal("2.50")))
    sales.run(interval=DAY, dies_at="commit.before_commit")
    sales.run(interval=DAY)
    assert [(row["shop"], row["sales"], row["turnover"]) for row in sales.rows("sales")] == [("Bergen", 1, 5)]
