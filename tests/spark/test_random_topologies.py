"""Topologies over the flights of 2013, drawn at random, batches and all: their reports are what pandas makes of the whole year.

`RANDOM_TOPOLOGIES=100` tries so many; a failure shows the job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pytest
from bench.flights_job import parquet_job
from in_this_process import InThisProcess
from pyspark.sql import SparkSession
from sizes import some_of
from sqlalchemy import Engine, text

from txbatch import settings
from txbatch.core.batch.transaction import Interval
from txbatch.launch.job_file import LAST_LINES, load_job
from txbatch.local.flights import FILE, ensure_flights
from txbatch.wiring import open_runner

DRAWN = some_of(1, 5, "RANDOM_TOPOLOGIES")
BEGIN, END = datetime(2013, 1, 1, tzinfo=UTC), datetime(2014, 1, 2, tzinfo=UTC)
JOB = """
from txbatch import *

FIELDS = (
    "month int, dep_time int, dep_delay int, arr_delay int, carrier string, flight int, tailnum string, origin string, "
    "dest string, distance int, time_hour timestamp"
)
topology = Topology("drawn")
flights = topology.new_stream("flights", IntervalSpout({source!r}, FIELDS, time="time_hour", format="parquet"))
kept = {kept}
banded = kept.each("distance div 500", "band int")
known = [("JFK", "New York"), ("LGA", "New York")]
cities = topology.new_static_state(StaticState("cities", known, "origin string, city string"))
looked_up = banded.state_query(cities, "origin", how={how!r})
looked_up.group_by({keys}).persistent_aggregate({state}("drawn"), {values})
"""
Frame = pd.DataFrame
FILTERS: dict[str, Callable[[Frame], Frame]] = {
    "distance > 800": lambda f: f[f.distance > 800],
    "dep_delay is not null": lambda f: f[f.dep_delay.notna()],
    "carrier in ('AA', 'UA', 'DL')": lambda f: f[f.carrier.isin(["AA", "UA", "DL"])],
    "dest < 'M' and month % 2 = 1": lambda f: f[(f.dest < "M") & (f.month % 2 == 1)],
    "tailnum is null or arr_delay < 0": lambda f: f[f.tailnum.isna() | (f.arr_delay < 0)],
}
KEYS = ["carrier", "origin", "dest", "month", "band", "city"]
STATES = ["OpaqueState", "TransactionalState"]
VALUES: dict[str, Callable[[Frame], Any]] = {
    "Count()": len,
    'Count("tailnum")': lambda g: g.tailnum.notna().sum(),
    'CountIf("dep_delay > 15")': lambda g: (g.dep_delay > 15).sum(),
    'Sum("distance")': lambda g: g.distance.sum(),
    """Sum("dep_delay", where="origin = 'JFK'")""": lambda g: some(g.dep_delay[g.origin == "JFK"], "sum"),
    'Avg("dep_delay")': lambda g: some(g.dep_delay, "mean"),
    'Min("dep_delay")': lambda g: some(g.dep_delay, "min"),
    'Max("arr_delay")': lambda g: some(g.arr_delay, "max"),
    'Variance("distance")': lambda g: g.distance.var() if len(g) > 1 else None,
    'CollectSet("origin", limit=5)': lambda g: sorted(g.origin.unique()),
    'ApproxCountDistinct("dest")': lambda g: g.dest.nunique(),
    'TopN(3, "distance")': lambda g: sorted(g.distance, reverse=True)[:3],
    'TopNBy(2, ("flight", "dep_delay"), by="dep_delay")': lambda g: top_rows(g),
    'Histogram("distance", [500, 1000])': lambda g: [
        (g.distance < 500).sum(),
        ((g.distance >= 500) & (g.distance < 1000)).sum(),
        (g.distance >= 1000).sum(),
    ],
    'MaxBy("flight", "distance")': lambda g: g.flight[g.distance == g.distance.max()].max(),
}


def some(values: pd.Series, how: str) -> Any:
    """An aggregate of what is not null; null of nothing."""
    left = values.dropna()
    return left.agg(how) if len(left) else None


def top_rows(group: Frame) -> list[dict[str, int]] | None:
    """The two flights that left latest, ties by the greater number; null of none."""
    latest = group.dropna(subset="dep_delay").sort_values(["dep_delay", "flight"], ascending=False).head(2)
    rows = zip(latest.flight, latest.dep_delay, strict=True)
    return [{"flight": int(flight), "dep_delay": int(delay)} for flight, delay in rows] or None


@dataclass(frozen=True)
class Drawn:
    """A topology, as a job and as what pandas does."""

    filters: list[str]
    keys: list[str]
    values: list[str]
    state: str

    @classmethod
    def by(cls, random: Random) -> Drawn:
        """Draw one: of two filters the stream is the merge of two."""
        filters = random.sample(sorted(FILTERS), random.randint(0, 2))
        keys, values = random.sample(KEYS, random.randint(1, 3)), random.sample(sorted(VALUES), random.randint(3, 6))
        return cls(filters, sorted(keys), values, random.choice(STATES))

    def job(self, source: Path) -> str:
        """The text of its job file."""
        kept = [f"flights.filter({each!r})" for each in self.filters] or ["flights"]
        return JOB.format(
            source=str(source),
            kept=kept[0] if len(kept) == 1 else f'topology.merge({", ".join(kept)}, name="kept")',
            how="inner" if "city" in self.keys else "left",
            keys=", ".join(map(repr, self.keys)),
            values=", ".join(f"value_{number}={value}" for number, value in enumerate(self.values)),
            state=self.state,
        )

    def by_pandas(self, flights: Frame) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """What the report must show."""
        kept = pd.concat([FILTERS[each](flights) for each in self.filters] or [flights])
        city = kept.origin.map({"JFK": "New York", "LGA": "New York"})
        groups = kept.assign(band=kept.distance // 500, city=city).dropna(subset=self.keys).groupby(self.keys)
        return {plain(key): tuple(plain(VALUES[each](group)) for each in self.values) for key, group in groups}


def plain(value: Any) -> Any:
    """Without numpy, and numbers to six digits behind the point."""
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value))
    if isinstance(value, dict | str) or value is None:
        return value
    return round(float(value), 6)


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Frame:
    folder = ensure_flights(tmp_path_factory.mktemp("package"))
    frame = pd.read_csv(folder / FILE, dtype={"tailnum": "string"})
    frame["time_hour"] = pd.to_datetime(frame["time_hour"])
    return frame


@pytest.fixture(scope="module")
def source(year: Frame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flights")
    parquet_job(year, folder)
    return folder / "source"


def batches(random: Random) -> list[Interval]:
    """The year in up to six pieces, in any order."""
    days = sorted(random.sample(range(1, 365), random.randint(1, 5)))
    cuts = [BEGIN, *(BEGIN + timedelta(day) for day in days), END]
    found = [Interval(start, end) for start, end in pairwise(cuts)]
    random.shuffle(found)
    return found


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("seed", range(DRAWN))
def test_a_random_topology_reports_what_pandas_makes_of_all_records(
    seed: int,
    spark: SparkSession,
    year: Frame,
    source: Path,
    postgres_url: str,
    engine: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = Random(seed)
    drawn, job = Drawn.by(random), tmp_path / "drawn.py"
    print(drawn.job(source))
    job.write_text(drawn.job(source) + LAST_LINES + "\n")
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(InThisProcess, "session", spark, raising=False)
    monkeypatch.setattr("txbatch.wiring.Application", InThisProcess)
    with open_runner(load_job(str(job)), settings.resolve()) as runner:
        intervals = batches(random)
        assert len(list(runner.run_each(intervals))) == len(intervals)
        assert len(list(runner.restate([random.randint(1, len(intervals))], "at random"))) == 1
    columns = ", ".join([*drawn.keys, *(f"value_{number}" for number in range(len(drawn.values)))])
    with engine.connect() as connection:
        rows = [tuple(map(plain, row)) for row in connection.execute(text(f"SELECT {columns} FROM report.drawn"))]
    width = len(drawn.keys)
    found = {row[:width]: row[width:] for row in rows}
    assert len(found) == len(rows) > 0
    assert found == drawn.by_pandas(year)
