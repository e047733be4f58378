"""The tutorial and the cookbook do what they say: their files, commands and output, by one Spark and one PostgreSQL.

`TXBATCH_WRITE_PAGES=1` writes what was really printed into the pages, errors too: read the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from doc_pages import RECIPES, TUTORIALS, Reader, commands, files
from in_this_process import InThisProcess
from pyspark.sql import SparkSession

STARTER = Path(__file__).parents[2] / "starter"
WRITE = bool(os.environ.get("TXBATCH_WRITE_PAGES"))


@pytest.fixture
def reader(spark: SparkSession, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """A reader in an empty folder, with an empty database."""
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(InThisProcess, "session", spark, raising=False)
    monkeypatch.setattr("txbatch.wiring.Application", InThisProcess)
    (tmp_path / "work").mkdir()
    return Reader(tmp_path / "work", monkeypatch, strict=not WRITE)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", [*TUTORIALS, *RECIPES], ids=lambda page: page.stem)
def test_a_page_does_what_it_says(reader: Reader, page: Path) -> None:
    found = reader.follow(page)
    if WRITE:
        page.write_text(found, encoding="utf-8")
    assert found.splitlines() == page.read_text(encoding="utf-8").splitlines()


def test_the_first_tutorial_shows_the_job_that_init_makes() -> None:
    (shown,) = files(TUTORIALS[0], "jobs/").values()
    assert shown == (STARTER / "jobs" / "sales.py").read_text(encoding="utf-8")


def test_commands_of_several_lines_are_whole() -> None:
    assert list(commands("$ a \\\n  b\nsaid\n$ c 'd\ne'\n")) == ["a \\\n  b", "c 'd\ne'"]
