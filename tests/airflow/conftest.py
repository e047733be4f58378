"""A real Airflow with the project's DAGs, on a database of its own that it is told with a password, started once.

All tests of this folder share it. What one module leaves running is ended before the next one begins.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import spark_stub
from airflow_buttons import AirflowButtons
from airflow_days import Days
from airflow_support import KILLS, PASSWORD, QUIET, TASKS, Shown, Stack
from airflow_years import Years
from outages import Outage
from playwright.sync_api import Browser
from sqlalchemy import make_url
from support import until
from ui.browser import chromium
from without_spark import WithoutSpark

from txbatch import settings
from txbatch.local import demo
from txbatch.local.airflow import LocalAirflow
from txbatch.local.flights import ensure_flights
from txbatch.postgres.database.engine import connect

ROOT = settings.project_root()
HERE = Path(__file__).parent
# The DAG of test_killed_processes.py has an Airflow of its own.
NOT_HERE = shutil.ignore_patterns("__pycache__", "kills.py")
EXAMPLES = sorted(file.stem for file in (ROOT / "dags").glob("*.py"))
DAGS = (*EXAMPLES, "probe", "pipeline", "late", "lookback", "landed", "outage", "twenty", "buttons", "days", "flaky")


@pytest.fixture(scope="package")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's DAGs and jobs, those of these tests, and a DAG that does not load."""
    folder = tmp_path_factory.mktemp("project")
    for kind in ("dags", "jobs"):
        for source in (ROOT / kind, HERE / kind):
            shutil.copytree(source, folder / kind, dirs_exist_ok=True, ignore=NOT_HERE)
    (folder / "dags" / "broken.py").write_text('"""An Airflow DAG."""\nraise ValueError("broken on purpose")\n')
    return folder


@pytest.fixture(scope="package")
def flights_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The flights of 2013."""
    return ensure_flights(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="package")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What word_count reads."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "a.py").write_text("the the cat\n")
    return folder


@pytest.fixture(scope="package")
def probe_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where jobs/probe.py writes."""
    return tmp_path_factory.mktemp("probe")


@pytest.fixture(scope="package")
def pipeline_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By what jobs of these tests are held, made to fail, and made ready; the files of days."""
    return tmp_path_factory.mktemp("pipeline")


@pytest.fixture(scope="package")
def examples_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What reach and orders read; empty."""
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="package")
def ledger_url(new_database: Callable[[str], str]) -> str:
    """A migrated database of this Airflow alone."""
    return new_database("migrated")


@pytest.fixture(scope="package")
def outage(ledger_url: str) -> Iterator[Outage]:
    """The ledger as the Airflow sees it, and how it goes away."""
    with TemporaryDirectory(prefix="tx") as folder:
        found = Outage(ledger_url, Path(folder) / "pg")
        found.end()
        yield found


