"""Settings: where the database, the staging area and the home folder are."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from txbatch.core.errors import DefinitionError
from txbatch.local import postgres

DATABASE_URL = "TXBATCH_DATABASE_URL"
# The URL of a named database, or None: Airflow's connections.
Urls = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Settings:
    """Resolved settings. `database_url` is a SQLAlchemy URL and may hold a password: never print it. `embedded`: it is ours.

    `connections` knows the URLs of other databases that no environment variable names.
    """

    home: Path
    database_url: str
    staging: str
    embedded: bool = False
    connections: Urls = lambda database: None

    def warehouse_url(self, database: str) -> str:
        """The URL of another database than the ledger's (R21); DefinitionError when none is set."""
        name = f"{DATABASE_URL}_{database.upper()}"
        url = os.environ.get(name) or self.connections(database)
        if not url:
            raise DefinitionError(
                f"database {database!r}, where a state is kept apart, is not known here: set {name}, or the Airflow "
                f"connection txbatch_{database}"
            )
        return url


def project_root() -> Path:
    """The folder that holds `plugins/`."""
    return Path(__file__).resolve().parents[2]


def home() -> Path:
    """TXBATCH_HOME, else `.txbatch/` in the project: data of the embedded stack."""
    return Path(os.environ.get("TXBATCH_HOME") or project_root() / ".txbatch").resolve()


def load(connection_url: str | None = None, connections: Urls = lambda database: None) -> Settings:
    """TXBATCH_DATABASE_URL and TXBATCH_STAGING; else `connection_url` (Airflow's connection); else the embedded defaults.

    `connections` is asked for other databases, where TXBATCH_DATABASE_URL_<NAME> is not set. Starts the embedded
    PostgreSQL when it is the one to use.
    """
    folder = home()
    url = os.environ.get(DATABASE_URL) or connection_url
    staging = (
        os.environ.get("TXBATCH_STAGING") or f"file://{folder}/staging"
    )  # as it is: neither fsspec nor Spark decodes
    return Settings(folder, url or postgres.start(folder), staging.rstrip("/"), not url, connections)
