"""The flights in a real Airflow: the year by one run that catches up, days of it by a backfill; and what an idle one costs.

The flights are Parquet sorted by time, as in `bench.year`. Each Airflow has a home and databases of its own. A backfill is of
BENCH_BACKFILL_DAYS days, 365 are the year; without coalescing it is of BENCH_ALONE_DAYS. They are compared by the day.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

from bench.database import Server, server
from bench.measure import Figure, Stopwatch
from bench.results import Results
from bench.year import DAYS, FIRST, ZONE, check, counted_in_one_call, day, prepare, txbatch
from txbatch import settings
from txbatch.local.airflow import LocalAirflow
from txbatch.local.airflow_api import FINAL_RUN_STATES, AirflowApi, wait

BACKFILLED, ALONE = int(os.environ.get("BENCH_BACKFILL_DAYS", "80")), int(os.environ.get("BENCH_ALONE_DAYS", "24"))
IDLE_SECONDS, SETTLED_SECONDS = 120, 90  # its DAG processor parses all files first
HOUR = 3600.0


def year(section: str, results: Results) -> None:
    """`txbatch run`, a run that catches up, and backfills of some days, coalesced and not: once each."""
    with server() as running:
        job = prepare(running.home)
        runs = {
            "txbatch run": [counted_in_one_call(running, job, "year")],
            "one run": [_timed(running, job, "one_run", _catch_up)],
            "a day of a backfill": [_day_of(running, job, "backfill", BACKFILLED, coalesce=True)],
            "a day, not coalesced": [_day_of(running, job, "alone", ALONE, coalesce=False)],
        }
    results.add(section, runs, YEAR, days={"backfill": BACKFILLED, "not coalesced": ALONE})


def idle(section: str, results: Results) -> None:
    """What all processes of an Airflow take while nothing is to be done: with our DAGs, and without any, at the same time."""
    with server() as running:
        none = running.home / "no_dags"
        none.mkdir()
        ours = settings.project_root() / "dags"
        with _idle(running, "without", none) as without, _idle(running, "with_ours", ours) as with_ours:
            airflows = {"without DAGs": without, "with our DAGs": with_ours}
            time.sleep(SETTLED_SECONDS)
            before = {name: _cpu(airflow) for name, airflow in airflows.items()}
            time.sleep(IDLE_SECONDS)
            runs = {name: [Stopwatch(_cpu(airflow) - before[name])] for name, airflow in airflows.items()}
    print("    " + ", ".join(f"{name} {found[0].seconds:.1f} s of CPU" for name, found in runs.items()), flush=True)
    results.add(section, runs, IDLE, of_seconds=IDLE_SECONDS)


class _Api(AirflowApi):
    """With what the product itself does not ask for."""

    def create_backfill(self, dag_id: str, from_date: datetime, to_date: datetime, max_active_runs: int) -> None:
        """Start a backfill, both dates included."""
        dates = {"from_date": from_date.isoformat(), "to_date": to_date.isoformat()}
        self._send("POST", "backfills", {"dag_id": dag_id, **dates, "max_active_runs": max_active_runs})

    def dag_runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return all runs, oldest first."""
        return self._pages(f"dags/{dag_id}/dagRuns", "dag_runs", order_by="id")


def _day_of(running: Server, job: Path, name: str, days: int, *, coalesce: bool) -> Stopwatch:
    """Return what a backfill of so many days takes for each."""
    watch = _timed(running, job, name, partial(_backfill, days), coalesce=coalesce)
    return Stopwatch(watch.seconds / days, watch.cpu / days)


