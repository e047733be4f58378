"""A real Airflow with the project's DAGs, on a database of its own that it is told with a password, started once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow_support import KILLS, PASSWORD, Stack
from sqlalchemy import make_url, text

from txbatch import settings
from txbatch.local.airflow import LocalAirflow
from txbatch.local.flights import ensure_flights
from txbatch.postgres.engine import connect

ROOT = settings.project_root()
HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: minutes")


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's DAGs and jobs, and those of these tests."""
    folder = tmp_path_factory.mktemp("project")
    for kind in ("dags", "jobs"):
        for source in (ROOT / kind, HERE / kind):
            shutil.copytree(source, folder / kind, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="session")
def flights_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The flights of 2013."""
    return ensure_flights(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What word_count reads; empty."""
    return tmp_path_factory.mktemp("corpus")


@pytest.fixture(scope="session")
def probe_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where jobs/probe.py writes."""
    return tmp_path_factory.mktemp("probe")


@pytest.fixture(scope="session")
def ledger_url(postgres_server: str) -> str:
    """A migrated database of this Airflow alone."""
    return database(postgres_server, "of_airflow", "TEMPLATE migrated")


def database(server: str, name: str, how: str = "") -> str:
    """The URL of a new database."""
    with connect(server).execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} {how}"))
    return make_url(server).set(database=name).render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def stack(
    postgres_server: str,
    ledger_url: str,
    project: Path,
    flights_folder: Path,
    corpus: Path,
    probe_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stack]:
    home, markers = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("markers")
    (home / "java").symlink_to(ROOT / ".txbatch" / "java")
    for name in KILLS.values():
        (markers / name).touch()
    environment = {
        "TXBATCH_HOME": str(home),
        "TXBATCH_DATABASE_URL": "",
        "AIRFLOW_CONN_TXBATCH": as_airflow_connection(ledger_url),
        "TXBATCH_FAILPOINTS": ",".join(f"{name}=kill:{markers / name}" for name in KILLS.values()),
        "FLIGHTS_FOLDER": str(flights_folder),
        "WORD_COUNT_FOLDER": str(corpus),
        "PROBE_FOLDER": str(probe_folder),
    }
    metadata = database(postgres_server, "airflow")
    folders = (home, project / "dags", ROOT / "plugins")
    airflow = LocalAirflow(*folders, environment=environment, unpaused=True, database_url=metadata)
    with airflow, airflow.api() as api:
        for dag_id in ("sentences", "flights", "word_count", "word_count_consumer", "probe"):
            api.wait_for_dag(dag_id, parsed_after=airflow.started_at)
        yield Stack(api, connect(ledger_url), home, markers)


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
