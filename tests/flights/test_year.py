"""The flights of 2013, its days in shuffled order through one Spark session, every tenth killed (R5, R10, R18).

63 are emitted many by one job. `make test-all` so emits all 365, and 73 of them one by one: FLIGHTS_DAYS, all in `make soak`.

Every number of every day and key is compared with pandas, which reads the CSV file of the package. Spark reads the same
flights from Parquet, sorted by time: of a CSV file it would read the whole year for each day.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from multiprocessing.connection import Client
from pathlib import Path
from threading import Thread

import pandas as pd
import pytest
from bench.flights_job import parquet_job
from flights.year_numbers import NEW_YORK, YEAR, expected, per_day, per_key
from sizes import some_of
from sqlalchemy import Engine

from txbatch import settings
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.launch.job_file import Job, load_job
from txbatch.launch.submission import SparkSubmit, submission
from txbatch.local.flights import FLIGHTS

HERE, ROOT, SEED = Path(__file__).parent, settings.project_root(), 2013
# By this seed each of the tasks is killed, in a few days as well.
KILLS = 2022
# The 63rd of those in shuffled order has 25 hours.
DAYS, ONE_BY_ONE = some_of(63, 365), some_of(73, 73, "FLIGHTS_DAYS")
# To write and compile Java for each of 365 days takes longer than to read it; all other tests let Spark do so.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.fixture
def job(year: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """jobs/flights.py as it is, but for the format."""
    monkeypatch.setenv("FLIGHTS_FOLDER", str(tmp_path / "source"))
    return load_job(str(parquet_job(year, tmp_path)))


@pytest.fixture
def folder(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What both processes are told: the days in shuffled order, the database, the staging area."""
    (tmp_path / "killed").mkdir()
    days = [date(2013, 1, 1) + timedelta(number) for number in range(YEAR)]
    random.Random(SEED).shuffle(days)
    (tmp_path / "days").write_text("".join(f"{midnight(day)}/{midnight(day + timedelta(1))}\n" for day in days))
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setenv("TXBATCH_STAGING", (tmp_path / "staging").as_uri())
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "plugins"))
    return tmp_path


def midnight(day: date) -> str:
    return pd.Timestamp(day, tz=NEW_YORK).isoformat()


@pytest.fixture
def spark(job: Job, folder: Path) -> Iterator[Thread]:
    """One spark-submit for the whole year."""
    home = folder / "home"
    home.mkdir()
    (home / "java").symlink_to(ROOT / ".txbatch" / "java")
    nothing = Assignment("flights", TransactionAttempt(1, 1), "token", {"streams": {}}, job.code)
    what = submission(job, nothing, "unused", home, local=True)
    arguments = (str(job.path), str(folder / "socket"))
    what = replace(
        what, application=str(HERE / "year_spark.py"), arguments=arguments, conf={**what.conf, **INTERPRETED}
    )
    session = Thread(target=SparkSubmit(what, "local[2]").run)
    session.start()
    yield session
    if session.is_alive():
        with Client(str(folder / "socket")) as steps:
            steps.send([])
    session.join()


@pytest.mark.rule("R2", "R5", "R10")
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("how", "number"), [("together", DAYS), pytest.param("one_by_one", ONE_BY_ONE, marks=pytest.mark.whole)]
)
def test_days_in_shuffled_order_with_every_tenth_killed(
    how: str,
    number: int,
    job: Job,
    folder: Path,
    spark: Thread,
    year: pd.DataFrame,
    engine: Engine,
    capsys: pytest.CaptureFixture[str],
) -> None:
    began = time.monotonic()
    days = (folder / "days").read_text().splitlines()[:number]
    (folder / "days").write_text("".join(f"{day}\n" for day in days))
    while not (folder / "socket").exists():
        assert spark.is_alive()
        time.sleep(0.05)
    steps = [sys.executable, str(HERE / "year_steps.py"), str(job.path), str(folder), str(KILLS), how]
    subprocess.run(steps, check=True)
    spark.join()
    attempts, jobs = ((folder / each).read_text().split() for each in ("attempts", "applications"))
    killed = Counter(each.name.split("-")[1] for each in (folder / "killed").iterdir())
    with capsys.disabled():
        told = ", ".join(f"{times} at {point}" for point, times in sorted(killed.items()))
        seconds = time.monotonic() - began
        print(f"\n{number} days, {len(attempts)} attempts by {len(jobs)} jobs, {seconds:.0f} s; killed: {told}")
    assert killed.total() >= number // 10
    assert {point.partition(".")[0] for point in killed} >= {"emit", "commit", "success"}
    assert len(set(jobs)) == 1, "one application"
    chosen = year[year["date"].isin({date.fromisoformat(day[:10]) for day in days})]
    assert len(chosen) == (FLIGHTS if number == YEAR else len(chosen))
    assert per_key(engine) == expected(chosen, ["carrier", "origin"])
    assert per_day(engine) == expected(chosen, ["date", "carrier", "origin"])
