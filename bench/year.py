"""A year of flights, a batch a day: all days in one call, against one job by hand, and against `txbatch run` for each.

The flights are the package's CSV, and the same as Parquet sorted by time, in row groups of 2,000. Of Parquet some days are run
one by one, and 365 are computed from them: of CSV each would read the whole year.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Sequence
from datetime import date, timedelta
from functools import partial
from pathlib import Path

import pandas as pd

from bench.by_hand import submitted_as
from bench.database import Server, server
from bench.flights_job import parquet_job
from bench.measure import Contestant, Figure, Stopwatch, interleaved
from bench.results import Results
from bench.words import Command
from txbatch import settings
from txbatch.local.flights import FILE, FLIGHTS, ensure_flights

DAYS, ONE_BY_ONE = 365, 10
COMPUTED = f"{DAYS} days one by one, computed from {ONE_BY_ONE}"
FIRST = date(2013, 1, 1)
ZONE = "America/New_York"


def measure(section: str, results: Results) -> None:
    """`txbatch run` of the year, and one PySpark job by hand that is submitted as we do; then some days, each by a run."""
    with server() as running:
        job = prepare(running.home)
        places = {
            "parquet": (job, str(running.home / "source")),
            "csv": (settings.project_root() / "jobs" / "flights.py", str(running.home / "package" / "flights")),
        }
        contestants: dict[str, Contestant] = {}
        for form, (path, source) in places.items():
            contestants[f"txbatch run, {form}"] = partial(_ours, running, path, source)
            contestants[f"one job by hand, {form}"] = partial(_by_hand, running, path, form, source)
        runs = interleaved(contestants)
        runs |= _one_by_one(running, *places["parquet"])
    results.add(section, runs, FIGURES, computed=f"{DAYS} from {ONE_BY_ONE} real runs")


def _one_by_one(running: Server, job: Path, source: str) -> dict[str, list[Stopwatch]]:
    """Return how long the first days took, and what the year would take so."""
    os.environ["FLIGHTS_FOLDER"] = source
    each = [_run(running, job, day, day + timedelta(1), "days", ()) for day in map(day, range(ONE_BY_ONE))]
    mean = statistics.mean(watch.seconds for watch in each)
    print(f"    {ONE_BY_ONE} days one by one: {mean:.2f} s each; {DAYS}, computed: {DAYS * mean:.0f} s", flush=True)
    return {"a day": each, COMPUTED: [Stopwatch(DAYS * mean)]}


def prepare(home: Path) -> Path:
    """jobs/flights.py as it is, but for the format, with its source beside it."""
    os.environ["FLIGHTS_FOLDER"] = str(home / "source")
    frame = pd.read_csv(ensure_flights(home / "package") / FILE, dtype={"tailnum": "string"})
    frame["time_hour"] = pd.to_datetime(frame["time_hour"])
    return parquet_job(frame, home)


def _run(running: Server, job: Path, start: date, end: date, database: str, cron: Sequence[str]) -> Stopwatch:
    """`txbatch run` of an interval, in a database that is made when it is not there."""
    if start == FIRST:
        running.run(f"CREATE DATABASE {database}")
        txbatch(running, database, "migrate")
    return txbatch(running, database, "run", str(job), "--interval", midnight(start), midnight(end), *cron)


def txbatch(running: Server, database: str, *arguments: str) -> Stopwatch:
    """A command on a database, with the flights that were prepared, and how long it took."""
    where = {
        "TXBATCH_DATABASE_URL": running.url_of(database),
        "TXBATCH_STAGING": (running.home / "staging" / database).as_uri(),
    }
    command, watch = str(Path(sys.executable).with_name("txbatch")), Stopwatch()
    with watch.timed():
        Command([command, *arguments], {**os.environ, **where}).run()
    return watch


def counted_in_one_call(running: Server, job: Path, database: str, days: int = DAYS) -> Stopwatch:
    """`txbatch run` of the first so many days, a batch each, in a database of its own."""
    return _run(running, job, FIRST, day(days), database, ("--cron", "0 0 * * *", "--timezone", ZONE))


def check(running: Server, database: str, days: int = DAYS) -> None:
    """A batch of each of the first so many days is committed; every flight of them is counted, where they are the year."""
    connection = running.connect(database)
    with connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT sum(flights) FROM state.flights), "
            "(SELECT count(*) FROM report.batches WHERE status = 'committed')"
        )
        found = cursor.fetchone()
    connection.close()
    assert found is not None
    assert found[1] == days, found
    assert days < DAYS or found[0] == FLIGHTS, found


def day(number: int) -> date:
    return FIRST + timedelta(number)


def midnight(day: date) -> str:
    return pd.Timestamp(day, tz=ZONE).isoformat()


def _ours(running: Server, job: Path, source: str, watch: Stopwatch) -> None:
    os.environ["FLIGHTS_FOLDER"] = source
    running.run("DROP DATABASE IF EXISTS year WITH (FORCE)")
    took = counted_in_one_call(running, job, "year")
    watch.seconds, watch.cpu = took.seconds, took.cpu
    check(running, "year")


def _by_hand(running: Server, job: Path, form: str, source: str, watch: Stopwatch) -> None:
    running.run("DROP DATABASE IF EXISTS by_hand WITH (FORCE)", "CREATE DATABASE by_hand")
    command = submitted_as(job, "flights_by_day.py", form, source, told=running.told("by_hand"))
    with watch.timed():
        command.run()
    connection = running.connect("by_hand")
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT sum(flights) FROM flights")
        assert cursor.fetchone() == (FLIGHTS,)
    connection.close()


BESIDE = [
    Figure(
        f"{DAYS} days, txbatch run / one job by hand, {form}",
        f"txbatch run, {form}",
        f"one job by hand, {form}",
        *asked,
    )
    for form, asked in {"parquet": (2, 1.5), "csv": (2.3, 1.8)}.items()
]
ONE_CALL = Figure(
    f"{DAYS} daily batches by one call / one by one (computed)", "txbatch run, parquet", COMPUTED, 0.01, 0.006
)
FIGURES = [*BESIDE, ONE_CALL]
SECTIONS = {"365 daily batches": measure}
