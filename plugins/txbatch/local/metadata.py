"""Airflow's own database, in the embedded PostgreSQL: on SQLite, requests at the same moment fail with "database is locked"."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import make_url, text

from txbatch.local import postgres
from txbatch.postgres.engine import connect

METADATA = "airflow"


def metadata_database(home: Path) -> str:
    """The URL of Airflow's own database in the embedded PostgreSQL, made if need be."""
    url = postgres.start(home)
    with connect(url).execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        if not connection.scalar(text("SELECT count(*) FROM pg_database WHERE datname = :name"), {"name": METADATA}):
            connection.execute(text(f"CREATE DATABASE {METADATA}"))
    return make_url(url).set(database=METADATA).render_as_string(hide_password=False)
