"""The flights of 2013 from a table of PostgreSQL, by transactions and by time: 365 days, to the digit those of pandas."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import psycopg2
import pytest
from flights.year_numbers import NEW_YORK, REPORTED, YEAR, expected, per_day, per_key, select
from source_tables import VARIABLE, Shop, shop_in
from sqlalchemy import Engine, make_url

from txbatch import settings
from txbatch.local.flights import FILE, FLIGHTS, ensure_flights

ROOT = settings.project_root()
COMMAND = "from txbatch.cli.main import main; main(prog_name='txbatch')"
COLUMNS = {"carrier": "text", "tailnum": "text", "origin": "text", "dest": "text", "time_hour": "timestamptz NOT NULL"}
BY_TRANSACTION = 'PostgresSpout("shop.flight", fields={fields}, source="shop", max_rows=1)'
BY_TIME = 'PostgresIntervalSpout("shop.flight", fields={fields}, source="shop", time="time_hour")'
pytestmark = [pytest.mark.whole, pytest.mark.timeout(1500)]


@pytest.fixture
def table(databases: Callable[[str], str], year: pd.DataFrame, tmp_path: Path) -> Iterator[Shop]:
    """The table of flights, to which each day was added by a transaction of its own."""
    file = ensure_flights(tmp_path) / FILE
    header, *flights = file.read_text().splitlines(keepends=True)
    names = header.strip().split(",")
    columns = ", ".join(f"{name} {COLUMNS.get(name, 'int')}" for name in names)
    made = f"CREATE SCHEMA shop; CREATE TABLE shop.flight ({columns}); CREATE TABLE shop.sale (id bigint)"
    with shop_in(databases("shop"), made) as shop:
        shop.prepare("shop.flight")
        url = make_url(shop.url)
        connection = psycopg2.connect(
            host=url.query["host"], port=url.query["port"], user=url.username, dbname=url.database
        )
        copied = f"COPY shop.flight ({', '.join(names)}) FROM STDIN (FORMAT csv, NULL 'NA')"
        lines: dict[date, list[str]] = {}
        for day, line in zip(year["date"], flights, strict=True):
            lines.setdefault(day, []).append(line)
        for day in sorted(lines):
            part = tmp_path / "day.csv"
            part.write_text("".join(lines[day]))
            with connection, connection.cursor() as cursor, part.open() as opened:
                cursor.copy_expert(copied, opened)
        connection.close()
        assert (len(lines), sum(map(len, lines.values()))) == (YEAR, FLIGHTS)
        yield shop


def job_of(folder: Path, spout: str) -> str:
    """jobs/flights.py as it is, but for the spout."""
    text = (ROOT / "jobs" / "flights.py").read_text()
    found = re.search(r'IntervalSpout\(\n\s+FLIGHTS,\n\s+fields=((?:"[^"]*"\s*)+),.*?\n        \),', text, re.DOTALL)
    assert found
    text = text.replace(found[0], spout.replace("{fields}", f"({found[1]})") + ",")
    path = folder / "flights_of_a_table.py"
    path.write_text(text.replace("IntervalSpout, Max", "Max, PostgresIntervalSpout, PostgresSpout"))
    return str(path)


@pytest.mark.parametrize("spout", [BY_TRANSACTION, BY_TIME], ids=["by transactions", "by time"])
def test_the_days_of_a_table_are_those_of_pandas(
    spout: str, table: Shop, year: pd.DataFrame, engine: Engine, postgres_url: str, tmp_path: Path
) -> None:
    job = job_of(tmp_path, spout)
    days = ["--interval", "2013-01-01T05:00Z", "2014-01-01T05:00Z", "--cron", "0 0 * * *", "--timezone", str(NEW_YORK)]
    home = {"TXBATCH_HOME": str(tmp_path / "home"), "TXBATCH_DATABASE_URL": postgres_url, VARIABLE: table.url}
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "java").symlink_to(ROOT / ".txbatch" / "java")
    asked = [sys.executable, "-P", "-c", COMMAND, "run", job, *(days if spout is BY_TIME else ["--until-idle"])]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "plugins"), **home}
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert per_key(engine) == expected(year, ["carrier", "origin"])
    found = per_day(engine) if spout is BY_TIME else per_txid(engine)
    assert found == expected(year, ["date", "carrier", "origin"])


def per_txid(engine: Engine) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """What each batch contributed, by the day whose transaction it has."""
    mean = REPORTED.replace("dep_delay_mean", "dep_delay_mean_sum::numeric / nullif(dep_delay_mean_count, 0)")
    rows = select(engine, 3, f"SELECT position, carrier, origin, {mean} FROM contribution.flights")
    return {(date(2013, 1, 1) + timedelta(int(at) - 1), *key): row for (at, *key), row in rows.items()}