@pytest.fixture(scope="package")
def running(
    new_database: Callable[[str], str],
    airflow_template: str,
    ledger_url: str,
    outage: Outage,
    project: Path,
    flights_folder: Path,
    corpus: Path,
    probe_folder: Path,
    pipeline_folder: Path,
    examples_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stack]:
    """The Airflow, in a home whose path is as awkward as a user's may be."""
    home, markers = tmp_path_factory.mktemp("home %d ü"), tmp_path_factory.mktemp("markers")
    (home / "java").symlink_to(ROOT / ".txbatch" / "java")
    for name in KILLS.values():
        (markers / name).touch()
    stub = spark_stub.install(tmp_path_factory.mktemp("bin"))
    environment = {
        **QUIET,
        "PATH": os.pathsep.join([os.environ["PATH"], str(stub)]),
        "TXBATCH_HOME": str(home),
        "AIRFLOW_CONN_TXBATCH": as_airflow_connection(outage.url),
        "TXBATCH_FAILPOINTS": ",".join(f"{name}=kill:{markers / name}" for name in KILLS.values()),
        "FLIGHTS_FOLDER": str(flights_folder),
        "WORD_COUNT_FOLDER": str(corpus),
        "TOP_WORDS_LEAST": "1",
        "PROBE_FOLDER": str(probe_folder),
        "PIPELINE_FOLDER": str(pipeline_folder),
        "REACH_FOLDER": str(examples_folder / "reach"),
        "ORDERS_FOLDER": str(examples_folder / "orders"),
        "TXBATCH_EXAMPLE": "given",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,viewer:viewer",
    }
    folders, url = (home, project / "dags", ROOT / "plugins"), new_database(airflow_template)
    airflow = LocalAirflow(*folders, database_url=url, environment=environment, unpaused=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TXBATCH_DATABASE_URL", raising=False)  # it would win over the connection
        patch.setenv("AIRFLOW__OF_ANOTHER", "left out")
        stop = contextlib.ExitStack()
        stop.enter_context(airflow)
    with stop, AirflowButtons.of(airflow) as api:
        for dag_id in DAGS:
            api.wait_for_dag(dag_id, parsed_after=airflow.started_at)
        yield Stack(airflow, api, connect(ledger_url), home, markers, outage)


@pytest.fixture(scope="module")
def stack(running: Stack) -> Iterator[Stack]:
    """The Airflow at rest: nothing runs, and nothing is to be killed."""
    yield running
    running.rest()


@pytest.fixture(scope="module")
def years(stack: Stack, pipeline_folder: Path) -> Iterator[Years]:
    """The DAG whose buttons are pressed; nothing holds its tasks in the end."""
    found = Years(stack, pipeline_folder)
    yield found
    for task in TASKS:
        found.release(task)


@pytest.fixture(scope="module")
def active_years(years: Years) -> None:
    """The DAG is unpaused, and what Airflow schedules then has ended."""
    api = years.stack.api
    api.unpause("buttons")
    scheduled = until(lambda: [each for each in api.dag_runs("buttons") if each["run_type"] == "scheduled"])
    assert years.end(scheduled[0]["dag_run_id"])[0] == "success"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="package")
def counted_days(
    running: Stack, project: Path, ledger_url: str, pipeline_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Days:
    """Three days are counted: the 1st, the 2nd and the 4th of January. The file of the 3rd is there."""
    found = Days(running, pipeline_folder / "days")
    for number in range(1, 5):
        found.put_usual(number)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TXBATCH_DATABASE_URL", ledger_url)
        patch.setenv("TXBATCH_HOME", str(tmp_path_factory.mktemp("days")))
        patch.setenv("PIPELINE_FOLDER", str(pipeline_folder))
        patch.setattr("txbatch.wiring.Application", WithoutSpark)
        found.count(project, 1, 2, 4)
    return found


@pytest.fixture(scope="module")
def days(stack: Stack, counted_days: Days) -> Days:
    """Days of which stories count more; what they leave running is ended."""
    return counted_days


@pytest.fixture(scope="package")
def shown(running: Stack, corpus: Path) -> Shown:
    """The demo, on this Airflow and a corpus of three words; each task is killed once, not two of them alone."""
    running.api.unpause("top_words")  # which then runs for what word_count commits
    running.kill_once(*TASKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo.console, "file", printed := io.StringIO())
        demo.play(running.airflow, running.engine, corpus, running.markers)
    runs = {topology: running.api.dag_runs(topology) for topology in demo.TOPOLOGIES}
    counted = {topology: [run["dag_run_id"] for run in each[:-1]] for topology, each in runs.items()}
    return Shown(running, printed.getvalue(), counted)


def as_airflow_connection(url: str) -> str:
    """The database as Airflow keeps it, with a password, which the server does not ask for."""
    parsed = make_url(url)
    return json.dumps(
        {
            "conn_type": "postgres",
            "login": parsed.username,
            "password": PASSWORD,
            "schema": parsed.database,
            "extra": dict(parsed.query),
        }
    )
