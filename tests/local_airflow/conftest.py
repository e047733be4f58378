"""A real Airflow for the tests of this folder, started once."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from airflow_buttons import AirflowButtons

from txbatch.local.airflow import LocalAirflow

DAGS = Path(__file__).parent / "dags"


@pytest.fixture(scope="package")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose path is as awkward as a user's may be."""
    return tmp_path_factory.mktemp("home %d ü")


@pytest.fixture(scope="package")
def dags_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(DAGS, tmp_path_factory.mktemp("project") / "dags")


@pytest.fixture(scope="package")
def airflow_database(new_database: Callable[[str], str], airflow_template: str) -> str:
    """Of this Airflow alone."""
    return new_database(airflow_template)


@pytest.fixture(scope="package")
def airflow(
    airflow_home: Path,
    dags_folder: Path,
    airflow_database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[LocalAirflow]:
    folders = (airflow_home, dags_folder, tmp_path_factory.mktemp("plugins"))
    given = {"TXBATCH_EXAMPLE": "given"}
    with LocalAirflow(*folders, database_url=airflow_database, environment=given, unpaused=True) as running:
        yield running


@pytest.fixture(scope="package")
def api(airflow: LocalAirflow) -> Iterator[AirflowButtons]:
    with AirflowButtons.of(airflow) as client:
        client.wait_for_dag("flaky", parsed_after=airflow.started_at)
        yield client
