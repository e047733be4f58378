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
        url = given(name) or self.connections(database)
        if not url:
            raise InvalidSetting(
                f"database {database!r}, where a state is kept apart, is not known here: set {name}, or the Airflow "
                f"connection txbatch_{database}"
            )
        return url


def given(name: str) -> str | None:
    """An environment variable, if it is set. DefinitionError when it says nothing: a secret that is missing is no default.

    DefinitionError for blanks around it, too, which a file or a form adds.
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
    """Return TXBATCH_HOME, else `.txbatch/` in the project, else in the user's own folder: data of the embedded stack.

    DefinitionError for a path that the programs which use it would not take for one.
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
    """Raise DefinitionError for a home folder whose path Spark would take for a pattern."""
    if _UNFIT.search(str(folder)):
        raise InvalidSetting(
            f"{str(folder)!r} cannot be the home folder: Spark cannot do with a control character or one of {_PATTERN} in its "
            f"path; set {HOME} to another one"
        )


def _default_home() -> Path:
    root = project_root()
    return (root if in_checkout() or is_project(root) else Path.home()) / ".txbatch"


def resolve(connection_url: str | None = None, connections: Urls = lambda database: None) -> Settings:
    """Return TXBATCH_DATABASE_URL and TXBATCH_STAGING; else `connection_url` (Airflow's connection); else the embedded defaults.

    `connections` is asked for other databases, where TXBATCH_DATABASE_URL_<NAME> is not set. Makes and starts nothing:
    `ensure_database` does. DefinitionError for a variable that cannot be meant.
    """
    _check_failpoints()
    folder, url = home(), given(DATABASE_URL) or connection_url
    staging = _staging(given(STAGING) or f"file://{folder}/staging")  # as it is: neither fsspec nor Spark decodes
    return Settings(folder, url or postgres.url(folder), staging, not url, connections)


def ensure_database(settings: Settings) -> Settings:
    """Make the home folder, for this user alone, and start the embedded PostgreSQL where it is the one to use.

    Return the settings as they are. EmbeddedPostgresError when the server cannot be started.
    """
    with suppress(OSError):  # whoever needs the folder says why that cannot be
        _make_private(settings.home)
    if settings.embedded:
        postgres.start(settings.home)
    return settings


def _check_failpoints() -> None:
    """DefinitionError for a failpoint that is misspelt: the process it was to kill would live on in silence."""
    try:
        failpoints.armed()
    except ValueError as error:
        raise InvalidSetting(str(error)) from error


def _staging(uri: str) -> str:
    """Without a slash at its end.

    DefinitionError for a filesystem's root, in which topologies would be folders, and for a password: Spark is told the URI
    on its command line, logs and errors show it.
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
    """Only its owner may pass, as staged records, logs and tokens lie below; a folder of others, or for all, is left alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    ours = found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX
    marked = any((folder / mark).exists() for mark in _MARKS) or not any(folder.iterdir())
    if ours and found.st_mode & 0o077 and (marked or folder.name == ".txbatch"):
        folder.chmod(0o700)
