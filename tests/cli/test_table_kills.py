"""A table is counted once though `txbatch run` is killed at every step, beside writers; by SQL of its own the table agrees."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_support import MAIN
from kills import KILLED, POINTS, WAIT, Start, kill_python_workers, spark_processes
from source_tables import FIELDS, READ, TABLE, VARIABLE, Shop, role, shop_in
from sqlalchemy import Engine, text
from support import until

SPOUTS = {
    "added": f'PostgresSpout("shop.sale", {FIELDS!r}, source="shop", max_rows=4)',
    "by time": f'PostgresIntervalSpout("shop.sale", {FIELDS + ", sold_at timestamp"!r}, time="sold_at", source="shop")',
}
JOB = (
    WAIT
    + """
topology = Topology("turnover")
sales = topology.new_stream("sales", {spout}).filter(wait)
sales.group_by("shop").persistent_aggregate(OpaqueState("turnover"), sales=Count(), amount=Sum("amount"))
"""
    + MAIN
)
TIMED = TABLE.replace(
    "amount numeric(12,2)", "amount numeric(12,2), sold_at timestamptz NOT NULL DEFAULT '2026-01-01 12:00Z'"
)
BY_TIME = ("--interval", "2026-01-01T00:00Z", "2026-01-02T00:00Z")
pytestmark = [pytest.mark.whole, pytest.mark.timeout(600)]


@pytest.fixture
def shop(databases: Callable[[str], str]) -> Iterator[Shop]:
    with shop_in(databases("shop"), TIMED, before=range(5)) as made:
        yield made


def counted(engine: Engine) -> dict[str, tuple[int, object]]:
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT shop, sales, amount FROM report.turnover"))
        return {row.shop: (row.sales, row.amount) for row in rows}


def told_by_the_table(shop: Shop) -> dict[str, tuple[int, object]]:
    return {
        of: (number, amount)
        for of, number, amount in shop.ask("SELECT shop, count(*), sum(amount) FROM shop.sale GROUP BY 1")
    }


@pytest.mark.parametrize("kind", SPOUTS)
def test_killed_at_every_step_each_row_counts_once(
    start: Start,
    write_job: Callable[[str, str], str],
    engine: Engine,
    shop: Shop,
    tmp_path: Path,
    kind: str,
) -> None:
    """Rows commit between the kills: by time they are late, told, and counted by a restate."""
    job, given = write_job("turnover.py", JOB.replace("{spout}", SPOUTS[kind])), BY_TIME if kind == "by time" else ()
    armed = ",".join(f"{point}=kill:{tmp_path / point}" for point in POINTS)
    with role(shop.url, *READ) as url:
        environment = {VARIABLE: url}
        for number, point in enumerate(POINTS):
            killed = start("run", job, *given, **environment, TXBATCH_FAILPOINTS=armed)
            _, error = killed.communicate()
            assert killed.returncode == KILLED, error
            assert (tmp_path / point).exists()
            shop.insert(100 + number, 200 + number)
        finished = start("run", job, *given, *(["--until-idle"] if not given else []), **environment)
        _, error = finished.communicate()
        assert finished.returncode == 0, error
        if given:
            status = start("status", **environment).communicate()[0]
            assert "16 rows came late" in status
            restated = start("restate", job, "1", "--why", "late rows", **environment)
            _, error = restated.communicate()
            assert restated.returncode == 0, error
        assert counted(engine) == told_by_the_table(shop)


@pytest.mark.parametrize("which", ["a task of Spark", "Spark", "the server's sessions"])
def test_killed_while_the_rows_are_read(
    start: Start,
    write_job: Callable[[str, str], str],
    engine: Engine,
    shop: Shop,
    tmp_path: Path,
    which: str,
) -> None:
    """Each attempt takes the rows once, so that none of it is left: another attempt counts."""
    job, held = write_job("turnover.py", JOB.replace("{spout}", SPOUTS["added"])), tmp_path / "held"
    shop.insert(*range(100, 120))
    with role(shop.url, *READ) as url:
        running = start("run", job, "--until-idle", **{VARIABLE: url, "HELD": str(held)})
        until(held.exists, "no task reads", seconds=60, every=0.02)
        if which == "Spark":
            os.kill(spark_processes(running)["java"].pid, signal.SIGKILL)
        elif which == "a task of Spark":
            kill_python_workers(running)
        else:
            shop.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'txbatch source'")
        held.unlink()
        running.communicate()
        again = start("run", job, "--until-idle", **{VARIABLE: url})
        _, error = again.communicate()
        assert again.returncode == 0, error
        assert counted(engine) == told_by_the_table(shop)
        attempts = start("batches", "turnover", "--json").communicate()[0]
        assert all(row["status"] == "committed" for row in json.loads(attempts))
