"""The numbers of the year: as reports have them, by day and by key, and by pandas."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
from sqlalchemy import Engine, text

YEAR, NEW_YORK = 365, ZoneInfo("America/New_York")
REPORTED = "flights, departures, cancellations, dep_delay_total, round(dep_delay_mean, 9), dep_delay_max"


def per_key(engine: Engine) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """What people see, by carrier and airport."""
    return select(engine, 2, f"SELECT carrier, origin, {REPORTED} FROM report.flights")


def per_day(engine: Engine) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """What each day's batch contributed, by day, carrier and airport."""
    mean = REPORTED.replace("dep_delay_mean", "dep_delay_mean_sum::numeric / nullif(dep_delay_mean_count, 0)")
    local = "(interval_start AT TIME ZONE 'America/New_York')::date"
    batches = "report.batches b ON b.txid = c.position AND b.status = 'committed'"
    return select(engine, 3, f"SELECT {local}, carrier, origin, {mean} FROM contribution.flights c JOIN {batches}")


def select(engine: Engine, keys: int, statement: str) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Rows by their first columns."""
    with engine.connect() as connection:
        rows = [tuple(row) for row in connection.execute(text(statement))]
    assert len({row[:keys] for row in rows}) == len(rows)
    return {row[:keys]: row[keys:] for row in rows}


def expected(flights: pd.DataFrame, keys: list[str]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """The same by pandas."""
    found = {}
    for key, group in flights.groupby(keys):
        delays = [int(delay) for delay in group["dep_delay"].dropna()]
        departures = int(group["dep_time"].notna().sum())
        mean = round(Decimal(sum(delays)) / len(delays), 9) if delays else None
        delayed = (sum(delays), mean, max(delays)) if delays else (None, None, None)
        found[key] = (len(group), departures, len(group) - departures, *delayed)
    return found
