"""`txbatch explain`: the page of a code, offline and wherever you are."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_support import refused
from click.testing import CliRunner, Result

from txbatch.cli.main import main


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder outside the checkout, without a database that answers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TXBATCH_DATABASE_URL", "postgresql+psycopg2://nobody@127.0.0.1:1/none")


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments], prog_name="txbatch")


@pytest.mark.parametrize("code", ["TX402", "tx402", " Tx402 "])
def test_it_prints_the_page_of_the_code_alone(code: str, tmp_path: Path) -> None:
    result = explain(code)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "## TX402 NotItsTurn (try again)"
    assert [line for line in lines if line.startswith("#")] == lines[:1]
    assert "    txbatch status TOPOLOGY" in lines
    assert not (tmp_path / "home").exists()


def test_the_last_page_of_an_area_ends_before_the_next_area() -> None:
    assert "# Sources and files" not in explain("TX119").stdout


def test_an_unknown_code_names_the_codes_of_its_area() -> None:
    refused(explain("TX499"), "TX401 (no retry helps): no error has the code 'TX499': codes are TX401, TX402, TX403,")
    assert "TX301" not in explain("TX499").stderr


@pytest.mark.parametrize("code", ["402", "TX", "", "NotItsTurn"])
def test_what_is_no_code_names_an_example(code: str) -> None:
    refused(explain(code), "codes are TX001 to TX999; for example `txbatch explain TX402`")
