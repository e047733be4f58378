"""The days of the flights DAG, and what the example DAG files cost to parse. Without Spark and without a database."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from txbatch import settings
from txbatch.cli.cron import split_by_cron
from txbatch.core.batch.transaction import Interval
from txbatch.core.errors import DefinitionError
from txbatch.launch.job_file import check_dag_files

ROOT = settings.project_root()
NEW_YORK = ZoneInfo("America/New_York")
# What Airflow's processes have imported before they read a DAG file comes first.
PROGRAM = """
import json, runpy, sys
from pathlib import Path
import airflow.sdk, airflow.providers.apache.spark.operators.spark_submit, airflow.triggers.base
from airflow.serialization.serialized_objects import DagSerialization
import pendulum
from airflow.timetables.base import TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable

before, dags = set(sys.modules), {}
for file in sorted(Path(sys.argv[1]).glob("*.py")):
    dags[file.stem] = runpy.run_path(str(file)).get("dag")
brought = sorted({name.partition(".")[0] for name in set(sys.modules) - before})
flights = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dags["flights"]))

def days(zone):
    first, last = (pendulum.datetime(2013, *each, tz=zone) for each in ((1, 1), (12, 31)))
    found = flights.iter_dagrun_infos_between(first, last)
    return [(run.data_interval.start.isoformat(), run.data_interval.end.isoformat()) for run in found]

CRONS = ["0 0 * * *", "@daily", "30 1 * * *", "30 2 * * *", "15 * * * *", "0 */2 * * *", "0 0 * * 1"]

def intervals(cron, zone):
    timetable = CronDataIntervalTimetable(cron, timezone=zone)
    made, last = [], None
    window = TimeRestriction(pendulum.datetime(2013, 1, 1), pendulum.datetime(2013, 12, 1), catchup=True)
    while run := timetable.next_dagrun_info(last_automated_data_interval=last, restriction=window):
        last = run.data_interval
        made.append((last.start.isoformat(), last.end.isoformat()))
    return made

beside = runpy.run_path(sys.argv[2])
unasked = flights.next_dagrun_info(last_automated_run_info=None, restricted=True)
print(json.dumps({
    "beside": [beside[name].dag_id for name in ("verify", "rebuild", "gc")],
    "parsed": list(dags), "brought": brought, "unasked": str(unasked),
    "days": days("America/New_York"), "utc_days": days("UTC"),
    "made": [[cron, zone, intervals(cron, zone)] for cron in CRONS for zone in ("America/New_York", "UTC")],
}))
"""


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The example DAGs, parsed in a process of its own."""
    home = tmp_path_factory.mktemp("airflow")
    environment = os.environ | {"AIRFLOW_HOME": str(home), "PYTHONPATH": str(ROOT / "plugins")}
    (home / "dags").mkdir()
    (home / "jobs").symlink_to(ROOT / "jobs")
    beside = home / "dags" / "flights_corrections.py"
    (documented,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "corrections.md").read_text(encoding="utf-8"), re.S
    )
    beside.write_text(documented)
    command = [sys.executable, "-c", PROGRAM, str(ROOT / "dags"), str(beside)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def moments(pairs: list[list[str]]) -> list[tuple[datetime, datetime]]:
    return [(datetime.fromisoformat(a).astimezone(UTC), datetime.fromisoformat(b).astimezone(UTC)) for a, b in pairs]


def test_the_dags_of_the_document_load(parsed: dict[str, Any]) -> None:
    assert parsed["beside"] == ["flights.verify", "flights.rebuild", "txbatch.gc"]


def test_the_intervals_are_the_365_days_of_new_york(parsed: dict[str, Any]) -> None:
    days = moments(parsed["days"])
    midnights = [
        (datetime(2013, 1, 1, tzinfo=NEW_YORK) + timedelta(days=n)).replace(tzinfo=NEW_YORK).astimezone(UTC)
        for n in range(366)
    ]
    assert days == list(pairwise(midnights))
    lengths = {start.astimezone(NEW_YORK).date().isoformat(): (end - start) / timedelta(hours=1) for start, end in days}
    assert {day: hours for day, hours in lengths.items() if hours != 24} == {"2013-03-10": 23, "2013-11-03": 25}


def test_the_command_line_cuts_at_the_same_times(parsed: dict[str, Any]) -> None:
    """Also where clocks go back or forward: else a run of the one would not meet the batch of the other."""
    for cron, zone, made in parsed["made"]:
        expected = moments(made)
        found = split_by_cron(Interval(expected[0][0], expected[-1][1]), cron, zone)
        assert [(each.start, each.end) for each in found] == expected, (cron, zone)
    assert len(parsed["made"]) == 14


def test_dates_without_a_zone_are_utc_and_a_day_less(parsed: dict[str, Any]) -> None:
    assert moments(parsed["utc_days"]) == moments(parsed["days"])[:-1]


def test_parsing_a_dag_file_brings_nothing_heavy(parsed: dict[str, Any]) -> None:
    assert set(parsed["parsed"]) >= {"flights", "sentences", "word_count", "word_count_consumer"}
    assert not {"pandas", "psycopg2", "pyarrow", "pyspark", "sqlalchemy"} & set(parsed["brought"])


def test_a_task_that_neither_emits_nor_commits_needs_no_arrow() -> None:
    """Most task processes of a run do not, and importing it takes longer than all they do."""
    program = "import sys, txbatch.run.shared_emission, txbatch.run.advance, txbatch.orchestration.operators; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "sqlalchemy" in found
    assert not {"pandas", "pyarrow", "pyspark"} & set(found)


def test_a_dag_file_that_airflow_passes_over_is_named(tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "helper.py").write_text("import json\n")
    (tmp_path / "good.py").write_text('"""An Airflow DAG."""\nfrom txbatch.orchestration import topology_dag\n')
    assert check_dag_files(tmp_path).startswith("2 files in ")
    (tmp_path / "team" / "bad.py").write_text("from txbatch.orchestration import topology_dag\n")
    with pytest.raises(DefinitionError, match=r"team/bad\.py: Airflow passes over .* begin it with a docstring"):
        check_dag_files(tmp_path)
