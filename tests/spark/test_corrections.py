"""docs/corrections.md: its commands as they stand, on four days of flights of which one file was cut off."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from click.testing import CliRunner
from in_this_process import InThisProcess
from pyspark.sql import SparkSession

from txbatch import settings
from txbatch.cli.main import main
from txbatch.launch import driver
from txbatch.local.flights import ensure_flights
from txbatch.postgres.database.engine import connect

ROOT = settings.project_root()
DOCUMENT = (ROOT / "docs" / "corrections.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(sh|diff)\n(.*?)```", DOCUMENT, re.S)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a file for each of four days; that of the second is cut off, and whole in another folder."""
    (script,) = re.findall(r"```bash\n(.*?)```", DOCUMENT, re.S)
    source = str(ensure_flights(tmp_path) / "flights.csv")
    script = script.replace("/data/", f"{tmp_path}/data/").replace(".txbatch/demo/flights/flights.csv", source)
    subprocess.run(["bash", "-euc", script], check=True)
    return tmp_path / "data"


def said(data: Path) -> Iterator[tuple[str, str]]:
    """Each command of the document, and what it printed; the lines that it adds to a job are added to the newest."""
    for kind, block in BLOCKS:
        if kind == "diff":
            line, added = (each[1:] + "\n" for each in block.splitlines())
            job = max(Path("jobs").glob("*.py"), key=lambda file: file.stat().st_ctime_ns)
            job.write_text(job.read_text().replace(line, line + added))
            continue
        for command in block.splitlines():
            words = [word.replace("/data/", f"{data}/") for word in shlex.split(command, comments=True)]
            if words[0] != "txbatch":
                subprocess.run(words, check=True)
                continue
            done = CliRunner().invoke(main, words[1:], prog_name="txbatch")
            assert done.exit_code == command.endswith("# is refused"), done.output
            yield " ".join(words[1:3]), done.output


class Analyst(Thread):
    """Reads the report again and again, while others correct it."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.engine, self.done = connect(url), Event()
        self.seen: list[tuple[int, int, tuple[Any, ...]]] = []

    def run(self) -> None:
        while not self.done.wait(0.02):
            with self.engine.connect() as connection:
                if connection.exec_driver_sql("SELECT to_regclass('report.flights')").scalar() is not None:
                    found = connection.exec_driver_sql("SELECT * FROM report.flights").mappings().all()
                    mine = [row for row in found if (row["carrier"], row["origin"]) == ("B6", "JFK")]
                    self.see(len(found), mine)

    def see(self, keys: int, mine: Sequence[Mapping[str, Any]]) -> None:
        names = ("flights", "distance_total")
        now = (keys, len(mine), tuple(row[name] for row in mine for name in names if name in row))
        if [now] != self.seen[-1:]:
            self.seen.append(now)


@pytest.fixture
def analyst(postgres_url: str) -> Iterator[Analyst]:
    found = Analyst(postgres_url)
    found.start()
    yield found
    found.done.set()
    found.join()


@pytest.mark.rule("R15", "R17", "R23", "R24")
def test_the_story_goes_as_it_is_told(
    spark: SparkSession,
    postgres_url: str,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    analyst: Analyst,
) -> None:
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FLIGHTS_FOLDER", str(data / "flights"))
    monkeypatch.setattr(InThisProcess, "session", spark, raising=False)
    monkeypatch.setattr("txbatch.wiring.Application", InThisProcess)
    shutil.copytree(ROOT / "jobs", tmp_path / "jobs")
    monkeypatch.chdir(tmp_path)
    jobs = staged_together(monkeypatch)
    told = list(said(data))

    def texts(command: str) -> list[str]:
        return [text for each, text in told if each == command]

    assert [flights(text) for text in texts("query flights")] == [316, 376, 376]
    assert [flights(text) for text in texts("as-of flights")] == [316, 316]
    first, second = texts("why flights")
    assert "position 2: flights 65" in first
    assert "position 2, counted by txid 4, was flights 65" in second
    (status,) = texts("status flights")
    assert "2013-01-02.csv: grown from 45,257 to 86,058 bytes; txid 3 was the last batch to look at the file" in status
    _, again, fourth = texts("run jobs/flights.py")
    assert "txid 2 is not changed; of its source differs since: 2013-01-02.csv (grown" in again
    plan, restated = texts("restate flights")
    assert "flights, carrier B6, origin JFK: flights=316, " in plan
    assert "would be counted again: 943 records, 500 before" in plan
    assert restated.splitlines()[-1].split()[:8] == ["2", "4", "committed", "2", "500", "943", "flights", "31"]
    assert [text.count("EQUAL") for text in texts("verify flights") + texts("verify jobs/flights.py")] == [4, 5]
    (query,) = re.findall(r"```sql\n(.*?)```", DOCUMENT, re.S)
    with connect(postgres_url).connect() as connection:
        (row,) = connection.exec_driver_sql(query).mappings()
    assert [row[name] for name in ("position", "txid", "replaced_txid", "records_before", "records")] == [
        *(2, 4, 2, 500, 943)
    ]
    (refused,) = texts("run jobs/flights_next.py")
    assert "value 'distance_total' of state 'flights' is new (bigint, summed)" in refused
    (rebuilt,) = texts("rebuild jobs/flights_next.py")
    assert rebuilt.splitlines()[-2].split()[:6] == ["flights", "1", "swapped", "3", "2699", "4"]
    assert jobs[-2:] == [[1, 3, 4], [1, 3, 4, 5]]  # the rebuild, and the verify after it, by one job each
    assert "committed" in fourth
    shown = [(0, 0, ()), (29, 1, (126,)), (31, 1, (191,)), (32, 1, (316,)), (32, 1, (376,)), (32, 1, (376, 432_444))]
    assert analyst.seen == [each for each in [*shown, (32, 1, (500, 574_940))] if each in analyst.seen]
    assert {shown[-2], shown[-1]} <= set(analyst.seen)


def staged_together(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Return a list, which the txids of each job of several batches are added to once they are staged."""
    jobs, stage = list[list[int]](), driver.stage

    def noted(*given: Any) -> Any:
        staged = stage(*given)
        jobs.append(sorted(staged))
        return staged

    monkeypatch.setattr(driver, "stage", noted)
    return jobs


def flights(printed: str) -> int:
    """The column `flights` of a table of one row."""
    head, row = (line.split() for line in printed.splitlines()[-2:])
    return int(row[head.index("flights")])
