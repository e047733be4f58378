"""Airflow's own database, always in PostgreSQL: on SQLite, requests at the same moment fail with "database is locked"."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, text

from txbatch.fit import installed
from txbatch.local.databases import embedded_database
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.transaction import transaction

METADATA = "airflow"
AIRFLOW_VERSION = installed("apache-airflow-core")
_STAMP = "public.txbatch_airflow_version"
_INSTALLED = {"version": AIRFLOW_VERSION}


def metadata_database(home: Path) -> str:
    """Return the URL of Airflow's own database in the embedded PostgreSQL. Create the database if missing."""
    return embedded_database(home, METADATA)


def migrate(database_url: str, environment: Mapping[str, str], log: Path, *, timeout: float) -> None:
    """Create the tables of Airflow's database, or migrate the tables to the installed version. Do nothing if up to date.

    The version is stored in the database: copies have the version too, and a fresh database has none. `environment` names
    the home with the `airflow.cfg` of this database. Raise `subprocess.CalledProcessError` after a failure, with the reason
    in `log`, or `subprocess.TimeoutExpired` after `timeout` seconds; the next call continues from there.
    """
    if migrated_version(database_url) == AIRFLOW_VERSION:
        return
    with log.open("w") as output:
        command = [sys.executable, "-m", "airflow", "db", "migrate"]
        subprocess.run(command, env=environment, stdout=output, stderr=subprocess.STDOUT, check=True, timeout=timeout)
    with _connection(database_url) as connection:
        connection.execute(text(f"DROP TABLE IF EXISTS {_STAMP}"))
        connection.execute(text(f"CREATE TABLE {_STAMP} (version) AS VALUES (CAST(:version AS text))"), _INSTALLED)


def migrated_version(database_url: str) -> str | None:
    """Return the Airflow version of the last migration of the database; None before the first migration."""
    with _connection(database_url) as connection:
        known = connection.scalar(text("SELECT to_regclass(:table)"), {"table": _STAMP})
        return str(connection.scalar(text(f"TABLE {_STAMP}"))) if known else None


@contextmanager
def _connection(database_url: str) -> Iterator[Connection]:
    """Context manager. Open a connection for one transaction, and close the connection: a database in use cannot be copied."""
    engine = connect(database_url)
    try:
        with transaction(engine) as connection:
            yield connection
    finally:
        engine.dispose()
