"""`txbatch explain`: the page of a code, offline and wherever you are; and what an error prints of its page."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from cli_support import refused
from click.testing import CliRunner, Result

from txbatch.cli.main import main
from txbatch.cli.printing import Rows, prints_rows
from txbatch.core.errors import RecordsGone, Unavailable, concerning
from txbatch.core.text import LENGTH_MAX


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


@pytest.mark.parametrize("code", ["TX777", "TX\uff14\uff10\uff12", "TX402 TX403", "x" * 100_000, "TX4\n02"])
def test_a_code_that_no_page_has(code: str) -> None:
    result = explain(code)
    refused(result, "TX401 (no retry helps): no error has the code ")
    assert all(len(line) <= LENGTH_MAX + 100 and line.isprintable() for line in result.stderr.splitlines())


# ---- what the command line prints of an error, whatever its text


@click.command()
@click.argument("topology")
@prints_rows(nothing="")
def failing(topology: str) -> Rows:
    """Fail as a step of a batch does, by an error within an error, of 100,000 characters."""
    with concerning(txid=8):
        try:
            raise Unavailable("the server does not answer")
        except Unavailable as error:
            raise RecordsGone(f"{topology}: {error}: {'x' * 100_000}") from error


def test_an_error_within_a_long_error_has_one_code_and_one_way_out() -> None:
    result = CliRunner().invoke(failing, ["sales"])
    refused(result, "txbatch: TX205 (no retry helps): sales: the server does not answer: xxx")
    error, *advice = result.stderr.splitlines()
    assert (len(error) <= LENGTH_MAX + len("txbatch: "), error.endswith("... (100,035 characters)")) == (True, True)
    assert advice == [
        "  Is any number wrong? No: what is committed stays right.",
        "  Next: txbatch abort sales 8 --why 'after TX205'",
        "  More: txbatch explain TX205",
    ]


def test_with_json_the_parts_are_keys_and_the_message_is_as_long_as_elsewhere() -> None:
    """A message is bounded where it is made: the ledger, logs and notes have the same."""
    told = json.loads(CliRunner().invoke(failing, ["sales", "--json"]).stdout)
    assert len(told.pop("message")) <= LENGTH_MAX
    assert told == {
        "error": "RecordsGone",
        "code": "TX205",
        "kind": "no retry helps",
        "numbers": "No: what is committed stays right.",
        "next": "txbatch abort sales 8 --why 'after TX205'",
    }
