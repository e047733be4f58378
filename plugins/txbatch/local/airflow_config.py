"""What the local Airflow keeps in its home: configuration, secrets and the metadata database, made once and reused."""

import base64
import contextlib
import io
import json
import os
import secrets
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from configparser import RawConfigParser
from importlib.metadata import version
from pathlib import Path

USERNAME = "admin"
CHATTY_LOGGERS = (
    "airflow.api_fastapi",
    "airflow.dag_processing",
    "airflow.executors",
    "airflow.jobs",
    "airflow.models.dag",
    "airflow.serialization",
    "http.access",
)
Sections = Mapping[str, Mapping[str, str]]


def write_config(
    home: Path, url: str, dags_folder: Path, plugins_folder: Path, *, unpaused: bool, database_url: str | None = None
) -> Path:
    """Writes `airflow.cfg` (mode 0600, secrets of an earlier one kept); returns the file with the user's password."""
    passwords = home / "passwords.json"
    if not passwords.exists():
        _write_private(passwords, json.dumps({USERNAME: secrets.token_urlsafe(15)}) + "\n")
    folders = {"dags_folder": str(dags_folder), "plugins_folder": str(plugins_folder)}
    paused = {"dags_are_paused_at_creation": str(not unpaused), "simple_auth_manager_passwords_file": str(passwords)}
    sections = _settings(home, url)
    sections["core"] |= folders | paused
    if database_url:
        # Without a URL for it, Airflow goes without asynchronous sessions, which need a driver that is not installed;
        # of what is used here none does.
        sections["database"] = {"sql_alchemy_conn": database_url, "sql_alchemy_conn_async": ""}
    _write_config(home / "airflow.cfg", sections, _secrets(home / "airflow.cfg"))
    return passwords


def migrate(home: Path, environment: Mapping[str, str], log: Path, *, timeout: float) -> None:
    """Makes the metadata database or brings it to the installed Airflow's version; does nothing if it is there already.

    Works on a copy that takes the database's place at the end, so an interrupted migration leaves nothing half done.
    Raises `subprocess.CalledProcessError`, `log` says why, or after `timeout` seconds `subprocess.TimeoutExpired`.
    """
    database, stamp, copy = home / "airflow.db", home / "airflow.db.version", home / "airflow.db.new"
    if database.exists() and stamp.exists() and stamp.read_text() == version("apache-airflow-core"):
        return
    copy.unlink(missing_ok=True)
    _remove_logs(copy)
    if database.exists():
        with contextlib.closing(sqlite3.connect(database)) as old, contextlib.closing(sqlite3.connect(copy)) as new:
            old.backup(new)
    target = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{copy}"}
    with log.open("w") as output:
        command = [sys.executable, "-m", "airflow", "db", "migrate"]
        environment = {**environment, **target}
        subprocess.run(command, env=environment, stdout=output, stderr=subprocess.STDOUT, check=True, timeout=timeout)
    with contextlib.closing(sqlite3.connect(copy)) as new:
        new.execute("PRAGMA journal_mode = DELETE")  # brings what is in its write-ahead log, if any, into the one file
    _remove_logs(database)
    os.replace(copy, database)
    stamp.write_text(version("apache-airflow-core"))


def _remove_logs(database: Path) -> None:
    """Removes what a killed process left beside a SQLite file; a new file must not meet an old one's logs."""
    for suffix in ("-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)


def migrate_postgres(
    home: Path, environment: Mapping[str, str], log: Path, *, timeout: float, database_url: str
) -> None:
    """The same for metadata in PostgreSQL, whose migrations are transactions."""
    stamp = home / "airflow.postgres.version"
    known = f"{version('apache-airflow-core')} {database_url}"
    if stamp.exists() and stamp.read_text() == known and _has_tables(database_url):
        return
    with log.open("w") as output:
        command = [sys.executable, "-m", "airflow", "db", "migrate"]
        subprocess.run(command, env=environment, stdout=output, stderr=subprocess.STDOUT, check=True, timeout=timeout)
    stamp.write_text(known)


def _has_tables(database_url: str) -> bool:
    from sqlalchemy import create_engine, inspect
    from sqlalchemy.pool import NullPool

    return bool(inspect(create_engine(database_url, poolclass=NullPool)).has_table("alembic_version"))


def _settings(home: Path, url: str) -> dict[str, dict[str, str]]:
    host, port = url.removeprefix("http://").split(":")
    return {
        "core": {
            "executor": "LocalExecutor",
            "parallelism": "6",
            "load_examples": "False",
            "simple_auth_manager_users": f"{USERNAME}:admin",
            "execution_api_server_url": f"{url}/execution/",
            # An empty name: the API server then reads task logs from the disk alone and asks no log server (none runs:
            # they cannot be bound to loopback). It also spares every process a DNS query.
            "hostname_callable": "builtins.str",
        },
        "database": {"sql_alchemy_conn": f"sqlite:///{home / 'airflow.db'}"},
        "api": {"host": host, "port": port, "base_url": url, "workers": "1"},
        "scheduler": {"scheduler_idle_sleep_time": "0.1", "task_instance_heartbeat_timeout": "60"},
        "dag_processor": {"refresh_interval": "5", "min_file_process_interval": "5"},
        "logging": {
            "base_log_folder": str(home / "logs"),
            "uvicorn_logging_level": "WARNING",
            # The level of task logs is the general one, INFO.
            "namespace_levels": " ".join(f"{name}=WARNING" for name in CHATTY_LOGGERS),
        },
        "usage_data_collection": {"enabled": "False"},
    }


def _secrets(config: Path) -> Sections:
    """The keys all components share; Fernet's must outlive a restart, as the database holds what it encrypted."""
    old = RawConfigParser()
    old.read(config)
    fernet_key = base64.urlsafe_b64encode(os.urandom(32)).decode()
    return {
        "core": {"fernet_key": old.get("core", "fernet_key", fallback=fernet_key)},
        "api": {"secret_key": old.get("api", "secret_key", fallback=secrets.token_urlsafe(32))},
        "api_auth": {"jwt_secret": old.get("api_auth", "jwt_secret", fallback=secrets.token_urlsafe(64))},
    }


def _write_config(path: Path, *layers: Sections) -> None:
    config = RawConfigParser()
    for sections in layers:
        for name, section in sections.items():
            config.read_dict({name: {key: value.replace("%", "%%") for key, value in section.items()}})
    text = io.StringIO()
    config.write(text)
    path.unlink(missing_ok=True)
    _write_private(path, text.getvalue())


def _write_private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
