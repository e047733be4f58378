"""The flights of 2013 from a topic of Kafka, in batches of any cut: the numbers of 365 days, to the digit those of pandas."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from flights.year_numbers import REPORTED, expected, per_key, select
from sqlalchemy import Engine

from txbatch import settings
from txbatch.local.flights import FILE, FLIGHTS, ensure_flights
from txbatch.local.kafka_mock import Cluster, cluster

ROOT = settings.project_root()
COMMAND = "from txbatch.cli.main import main; main(prog_name='txbatch')"
# The mock keeps 100,000 messages of a partition.
PARTITIONS = 16
JOB = """
from txbatch import *
topology = Topology("flights")
flights = topology.new_stream(
    "flights",
    KafkaSpout(
        "flights", "carrier string, origin string, dep_time int, dep_delay int, time_hour timestamp", source="events",
        format="json", max_records=2_500,
    ),
).each("if(dep_time is null, true, null)", "cancelled boolean")
counted = dict(
    flights=Count(), departures=Count("dep_time"), cancellations=Count("cancelled"), dep_delay_total=Sum("dep_delay"),
    dep_delay_mean=Avg("dep_delay"), dep_delay_max=Max("dep_delay"),
)
flights.group_by("carrier", "origin").persistent_aggregate(OpaqueState("flights"), **counted)
days = flights.each("cast(from_utc_timestamp(time_hour, 'America/New_York') as date)", "day date")
days.group_by("day", "carrier", "origin").persistent_aggregate(OpaqueState("days"), **counted)
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""
pytestmark = [pytest.mark.whole, pytest.mark.timeout(1500)]


@pytest.fixture
def topic(tmp_path: Path) -> Iterator[Cluster]:
    """The topic, to which each flight was sent as an object of JSON."""
    frame = pd.read_csv(ensure_flights(tmp_path) / FILE)[["carrier", "origin", "dep_time", "dep_delay", "time_hour"]]
    values = frame.astype(object).where(frame.notna(), None).to_dict("records")
    assert len(values) == FLIGHTS
    for value in values:
        value |= {name: None if value[name] is None else int(value[name]) for name in ("dep_time", "dep_delay")}
    with cluster() as made:
        made.create("flights", PARTITIONS)
        for number in range(PARTITIONS):
            made.produce("flights", number, [json.dumps(each) for each in values[number::PARTITIONS]])
        yield made


def test_the_days_of_a_topic_are_those_of_pandas(
    topic: Cluster, year: pd.DataFrame, engine: Engine, postgres_url: str, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "java").symlink_to(ROOT / ".txbatch" / "java")
    (tmp_path / "flights.py").write_text(JOB)
    told = {"TXBATCH_HOME": str(tmp_path / "home"), "TXBATCH_DATABASE_URL": postgres_url}
    environment = {**os.environ, **told, "PYTHONPATH": str(ROOT / "plugins"), "TXBATCH_SOURCE_EVENTS": topic.brokers}
    asked = [sys.executable, "-P", "-c", COMMAND, "run", str(tmp_path / "flights.py"), "--until-idle"]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert per_key(engine) == expected(year, ["carrier", "origin"])
    by_day = select(engine, 3, f"SELECT day, carrier, origin, {REPORTED} FROM report.days")
    assert by_day == expected(year, ["date", "carrier", "origin"])
