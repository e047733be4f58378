"""Which Python, Spark, Airflow and PostgreSQL work with txbatch: one line for each that does not, and one module that asks."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.specifiers import SpecifierSet
from refusals import refused

from txbatch import fit

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "plugins" / "txbatch"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What the check of Python imports: it has to say so on an older Python, too.
CHECK = ("__init__.py", "__main__.py", "fit.py", "places.py", "core/__init__.py", "core/text.py", "core/errors/*.py")
SINCE_3_11 = {
    "UTC",
    "Self",
    "StrEnum",
    "assert_never",
    "Never",
    "LiteralString",
    "ExceptionGroup",
    "tomllib",
    "TaskGroup",
}


@pytest.fixture
def version(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The Python of a case."""
    told = str(request.param)
    monkeypatch.setattr(fit, "sys", SimpleNamespace(version_info=(*map(int, told.split(".")),)))
    return told


@pytest.mark.parametrize("version", ["3.11.0", "3.12.9", "3.14.1"], indirect=True)
def test_a_python_that_fits_is_told(version: str) -> None:
    assert fit.check_python() == f"Python {version}"


@pytest.mark.parametrize("version", ["2.7.18", "3.10.13", "3.15.0"], indirect=True)
def test_a_python_that_does_not_fit_is_told_in_one_line(version: str) -> None:
    with refused("TX809", f"Python {version}", "3.11", "3.14"):
        fit.check_python()


def test_the_pythons_that_fit_are_those_of_the_wheel() -> None:
    asked = SpecifierSet(PROJECT["requires-python"])
    minors = [minor for minor in range(30) if asked.contains(f"3.{minor}.1")]
    assert ((3, minors[0]), (3, minors[-1])) == fit.PYTHONS
    assert fit.PYTHONS[0] <= sys.version_info[:2] <= fit.PYTHONS[1]


@pytest.mark.parametrize(
    "file", [file for each in CHECK for file in sorted(PACKAGE.glob(each))], ids=lambda file: file.name
)
def test_the_check_of_python_loads_on_an_older_python(file: Path) -> None:
    """A traceback of an import in place of the line would name neither txbatch nor the versions that fit."""
    tree = ast.parse(file.read_text(), feature_version=(3, 10))
    checked = {id(inner) for node in tree.body if isinstance(node, ast.If) for inner in ast.walk(node)}
    imports = [
        node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in checked
    ]
    assert not {alias.name for node in imports for alias in node.names} & SINCE_3_11


@pytest.mark.parametrize("found", ["2.11.0", "3.0.6", "3.5.0b1", "3.5.0", "4.0.0"])
def test_an_airflow_that_does_not_fit_is_told_in_one_line(found: str) -> None:
    with refused("TX809", f"apache-airflow {found}", "apache-airflow>=3.1,<3.5"):
        fit.check_version("airflow", "apache-airflow", found)


@pytest.mark.parametrize("found", ["3.1.0", "3.1.8", "3.2.2", "3.3.2", "3.4.0b2", "3.4.0rc1", "3.4.0", "3.4.9"])
def test_an_airflow_that_fits_is_taken(found: str) -> None:
    assert fit.check_version("airflow", "apache-airflow", found) == found


@pytest.mark.parametrize("found", ["3.5.9", "4.1.1", "4.4.0", "5.0.0"])
def test_a_pyspark_that_does_not_fit_is_told_in_one_line(found: str) -> None:
    with refused("TX809", f"pyspark {found}", "pyspark>=4.2,<4.4"):
        fit.check_version("spark", "pyspark", found)


def test_a_postgres_newer_than_those_tried_is_told_of_and_taken() -> None:
    tried, newer = f"{fit.POSTGRES_TRIED}.1", f"{fit.POSTGRES_TRIED + 1}beta2"
    assert fit.describe_postgres(tried) == f"PostgreSQL {tried}"
    assert fit.describe_postgres(f"{fit.POSTGRES_TRIED + 1}.0").endswith("the newest that txbatch is tried on")
    assert fit.describe_postgres(newer).endswith("the newest that txbatch is tried on")


def test_no_airflow_needs_no_asynchronous_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "installed", lambda package: None)
    assert not fit.needs_async_sessions()


def test_versions_of_airflow_are_asked_for_in_one_module() -> None:
    """A text such as "3.4.0" or ">=3.1", or the comparison of versions."""
    asks = re.compile(r"""["'][<>=~!]*3\.[1-9](\.\d+)?\w*["']|packaging\.version""")
    sources = [*PACKAGE.rglob("*.py"), ROOT / "plugins" / "txbatch_plugin.py"]
    found = {str(file.relative_to(ROOT / "plugins")) for file in sources if asks.search(file.read_text())}
    assert found == {"txbatch/fit.py"}
