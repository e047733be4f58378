"""Files of the local Airflow in its home: configuration and secrets, created once and reused."""

import base64
import io
import json
import os
import secrets
from collections.abc import Mapping
from configparser import RawConfigParser
from pathlib import Path

from sqlalchemy import make_url

from txbatch import fit

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
    home: Path, url: str, dags_folder: Path, plugins_folder: Path, *, unpaused: bool, database_url: str
) -> Path:
    """Write `airflow.cfg` (mode 0600), with the secrets of an earlier file. Return the file with the user's password."""
    passwords = home / "passwords.json"
    if not passwords.exists():
        _write_private(passwords, json.dumps({USERNAME: secrets.token_urlsafe(15)}) + "\n")
    folders = {"dags_folder": str(dags_folder), "plugins_folder": str(plugins_folder)}
    paused = {"dags_are_paused_at_creation": str(not unpaused), "simple_auth_manager_passwords_file": str(passwords)}
    sections = _settings(home, url)
    sections["core"] |= folders | paused
    # Without an asynchronous URL, Airflow needs no driver for such sessions.
    asynchronous = _asynchronous(database_url) if fit.needs_async_sessions() else ""
    sections["database"] = {"sql_alchemy_conn": database_url, "sql_alchemy_conn_async": asynchronous}
    _write_config(home / "airflow.cfg", sections, _secrets(home / "airflow.cfg"))
    return passwords


def _asynchronous(database_url: str) -> str:
    """Return the URL of the same database for asynchronous sessions.

    >>> _asynchronous("postgresql+psycopg2://u:p%40@/d?host=%2Ftmp%2Fs")
    'postgresql+psycopg_async://u:p%40@/d?host=%2Ftmp%2Fs'
    """
    url = make_url(database_url).set(drivername=f"postgresql+{fit.ASYNC_DRIVER}_async")
    return url.render_as_string(hide_password=False)


def _settings(home: Path, url: str) -> dict[str, dict[str, str]]:
    host, port = url.removeprefix("http://").split(":")
    return {
        "core": {
            "executor": "LocalExecutor",
            "parallelism": "6",
            "load_examples": "False",
            "simple_auth_manager_users": f"{USERNAME}:admin",
            "execution_api_server_url": f"{url}/execution/",
            # An empty name: the API server then reads task logs from the disk alone, without a log server (none runs:
            # log servers cannot be bound to loopback). An empty name also spares every process a DNS query.
            "hostname_callable": "builtins.str",
        },
        "api": {"host": host, "port": port, "base_url": url, "workers": "1"},
        "scheduler": {"scheduler_idle_sleep_time": "0.25", "task_instance_heartbeat_timeout": "60"},
        # A changed file is parsed at once, regardless of its last parse; by default, every half a minute.
        "dag_processor": {"refresh_interval": "5", "min_file_process_interval": "300"},
        "logging": {
            "base_log_folder": str(home / "logs"),
            "uvicorn_logging_level": "WARNING",
            # The level of task logs is the general one, INFO.
            "namespace_levels": " ".join(f"{name}=WARNING" for name in CHATTY_LOGGERS),
        },
        "usage_data_collection": {"enabled": "False"},
    }


def _secrets(config: Path) -> Sections:
    """Return the keys shared by all components. Fernet's key must survive a restart: the database holds values
    encrypted by the key.
    """
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
