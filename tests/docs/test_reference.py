"""docs/reference/: written from the code, and as the code is now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.generate import signatures
from docs.generate.markdown import plain, prose, table
from docs.generate.settings import amount, constants, form_fields
from docs.generate.written import PAGES, file_of, sql
from sqlalchemy import Engine

import txbatch
from txbatch import reports, testing
from txbatch.cli.main import main

ROOT = Path(__file__).parents[2]
# Of processes that the tests and the local stack start, and the beginning of names that Spark does not get.
INTERNAL = {"TXBATCH_PROCESSES", "TXBATCH_DATABASE", "TXBATCH_DATABASE_URL_", "TXBATCH_SOURCE_", "TXBATCH_SOURCE_SHOP"}


def page(name: str) -> str:
    return file_of(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_as_the_code_is(name: str) -> None:
    assert page(name) == PAGES[name](), f"run .venv/bin/python -m docs.generate {name}"


def test_the_page_on_sql_is_as_the_ledger_is(engine: Engine) -> None:
    assert page("sql") == sql(engine), "run .venv/bin/python -m docs.generate sql"


def test_each_page_is_listed() -> None:
    listed = (ROOT / "docs" / "reference" / "index.md").read_text(encoding="utf-8").splitlines()
    assert {*PAGES, "sql"} <= set(listed)


def test_each_name_of_a_job_file_has_its_place_and_words() -> None:
    for name in txbatch.__all__:
        _, _, rest = page("python-jobs").partition(f"\n### {name}\n")
        assert len(rest.partition("\n#")[0].split()) > 10, name


@pytest.mark.parametrize(("module", "name"), [(reports, "python-reports"), (testing, "python-testing")])
def test_each_name_of_a_module_has_its_place(module: object, name: str) -> None:
    own = getattr(module, "__all__", None) or ["Reports", "Batch", "Attempt", "Restatement", "Version", "Why", "Answer"]
    assert [each for each in own if f"\n## {each}\n" not in page(name)] == []


def test_each_function_of_a_dag_file_has_its_place() -> None:
    source = (ROOT / "plugins" / "txbatch" / "orchestration" / "__init__.py").read_text()
    exported = re.findall(r'"(\w+)"', source.partition("__all__ = ")[2])
    assert len(exported) > 5
    assert [each for each in exported if f"\n## {each}\n" not in page("python-dags")] == []
    assert "turn_timeout: timedelta = timedelta(hours=6)" in page("python-dags")


def test_each_command_has_its_place_and_no_hidden_option() -> None:
    assert [name for name in main.commands if f"\n## txbatch {name}\n" not in page("commands")] == []
    run = page("commands").partition("\n## txbatch run\n")[2].partition("\n## ")[0]
    assert "`--cron TEXT`" in run
    assert f"--{'follow'}" not in run


def test_each_variable_that_the_package_reads_is_named() -> None:
    modules = (ROOT / "plugins").rglob("*.py")
    read = {each for file in modules for each in re.findall(r"TXBATCH_[A-Z_]+", file.read_text(encoding="utf-8"))}
    assert [name for name in read - INTERNAL if f"`{name}`" not in page("settings")] == []


def test_variables_of_compose_are_those_of_the_files() -> None:
    files = [ROOT / "docker-compose.yml", ROOT / "starter" / "docker-compose.yml"]
    given = {each for file in files for each in re.findall(r"\$\{(TXBATCH_\w+):-([^}]+)\}", file.read_text())}
    told = page("settings")
    for name, default in given:
        (row,) = re.findall(rf"^\| `{name}` \| (.+?) \|", told, re.MULTILINE)
        assert row.strip("`") == default.removeprefix("./"), name


def test_the_fields_of_the_form_are_those_that_dags_have() -> None:
    named = {value.strip("'\"") for name, value in constants().items() if name.endswith("_PARAM")}
    found = form_fields()
    assert {name for name, _, _ in found} == named
    assert all(title and meaning for _, title, meaning in found)


@pytest.mark.parametrize(
    ("value", "unit", "told"),
    [
        (64_000_000, "bytes", "64 MB"),
        (2676, "bytes", "2,676 bytes"),
        (30.0, "s", "30 s"),
        (36_500, "days", "36,500 days"),
    ],
)
def test_numbers_have_units(value: float, unit: str, told: str) -> None:
    assert amount(value, unit) == told


def test_signs_of_a_docstring_stand_for_themselves() -> None:
    assert plain("report.<name>, `prev_<value>`, a*b, _x, as_of") == r"report.\<name>, `prev_<value>`, a\*b, \_x, as_of"
    assert prose("One.\n\n>>> 1 + 1\n2") == "One.\n\n```pycon\n>>> 1 + 1\n2\n```"
    assert list(table(["a"], [["x | y"]])) == ["| a |", "|---|", r"| x \| y |", ""]


def test_a_long_call_has_a_line_for_each_argument() -> None:
    def called(one: str, *more: int, other: str = "x" * 60, last: bool = False) -> None: ...

    assert signatures.of_object("called", called).splitlines() == [
        "called(",
        "    one: str,",
        "    *more: int,",
        f"    other: str = '{'x' * 60}',",
        "    last: bool = False,",
        ") -> None",
    ]
