"""Checks whether Python, Spark and Airflow work with txbatch, and finds out what the installed Airflow offers.

The only module that asks for versions of Airflow. Where Airflow itself shows a feature, the feature decides, and no number.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, get_args

from txbatch.core.errors import PackageMisfit, PackageMissing
from txbatch.places import install

# By extra, as pyproject.toml asks for them; of the Spark provider what an Airflow of one's own may have.
NEEDED = {
    "spark": {"pyspark": ">=4.2,<4.4"},
    "airflow": {"apache-airflow": ">=3.1,<3.5", "apache-airflow-providers-apache-spark": ">=5.6,<7"},
}
# The first and the last Python, as pyproject.toml asks for them.
PYTHONS = (3, 11), (3, 14)
# The newest PostgreSQL that txbatch is tried on. A newer one is told of, and not refused.
POSTGRES_TRIED = 18
# Earlier versions take no cookie for the API of a plugin.
_PAGES_SINCE = "3.1.8"
# Airflow 3.3 alone can do without asynchronous sessions of its database: tasks of later versions need such sessions, and earlier
# versions do not start with an empty URL for them.
_WITHOUT_ASYNC = ">=3.3.0a0,<3.4.0a0"
# The library for these sessions: the choice of Airflow itself, and like psycopg2 a client by libpq, for the same URLs.
ASYNC_DRIVER = "psycopg"


@cache
def check_fit(extra: str) -> str:
    """Return the installed packages of an extra. TransientError names a missing package, TerminalError a misfit."""
    found = {package: check_version(extra, package, installed(package)) for package in NEEDED[extra]}
    if extra == "spark":
        _check_client(found["pyspark"])
    return ", ".join(f"{package} {number}" for package, number in found.items())


def installed(package: str) -> str | None:
    """Return the version of a package; None if the package is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def check_version(extra: str, package: str, found: str | None) -> str:
    """Return the found version of a package if the version fits; raise like `check_fit`."""
    from packaging.specifiers import SpecifierSet

    needed = NEEDED[extra][package]
    if found is None:
        raise PackageMissing(
            f"{package} is not installed beside txbatch, which needs {package}{needed}; {install(extra)}"
        )
    if not SpecifierSet(needed).contains(found, prereleases=True):
        raise PackageMisfit(
            f"{package} {found} does not fit txbatch, which needs {package}{needed}; run `pip install '{package}{needed}'`"
        )
    return found


def check_python() -> str:
    """Return the version of Python. Raise TerminalError if the version does not fit: this module imports on older ones, too."""
    first, last = ("{}.{}".format(*each) for each in PYTHONS)
    found = ".".join(map(str, sys.version_info[:3]))
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        raise PackageMisfit(
            f"Python {found} does not fit txbatch, which needs Python {first} to {last}: make an environment with one of these"
        )
    return f"Python {found}"


def describe_postgres(number: str) -> str:
    """Return the version of a PostgreSQL for people, and that txbatch is not tried on a newer one.

    >>> describe_postgres("15.4"), describe_postgres("19.1 (Debian 19.1-1)")
    ('PostgreSQL 15.4', 'PostgreSQL 19.1 (Debian 19.1-1), newer than 18, the newest that txbatch is tried on')
    """
    major = re.match(r"\d+", number)
    newer = major is not None and int(major[0]) > POSTGRES_TRIED
    return f"PostgreSQL {number}" + f", newer than {POSTGRES_TRIED}, the newest that txbatch is tried on" * newer


# ---- what the installed Airflow offers


def needs_async_sessions() -> bool:
    """Return whether the installed Airflow needs asynchronous sessions of its database.

    Raise TransientError if the library for these sessions is missing: Airflow 3.4 would end each task without a line in its log.
    """
    from packaging.specifiers import SpecifierSet

    found = installed("apache-airflow-core") or installed("apache-airflow")
    if found is None or SpecifierSet(_WITHOUT_ASYNC).contains(found, prereleases=True):
        return False
    if installed(ASYNC_DRIVER) is None:
        raise PackageMissing(
            f"{ASYNC_DRIVER} is not installed beside Airflow {found}, which needs asynchronous sessions of its database; "
            f"{install('embedded')}"
        )
    return True


def note_writer(task_instance: Any) -> Callable[[str], None] | None:
    """Return the way of a task to write the note of its run while the run works; None before Airflow 3.4."""
    writer: Callable[[str], None] | None = getattr(task_instance, "update_dagrun_note", None)
    return writer


def present_note(dag_run: Any) -> str | None:
    """Return the note of a run as the note is now, for a task: what Airflow tells a task of its run is of the task's start.

    Raise LookupError if the run has ended: a task that was marked at its work goes on for some seconds.
    """
    from airflow.sdk.execution_time.comms import DagRunResult, GetDagRun
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    answer = SUPERVISOR_COMMS.send(GetDagRun(dag_id=dag_run.dag_id, run_id=dag_run.run_id))
    if not isinstance(answer, DagRunResult):
        raise TypeError(f"no run: {answer}")
    if answer.state in ("success", "failed"):
        raise LookupError("the run has ended")
    return answer.note


def computing(timetable: Any) -> Any:
    """Return a timetable of the class that computes intervals. In Airflow 3.1 each timetable is of such a class."""
    try:
        from airflow.serialization.encoders import coerce_to_core_timetable
    except ImportError:
        return timetable
    return coerce_to_core_timetable(timetable)


def takes_pages(number: str) -> bool:
    """Return whether an Airflow of this version can show the pages."""
    return _is_since(number, _PAGES_SINCE)


def places_of_pages() -> frozenset[str]:
    """Return the places in which this Airflow shows pages of plugins, for the API server.

    Airflow drops a whole plugin for a page in an unknown place.
    """
    from airflow.api_fastapi.core_api.datamodels.plugins import ExternalViewResponse

    return frozenset(get_args(ExternalViewResponse.model_fields["destination"].annotation))


def narrows_pages() -> bool:
    """Return whether this Airflow can show a page on some DAGs alone, for the API server."""
    from airflow.api_fastapi.core_api.datamodels.plugins import ExternalViewResponse

    return "applies_to" in ExternalViewResponse.model_fields


def _is_since(found: str, first: str) -> bool:
    from packaging.version import Version

    return Version(found) >= Version(first)


def _check_client(pyspark: str) -> None:
    """Refuse a pyspark whose files another version of pyspark-client has overwritten."""
    client = installed("pyspark-client")
    if client not in (None, pyspark):
        raise PackageMisfit(
            f"pyspark-client {client} has overwritten files of pyspark {pyspark}, both must have one version; run "
            f"`pip install --force-reinstall --no-deps pyspark=={client}`"
        )
