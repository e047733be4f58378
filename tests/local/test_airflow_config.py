"""The home of the local Airflow: its configuration."""

from configparser import RawConfigParser
from pathlib import Path

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
