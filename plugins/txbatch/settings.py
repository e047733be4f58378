"""Settings: where the database, the staging area and the home folder are."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from txbatch import failpoints
from txbatch.core.errors import InvalidSetting
from txbatch.core.records.fields import encodable
from txbatch.embedded import postgres
from txbatch.places import in_checkout, is_project
from txbatch.places import project_root as project_root

HOME = "TXBATCH_HOME"
DATABASE_URL = "TXBATCH_DATABASE_URL"
STAGING = "TXBATCH_STAGING"
# The URL of a named database, or None: Airflow's connections.
Urls = Callable[[str], str | None]
# Spark-submit takes these for a pattern or the end of a file's name, PostgreSQL's pid file a line's end for that of a folder's.
_PATTERN = ", * ? [ ] { } \\"
_UNFIT = re.compile(rf"[\x00-\x1f\x7f{re.escape(_PATTERN.replace(' ', ''))}]")
# What a home folder holds that has been one: an empty one, or one of these, is made private.
_MARKS = ("postgres.lock", "staging", "airflow", "dist", "java")

# What stands between the user's name and the last @ of a host, which is no port.
_WITH_PASSWORD = re.compile(r"(?<!\bfile)://[^@:/]*:(?!\d+/)[^@]*@")


@dataclass(frozen=True, slots=True)
class Settings:
    """Resolved settings. `database_url` is a SQLAlchemy URL and may hold a password: never print the URL. `embedded`: the
    database is the embedded PostgreSQL.

    `connections` returns the URL of another database, if no environment variable holds the URL.
    """

    home: Path
    database_url: str
    staging: str
    embedded: bool = False
    connections: Urls = lambda database: None

    def warehouse_url(self, database: str) -> str:
        """Return the URL of a database beside the ledger's (R21); raise DefinitionError if no URL is set."""
        name = f"{DATABASE_URL}_{database.upper()}"
        url = given(name) or self.connections(database)
        if not url:
            raise InvalidSetting(
                f"database {database!r}, where a state is kept apart, is not known here: set {name}, or the Airflow "
                f"connection txbatch_{database}"
            )
        return url


def given(name: str) -> str | None:
    """Return an environment variable, if set. Raise DefinitionError if the variable is empty: a missing secret is no default.

    Raise DefinitionError also for blanks around the value, added by a file or a form.
    """
    value = os.environ.get(name)
    if value is None:
        return None
    if not value.strip():
        raise InvalidSetting(f"{name} is set and empty: give it a value, or unset it")
    if value != value.strip():
        raise InvalidSetting(f"{name} begins or ends with a blank or a line's end: take that away")
    if not encodable(value):
        raise InvalidSetting(f"{name} is not UTF-8: give it another value, or unset it")
    return value


def home() -> Path:
    """Return the folder of the embedded stack's data: TXBATCH_HOME, or `.txbatch/` in the project, or in the user's own
    folder.

    Raise DefinitionError if programs would misread the path.
    """
    named = given(HOME)
    if named is not None and named.startswith("~"):
        raise InvalidSetting(f"{HOME} is {named!r}: only a shell knows what ~ is; write the whole path")
    if named is not None and not Path(named).is_absolute():
        raise InvalidSetting(f"{HOME} is {named!r}, another folder wherever a command runs; write the whole path")
    folder = Path(named or _default_home()).resolve()
    if folder == folder.parent:
        raise InvalidSetting(f"{HOME} is {named!r}, the root of a filesystem: name a folder in it")
    check_fit(folder)
    return folder


def check_fit(folder: Path) -> None:
    """Raise DefinitionError if Spark would take a home folder's path for a pattern."""
    if _UNFIT.search(str(folder)):
        raise InvalidSetting(
            f"{str(folder)!r} cannot be the home folder: Spark cannot do with a control character or one of {_PATTERN} in its "
            f"path; set {HOME} to another one"
        )


def _default_home() -> Path:
    root = project_root()
    return (root if in_checkout() or is_project(root) else Path.home()) / ".txbatch"


def resolve(connection_url: str | None = None, connections: Urls = lambda database: None) -> Settings:
    """Resolve the settings: first TXBATCH_DATABASE_URL and TXBATCH_STAGING, then `connection_url` (Airflow's), then the
    defaults.

    The defaults are the embedded ones. `connections` is asked for other databases if TXBATCH_DATABASE_URL_<NAME> is not set.
    Creates and starts nothing: `ensure_database` does. Raise DefinitionError for a variable that cannot be meant.
    """
    _check_failpoints()
    folder, url = home(), given(DATABASE_URL) or connection_url
    staging = _staging(given(STAGING) or f"file://{folder}/staging")  # as it is: neither fsspec nor Spark decodes
    return Settings(folder, url or postgres.url(folder), staging, not url, connections)


def ensure_database(settings: Settings) -> Settings:
    """Create the home folder, for the user alone. Start the embedded PostgreSQL if the settings use the embedded database.

    Return the settings unchanged. Raise EmbeddedPostgresError if the server cannot be started.
    """
    with suppress(OSError):  # whoever needs the folder says why that cannot be
        _make_private(settings.home)
    if settings.embedded:
        postgres.start(settings.home)
    return settings


def _check_failpoints() -> None:
    """Raise DefinitionError for a misspelt failpoint: a process meant to be killed would live on in silence."""
    try:
        failpoints.armed()
    except ValueError as error:
        raise InvalidSetting(str(error)) from error


def _staging(uri: str) -> str:
    """Return a staging URI without a slash at the end.

    Raise DefinitionError for a filesystem's root, where topologies would be folders. Raise DefinitionError also for a
    password: Spark's command line, logs and errors show the URI.
    """
    if _WITH_PASSWORD.search(uri):
        raise InvalidSetting(
            f"{STAGING} has a password in it: write it without one, and give it by the store's own settings (AWS_..., HADOOP_...)"
        )
    staging = uri.rstrip("/")
    if not staging or staging.endswith(":"):
        raise InvalidSetting(f"{STAGING} is {uri!r}, the root of a filesystem: name a folder in it")
    return staging


def _make_private(folder: Path) -> None:
    """Close the home folder to all but the owner, because staged records, logs and tokens lie below.

    A folder of another owner, or a folder for all, stays unchanged.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    ours = found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX
    marked = any((folder / mark).exists() for mark in _MARKS) or not any(folder.iterdir())
    if ours and found.st_mode & 0o077 and (marked or folder.name == ".txbatch"):
        folder.chmod(0o700)
