"""The home of the local Airflow: its configuration."""

from configparser import RawConfigParser
from pathlib import Path

import pytest
from refusals import refused

from txbatch import fit
from txbatch.local.airflow_config import write_config

URL = "postgresql+psycopg2://u@/d?host=%2Ftmp%2Fs"


def config_of(home: Path) -> RawConfigParser:
    config = RawConfigParser()
    config.read(home / "airflow.cfg")
    return config


def write(home: Path, port: int) -> str:
    return write_config(
        home, f"http://127.0.0.1:{port}", home / "50%", home / "plugins", unpaused=True, database_url=URL
    ).read_text()


def test_keys_and_password_outlive_a_change_of_the_port(tmp_path: Path) -> None:
    password, first = write(tmp_path, 8080), config_of(tmp_path)
    assert write(tmp_path, 8081) == password
    second = config_of(tmp_path)
    assert [config.get("api", "port") for config in (first, second)] == ["8080", "8081"]
    for section, key in (("core", "fernet_key"), ("api", "secret_key"), ("api_auth", "jwt_secret")):
        assert len(first.get(section, key)) > 32
        assert second.get(section, key) == first.get(section, key)


def test_percent_sign_in_a_path_is_none_of_the_configurations_own(tmp_path: Path) -> None:
    write(tmp_path, 8080)
    assert config_of(tmp_path).get("core", "dags_folder").endswith("/50%%")
    assert config_of(tmp_path).get("database", "sql_alchemy_conn") == URL.replace("%", "%%")


def test_files_that_have_not_changed_are_seldom_parsed(tmp_path: Path) -> None:
    """An idle Airflow would do little else. One that has changed is parsed at once: it sorts them by when they changed."""
    write(tmp_path, 8080)
    config = config_of(tmp_path)
    assert config.get("dag_processor", "min_file_process_interval") == "300"
    assert not config.has_option("dag_processor", "file_parsing_sort_mode")


def airflow(monkeypatch: pytest.MonkeyPatch, version: str, driver: str | None) -> None:
    found = {"apache-airflow-core": version, "psycopg": driver}
    monkeypatch.setattr(fit, "installed", found.get)


@pytest.mark.parametrize("version", ["3.3.0rc1", "3.3.0", "3.3.2"])
def test_airflow_3_3_does_without_asynchronous_sessions_and_needs_no_driver(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow(monkeypatch, version, None)
    write(tmp_path, 8080)
    assert config_of(tmp_path).get("database", "sql_alchemy_conn_async") == ""


@pytest.mark.parametrize("version", ["3.1.8", "3.2.2", "3.4.0b2", "3.4.0", "3.4.1"])
def test_asynchronous_sessions_of_other_airflows_are_in_the_same_database(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an empty URL, Airflow 3.1 does not start, and each task of Airflow 3.4 dies, without a line in its log."""
    airflow(monkeypatch, version, "3.2.9")
    write(tmp_path, 8080)
    found = config_of(tmp_path).get("database", "sql_alchemy_conn_async")
    assert found == URL.replace("psycopg2", "psycopg_async").replace("%", "%%")


def test_a_missing_driver_of_airflow_3_4_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    airflow(monkeypatch, "3.4.0", None)
    with refused("TX808", "psycopg", "Airflow 3.4.0"):
        write(tmp_path, 8080)
