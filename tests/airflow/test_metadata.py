"""Airflow's own database: made once, brought to the installed version, and as migrated as its copies are."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from txbatch.local.airflow_config import write_config
from txbatch.local.metadata import AIRFLOW_VERSION, METADATA, metadata_database, migrate, migrated_version
from txbatch.postgres.database.engine import connect

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def copied(new_database: Callable[[str], str], airflow_template: str) -> Engine:
    """A copy of a migrated database, with something in it."""
    engine = connect(new_database(airflow_template))
    execute(engine, "INSERT INTO public.slot_pool (pool, slots, include_deferred) VALUES ('kept', 1, false)")
    return engine


def execute(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def pools(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT pool FROM public.slot_pool ORDER BY 1")).scalars())


def url_of(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def environment_of(home: Path, url: str) -> dict[str, str]:
    write_config(home, "http://127.0.0.1:8080", home, home, unpaused=True, database_url=url)
    return os.environ | {"AIRFLOW_HOME": str(home)}


def test_a_copy_of_a_migrated_database_is_left_alone(copied: Engine, tmp_path: Path) -> None:
    migrate(url_of(copied), {}, tmp_path / "log", timeout=1)
    assert not (tmp_path / "log").exists()


@pytest.mark.whole
def test_another_version_is_migrated_with_what_it_holds(copied: Engine, tmp_path: Path) -> None:
    url, log = url_of(copied), tmp_path / "log"
    execute(copied, "UPDATE public.txbatch_airflow_version SET version = '3.0.0'")
    environment = environment_of(tmp_path, url)
    with pytest.raises(subprocess.TimeoutExpired):
        migrate(url, environment, log, timeout=0.1)
    assert migrated_version(url) == "3.0.0"
    migrate(url, environment, log, timeout=120)
    assert migrated_version(url) == AIRFLOW_VERSION
    assert pools(copied) == ["default_pool", "kept"]


def test_the_embedded_server_has_it_once(postgres_server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("txbatch.embedded.postgres.start", lambda home: postgres_server)
    url = metadata_database(tmp_path)
    assert connect(url).url.database == METADATA
    assert migrated_version(url) is None
    assert metadata_database(tmp_path) == url
