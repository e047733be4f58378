"""Settings: where the database, the staging area and the home folder are."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
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
# With the name of a source behind it, in capitals.
SOURCE = "TXBATCH_SOURCE_"
# The URL of a named database, or None: Airflow's connections.
Urls = Callable[[str], str | None]
_SOURCE_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
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


@dataclass
class _Connections:
    """The connections of this process beside the environment: none, or Airflow's."""

    of_sources: Urls


_connections = _Connections(lambda name: None)


def sources_from(connections: Urls) -> None:
    """Ask `connections` for the URL of a source, by the source's name, if no variable of this process holds the URL."""
    _connections.of_sources = connections


def source_variable(name: str) -> str:
    """Return the variable of a source, by the source's name; raise DefinitionError if a source cannot have the name.

    >>> source_variable("shop")
    'TXBATCH_SOURCE_SHOP'
    """
    if not _SOURCE_NAME.fullmatch(str(name)):
        raise InvalidSetting(
            f"source {name!r} is no name: a name has small letters, digits and _, at most 40, and begins with a letter"
        )
    return SOURCE + name.upper()


def source_url(name: str) -> str:
    """Return the URL of a source, by the source's name. The URL may hold a password: never print the URL.

    Raise DefinitionError if neither a variable nor a connection of Airflow holds the URL.
    """
    variable = source_variable(name)
    url = given(variable) or _connections.of_sources(name)
    if not url:
        raise InvalidSetting(
            f"source {name!r} is not known here: set {variable}, or the Airflow connection txbatch_source_{name}"
        )
    return url


def variables_of(names: Iterable[str]) -> dict[str, str]:
    """Return environment variables with their values; a source's variable may come from a connection of Airflow.

    A variable that is not set is left out, unless the variable is a source's: then raise DefinitionError.
    """
    found = {}
    for name in names:
        source = name.removeprefix(SOURCE).lower() if name.startswith(SOURCE) else ""
        value = source_url(source) if source else given(name)
        if value is not None:
            found[name] = value
    return found


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
