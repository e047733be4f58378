"""The home of the local Airflow: its configuration and its metadata database."""

import os
import sqlite3
import subprocess
from configparser import RawConfigParser
from contextlib import closing
from pathlib import Path

import pytest

from txbatch.local.airflow_config import migrate, write_config

pytestmark = pytest.mark.timeout(300)


def config_of(home: Path) -> RawConfigParser:
    config = RawConfigParser()
    config.read(home / "airflow.cfg")
    return config


def write(home: Path, port: int) -> str:
    return write_config(home, f"http://127.0.0.1:{port}", home / "50%", home / "plugins", unpaused=True).read_text()


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


def test_database_is_made_once_and_migrated_on_a_copy(tmp_path: Path) -> None:
    environment = os.environ | {"AIRFLOW_HOME": str(tmp_path)}
    database, stamp, log = tmp_path / "airflow.db", tmp_path / "airflow.db.version", tmp_path / "log"
    migrate(tmp_path, environment, log, timeout=120)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("INSERT INTO slot_pool (pool, slots, include_deferred) VALUES ('kept', 1, 0)")

    log.unlink()
    migrate(tmp_path, environment, log, timeout=120)
    assert not log.exists()

    stamp.write_text("3.0.0")
    before = database.read_bytes()
    with pytest.raises(subprocess.TimeoutExpired):
        migrate(tmp_path, environment, log, timeout=0.1)
    assert database.read_bytes() == before

    migrate(tmp_path, environment, log, timeout=120)
    assert stamp.read_text() != "3.0.0"
    with closing(sqlite3.connect(database)) as connection:
        assert ("kept",) in connection.execute("SELECT pool FROM slot_pool").fetchall()
