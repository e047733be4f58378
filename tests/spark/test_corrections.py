"""docs/corrections.md: its commands as they stand, on three days of flights of which one file was cut off."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from in_this_process import InThisProcess
from pyspark.sql import SparkSession

from txbatch import settings
from txbatch.cli.main import main
from txbatch.local.flights import ensure_flights
from txbatch.postgres.engine import connect

ROOT = settings.project_root()
DOCUMENT = (ROOT / "docs" / "corrections.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", DOCUMENT, re.S) for line in block.splitlines()]
CUT_OFF = 500


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a file for each of three days; that of the second is cut off, and whole in another folder."""
    days: dict[int, list[str]] = {}
    with (ensure_flights(tmp_path) / "flights.csv").open() as source:
        head = next(source)
        for line in source:
            number = int(line.split(",")[2])
            if number > 3:
                break
            days.setdefault(number, [head]).append(line)
    for folder in ("flights", "again"):
        (tmp_path / "data" / folder).mkdir(parents=True)
        for number, lines in days.items():
            cut = lines[: CUT_OFF + 1] if (folder, number) == ("flights", 2) else lines
            (tmp_path / "data" / folder / f"2013-01-0{number}.csv").write_text("".join(cut))
    return tmp_path / "data"


def said(data: Path) -> Iterator[tuple[str, str]]:
    """Each command of the document, and what it printed."""
    for command in COMMANDS:
        words = [word.replace("/data/", f"{data}/") for word in shlex.split(command)]
        if words[0] != "txbatch":
            subprocess.run(words, check=True)
            continue
        done = CliRunner().invoke(main, words[1:], prog_name="txbatch")
        assert done.exit_code == 0, done.output
        yield " ".join(words[1:3]), done.output


@pytest.mark.rule("R15", "R17", "R24")
def test_the_story_goes_as_it_is_told(
    spark: SparkSession, postgres_url: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FLIGHTS_FOLDER", str(data / "flights"))
    monkeypatch.setattr(InThisProcess, "session", spark, raising=False)
    monkeypatch.setattr("txbatch.wiring.Application", InThisProcess)
    monkeypatch.chdir(ROOT)
    told = list(said(data))
    assert [flights(text) for command, text in told if command == "query flights"] == [316, 376]
    assert [flights(text) for command, text in told if command.startswith("as-of")] == [316]
    first, second = (text for command, text in told if command == "why flights")
    assert "position 2: flights 65" in first
    assert "position 2, counted by txid 4, was flights 65" in second
    assert "2013-01-02.csv since txid 3 was planned: grown from 45,257 to 86,058 bytes" in dict(told)["status flights"]
    assert (
        "txid 2 is not changed; of its source differs since: 2013-01-02.csv (grown" in dict(told)["run jobs/flights.py"]
    )
    assert "flights, carrier B6, origin JFK: flights=316, " in dict(told)["plan jobs/flights.py"]
    assert "would be counted again: 943 records, 500 before" in dict(told)["plan jobs/flights.py"]
    shown = dict(told)["restate flights"].splitlines()[-1].split()
    assert shown[:8] == ["2", "4", "committed", "2", "500", "943", "flights", "31"]
    assert dict(told)["verify flights"].count("EQUAL") == 4
    (query,) = re.findall(r"```sql\n(.*?)```", DOCUMENT, re.S)
    with connect(postgres_url).connect() as connection:
        (row,) = connection.exec_driver_sql(query).mappings()
    assert [row[name] for name in ("position", "txid", "replaced_txid", "records_before", "records")] == [
        *(2, 4, 2, 500, 943)
    ]


def flights(printed: str) -> int:
    """The column `flights` of a table of one row."""
    head, row = (line.split() for line in printed.splitlines()[-2:])
    return int(row[head.index("flights")])