def _timed(running: Server, job: Path, name: str, go: Callable[[_Api], int], *, coalesce: bool = True) -> Stopwatch:
    """Time in an Airflow that has the one DAG and an empty ledger until all days that `go` returns are committed."""
    project, watch = running.home / name, Stopwatch()
    for kind, text in (("dags", _dag(coalesce=coalesce)), ("jobs", job.read_text())):
        (project / kind).mkdir(parents=True)
        (project / kind / "flights.py").write_text(text)
    running.run(f"CREATE DATABASE {name}")
    txbatch(running, name, "migrate")
    with _airflow(running, name, project / "dags") as airflow, _api(airflow) as api:
        api.wait_for_dag("flights", parsed_after=airflow.started_at)
        with watch.timed():
            days = go(api)
        watch.cpu = _cpu(airflow)
    check(running, name, days)
    print(f"    {name}: {watch.seconds:.0f} s, {watch.cpu:.0f} s of CPU without PostgreSQL", flush=True)
    return watch


def _dag(*, coalesce: bool) -> str:
    """dags/flights.py as it is, or with runs that emit each for itself."""
    written, shared = (settings.project_root() / "dags" / "flights.py").read_text(), "coalesce=True"
    if shared not in written:
        raise RuntimeError(f"dags/flights.py does not coalesce as it did: {shared} is not in it")
    return written.replace(shared, f"coalesce={coalesce}")


@contextmanager
def _airflow(running: Server, name: str, dags: Path) -> Iterator[LocalAirflow]:
    """Context manager. Yield an Airflow with a home and a database of its own, whose ledger is the database of that name."""
    home, metadata = running.home / f"home_{name}", f"airflow_{name}"
    home.mkdir()
    (home / "java").symlink_to(settings.home() / "java")
    running.run(f"CREATE DATABASE {metadata}")
    environment = {"TXBATCH_HOME": str(home), "TXBATCH_DATABASE_URL": running.url_of(name)}
    plugins, url = settings.project_root() / "plugins", running.url_of(metadata)
    with LocalAirflow(home, dags, plugins, database_url=url, environment=environment, unpaused=True) as airflow:
        yield airflow


def _api(airflow: LocalAirflow) -> _Api:
    return _Api(airflow.url, airflow.username, airflow.password_file)


def _cpu(airflow: LocalAirflow) -> float:
    """Seconds of CPU of its processes, and of those of their children that have ended."""
    total = 0.0
    for process in airflow.processes():
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def _catch_up(api: _Api) -> int:
    """One run for the whole year."""
    run_id = api.trigger("flights", conf={"catch_up": f"{FIRST}/{day(DAYS)}"})
    assert api.wait_for_run("flights", run_id, timeout=HOUR)["state"] == "success"
    return DAYS


def _backfill(days: int, api: _Api) -> int:
    """A run for each day, eight at once."""
    first, last = (pd.Timestamp(day(number), tz=ZONE).to_pydatetime() for number in (0, days - 1))
    api.create_backfill("flights", first, last, max_active_runs=8)

    def all_ended() -> dict[str, Any] | None:
        states = [run["state"] for run in api.dag_runs("flights")]
        return {"states": states} if sum(state in FINAL_RUN_STATES for state in states) == days else None

    assert set(wait(all_ended, HOUR, lambda: "the backfill goes on")["states"]) == {"success"}
    return days


@contextmanager
def _idle(running: Server, name: str, dags: Path) -> Iterator[LocalAirflow]:
    """Context manager. Yield an Airflow that has nothing to do but to look after these DAGs."""
    running.run(f"CREATE DATABASE {name}")
    txbatch(running, name, "migrate")
    with _airflow(running, name, dags) as airflow:
        yield airflow


YEAR = [
    Figure(f"{DAYS} days, one run in Airflow / txbatch run", "one run", "txbatch run", 1.5, 1.2),
    Figure("a day of a backfill in Airflow / not coalesced", "a day of a backfill", "a day, not coalesced", 0.25, 0.2),
]
IDLE = [Figure("an idle Airflow's CPU, with our DAGs / without any", "with our DAGs", "without DAGs", 1.1, 1.05)]
SECTIONS = {"a year in Airflow": year, "an idle Airflow": idle}
