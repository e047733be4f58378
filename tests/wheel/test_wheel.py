"""What is in the wheel, and that it works from a site-packages folder, wherever one stands."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from wheel_support import ROOT, call

from txbatch import __version__, fit
from txbatch.core.errors import TxbatchError
from txbatch.fit import NEEDED


@pytest.fixture(scope="module")
def files(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


@pytest.fixture(scope="module")
def metadata(files: dict[str, str]) -> Message:
    return Parser().parsestr(files[f"txbatch-{__version__}.dist-info/METADATA"])


def test_it_has_the_package_its_sql_its_error_pages_and_nothing_else(files: dict[str, str]) -> None:
    def below(folder: Path, name: str) -> set[str]:
        found = (each.relative_to(folder) for each in folder.rglob("*") if each.is_file())
        return {f"{name}/{each}" for each in found if "__pycache__" not in each.parts}

    expected = below(ROOT / "plugins" / "txbatch", "txbatch")
    expected |= below(ROOT / "sql", "txbatch/_sql") | below(ROOT / "starter", "txbatch/_starter")
    expected |= {"txbatch_plugin.py", "txbatch/_errors.md"}
    assert {name for name in files if ".dist-info/" not in name} == expected
    assert "txbatch/py.typed" in files


def test_the_sdist_makes_the_same_wheel_and_has_the_documentation(files: dict[str, str], tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run([*build, "-t", "sdist"], cwd=ROOT, check=True, capture_output=True)
    name = f"txbatch-{__version__}"
    with tarfile.open(tmp_path / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    assert (tmp_path / name / "docs" / "index.md").is_file()
    assert (tmp_path / name / "CHANGELOG.md").is_file()
    subprocess.run([*build, "-t", "wheel"], cwd=tmp_path / name, check=True, capture_output=True)
    with zipfile.ZipFile(tmp_path / f"{name}-py3-none-any.whl") as archive:
        made = {each: archive.read(each).decode() for each in archive.namelist() if not each.endswith("/RECORD")}
    assert made == {each: text for each, text in files.items() if not each.endswith("/RECORD")}


def test_its_metadata(metadata: Message) -> None:
    assert (metadata["Name"], metadata["Version"]) == ("txbatch", __version__)
    assert metadata["Requires-Python"] == "<3.15,>=3.11"
    assert set(metadata.get_all("Provides-Extra") or []) == {"airflow", "spark", "testing", "embedded", "kafka", "docs"}


def test_it_asks_for_ranges_in_which_the_tested_versions_are(metadata: Message) -> None:
    """requirements.txt is what the tests run on; the Spark provider is a newer one there (see pyproject.toml)."""
    pins = dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    asked = [Requirement(line) for line in metadata.get_all("Requires-Dist") or []]
    assert {each.name for each in asked} <= set(pins)
    misfits = {each.name for each in asked if pins[each.name] not in each.specifier}
    assert misfits == {"apache-airflow-providers-apache-spark"}
    assert not [each for each in asked if any(part.operator == "==" for part in each.specifier)]


def test_the_command_works_from_anywhere(environment: Path, tmp_path: Path) -> None:
    told = call([str(environment / "txbatch"), "--version"], tmp_path)
    assert told.stdout == f"txbatch, version {__version__}\n", told.stderr


def test_it_explains_an_error_from_anywhere(environment: Path, tmp_path: Path) -> None:
    told = call([str(environment / "txbatch"), "explain", "tx402"], tmp_path)
    assert told.stdout.startswith("## TX402 NotItsTurn (try again)\n"), told.stderr


def test_its_help_names_no_file_of_a_checkout(environment: Path, tmp_path: Path) -> None:
    told = call([str(environment / "txbatch"), "--help"], tmp_path).stdout
    assert "txbatch init shop && cd shop && make demo && make test" in told
    assert "jobs/" not in told
    assert "docs/" not in told


def test_the_home_folder_is_the_projects_or_else_the_users(environment: Path, tmp_path: Path) -> None:
    inside, outside, shared = tmp_path / "shop" / "jobs", tmp_path / "elsewhere", tmp_path / "shared"
    for folder in (inside, tmp_path / "shop" / "dags", outside, shared / "jobs", shared / "dags"):
        folder.mkdir(parents=True)
    shared.chmod(0o777)

    def home(folder: Path) -> str:
        ask = [str(environment / "python"), "-c", "from txbatch import settings; print(settings.home())"]
        return call(ask, folder, HOME=str(tmp_path / "me")).stdout.strip()

    assert home(inside) == str(tmp_path / "shop" / ".txbatch")
    assert home(outside) == home(shared) == str(tmp_path / "me" / ".txbatch")


def test_its_sql_and_its_archive_for_spark_are_found(environment: Path, tmp_path: Path) -> None:
    ask = "from txbatch.postgres.database import queries, migrate; print(len(queries.statements()), len(migrate.migrations()))"
    told = call([str(environment / "python"), "-c", ask], tmp_path)
    statements, migrations = told.stdout.split()
    assert int(statements) > 50
    assert int(migrations) == len(list((ROOT / "sql" / "migrations").iterdir()))
    zipped = (
        "from pathlib import Path; from txbatch.launch.submission import package_zip; print(package_zip(Path('.')))"
    )
    made = call([str(environment / "python"), "-c", zipped], tmp_path)
    with zipfile.ZipFile(tmp_path / made.stdout.strip()) as archive:
        assert "txbatch/launch/driver.py" in archive.namelist()


def test_the_versions_that_fit_are_those_asked_for(metadata: Message) -> None:
    """But for the Spark provider, of which the extra takes the last without pyspark-client, and an Airflow may have newer."""
    asked = {each.name: each for each in map(Requirement, metadata.get_all("Requires-Dist") or [])}
    for extra, packages in NEEDED.items():
        for package, needed in packages.items():
            assert asked[package].marker is not None
            assert extra in str(asked[package].marker)
            if package != "apache-airflow-providers-apache-spark":
                assert asked[package].specifier == SpecifierSet(needed)


@pytest.mark.parametrize(
    ("extra", "found", "told"),
    [
        ("spark", {"pyspark": "3.5.9"}, "pyspark 3.5.9 does not fit txbatch, which needs pyspark>=4.2,<4.4; run `pip install"),
        ("spark", {}, "pyspark is not installed beside txbatch, which needs pyspark>=4.2,<4.4; run "),
        ("spark", {"pyspark": "4.3.0", "pyspark-client": "4.2.0"}, "pyspark-client 4.2.0 has overwritten files of pyspark 4.3.0"),
        ("airflow", {"apache-airflow": "2.11.0"}, "apache-airflow 2.11.0 does not fit txbatch, which needs "),
        ("airflow", {"apache-airflow": "3.2.2"}, "apache-airflow-providers-apache-spark is not installed beside txbatch"),
    ],
)  # fmt: skip
def test_what_does_not_fit_says_which_version_is_needed(
    extra: str, found: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "installed", found.get)
    with pytest.raises(TxbatchError) as refused:
        fit.check_fit.__wrapped__(extra)
    assert refused.value.text.startswith(told)


def test_what_fits_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "installed", {"pyspark": "4.2.0", "pyspark-client": "4.2.0"}.get)
    assert fit.check_fit.__wrapped__("spark") == "pyspark 4.2.0"
