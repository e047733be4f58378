"""Checks whether the installed Spark and Airflow work with txbatch."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from txbatch.core.errors import PackageMisfit, PackageMissing
from txbatch.places import install

# By extra, as pyproject.toml asks for them; of the Spark provider what an Airflow of one's own may have.
NEEDED = {
    "spark": {"pyspark": ">=4.2,<4.4"},
    "airflow": {"apache-airflow": ">=3.1,<3.4", "apache-airflow-providers-apache-spark": ">=5.6,<7"},
}


@cache
def check_fit(extra: str) -> str:
    """Return the installed packages of an extra. TransientError names a missing package, TerminalError a misfit."""
    found = {package: check_version(extra, package, installed(package)) for package in NEEDED[extra]}
    if extra == "spark":
        _check_client(found["pyspark"])
    return ", ".join(f"{package} {number}" for package, number in found.items())


def installed(package: str) -> str | None:
    """Return the version of a package; None if the package is not installed."""
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


def _check_client(pyspark: str) -> None:
    """Refuse a pyspark whose files another version of pyspark-client has overwritten."""
    client = installed("pyspark-client")
    if client not in (None, pyspark):
        raise PackageMisfit(
            f"pyspark-client {client} has overwritten files of pyspark {pyspark}, both must have one version; run "
            f"`pip install --force-reinstall --no-deps pyspark=={client}`"
        )
