"""sql/reports/*.sql by psql, as an analyst runs them, on a database with a few batches."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from sqlalchemy import Engine, make_url, text

from txbatch import settings
from txbatch.local.postgres import bin_dir

Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
REPORTS = settings.project_root() / "sql" / "reports"
JOB = """
topology = Topology("word_count")
stream = topology.new_stream("in", FixedBatchSpout("word string", 3, "man", "man", "dog", "cat", "man", "cat", "dog"))
stream.group_by("word").persistent_aggregate(OpaqueState("word_count"), count=Count())
"""


@pytest.fixture
def batches(txbatch: Txbatch, write_job: WriteJob, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two committed batches; a third whose first attempt failed and whose second one is under way."""
    job = write_job("word_count.py", JOB)
    for _ in range(2):
        assert txbatch("run", job).exit_code == 0

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("txbatch.runner.Runner.submit", fail)
    assert txbatch("run", job).exit_code == 1
    with engine.begin() as connection:
        connection.execute(text("UPDATE txbatch.batch SET created_at = now() - interval '2 h 3 min' WHERE txid = 3"))


def psql(file: str, url: str) -> list[list[str]]:
    """The cells a report prints."""
    parsed = make_url(url)
    options = ["--no-psqlrc", "--set=ON_ERROR_STOP=1", "--csv", "-f", str(REPORTS / file)]
    where = [f"--host={parsed.query['host']}", f"--port={parsed.query['port']}", f"--username={parsed.username}"]
    done = subprocess.run(
        [str(bin_dir() / "psql"), *options, *where, f"--dbname={parsed.database}"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [line.split(",") for line in done.stdout.splitlines()]


def test_every_report_says_what_it_answers_and_what_to_change() -> None:
    files = sorted(REPORTS.glob("*.sql"))
    assert len(files) == 5
    for file in files:
        head = file.read_text().partition("SELECT")[0]
        assert head.startswith("-- ")
        assert "-- To change: " in head
        assert f"psql -f sql/reports/{file.name}" in head


@pytest.mark.usefixtures("batches")
def test_top_keys(postgres_url: str) -> None:
    assert psql("top_keys.sql", postgres_url) == [
        ["word", "count", "last_changed_by"],
        ["man", "3", "2"],
        ["cat", "2", "2"],
        ["dog", "1", "1"],
    ]


@pytest.mark.usefixtures("batches")
def test_growth_per_batch(postgres_url: str) -> None:
    header, *rows = psql("growth_per_batch.sql", postgres_url)
    assert header == ["txid", "committed_at", "records", "keys", "new_keys", "keys_in_all", "records_in_all"]
    assert [[row[0], *row[3:6]] for row in rows] == [["1", "2", "2", "2"], ["2", "2", "1", "3"]]


@pytest.mark.usefixtures("batches")
def test_batches_in_flight(postgres_url: str) -> None:
    header, row = psql("batches_in_flight.sql", postgres_url)
    found = dict(zip(header, row, strict=True))
    assert found["run"].startswith("cli:")
    assert found["age"].startswith("02:03:")
    assert (found["topology"], found["txid"], found["status"], found["attempts"]) == ("word_count", "3", "planned", "1")


@pytest.mark.usefixtures("batches")
def test_attempts_failed(postgres_url: str) -> None:
    header, row = psql("attempts_failed.sql", postgres_url)
    found = dict(zip(header, row, strict=True))
    assert (found["attempt"], found["status"], found["batch"]) == ("3:1", "failed", "planned")
    assert found["error"] == "the disk is full"


@pytest.mark.usefixtures("batches")
def test_keys_changed_by_last_batch(postgres_url: str) -> None:
    assert psql("keys_changed_by_last_batch.sql", postgres_url) == [
        ["word", "contributed", "before", "now", "txid"],
        ["cat", "2", "0", "2", "2"],
        ["man", "1", "2", "3", "2"],
    ]


def test_reports_of_an_empty_ledger(txbatch: Txbatch, postgres_url: str) -> None:
    for file in ("batches_in_flight.sql", "attempts_failed.sql"):
        assert len(psql(file, postgres_url)) == 1


def test_reports_are_plain_sql() -> None:
    assert not [file.name for file in Path(REPORTS).glob("*.sql") if "\\" in file.read_text()]
