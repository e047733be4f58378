"""Databases of the embedded PostgreSQL beside the ledger's own: Airflow's metadata, and the results of the demos."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import make_url, text

from txbatch.embedded import postgres
from txbatch.postgres.database.engine import connect
from txbatch.settings import Settings

DEMO = "demo"


def embedded_database(home: Path, name: str) -> str:
    """Return the URL of a database of the embedded PostgreSQL. Create the database if missing."""
    url = postgres.start(home)
    engine = connect(url)
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        if not connection.scalar(text("SELECT count(*) FROM pg_database WHERE datname = :name"), {"name": name}):
            connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def demo_settings(home: Path) -> Settings:
    """Return the settings of the demos: a database and a staging area used by demos only, and cleared by demos.

    TXBATCH_DATABASE_URL and TXBATCH_STAGING are ignored.
    """
    return Settings(home, embedded_database(home, DEMO), f"file://{home}/demo/staging", embedded=True)
