"""Settings: where the database, the staging area and the home folder are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from txbatch.local import postgres


@dataclass(frozen=True, slots=True)
class Settings:
    """Resolved settings. `database_url` is a SQLAlchemy URL and may hold a password: never print it. `embedded`: it is ours."""

    home: Path
    database_url: str
    staging: str
    embedded: bool = False


def project_root() -> Path:
    """The folder that holds `plugins/`."""
    return Path(__file__).resolve().parents[2]


def home() -> Path:
    """TXBATCH_HOME, else `.txbatch/` in the project: data of the embedded stack."""
    return Path(os.environ.get("TXBATCH_HOME") or project_root() / ".txbatch").resolve()


def load(connection_url: str | None = None) -> Settings:
    """TXBATCH_DATABASE_URL and TXBATCH_STAGING; else `connection_url` (Airflow's connection); else the embedded defaults.

    Starts the embedded PostgreSQL when it is the one to use.
    """
    folder = home()
    url = os.environ.get("TXBATCH_DATABASE_URL") or connection_url
    staging = os.environ.get("TXBATCH_STAGING") or (folder / "staging").as_uri()
    return Settings(folder, url or postgres.start(folder), staging.rstrip("/"), embedded=not url)
