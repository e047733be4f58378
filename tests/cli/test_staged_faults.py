"""An operator meets a fault, and has the error alone: its code, whether a number is wrong, and the command to copy.

The command is run as it is printed. It shows the cause, or puts the fault right, alone or once the cause is mended. Faults of
records, which Spark finds, are in tests/spark/test_staged_faults.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_support import DAYS, MAIN, WORDS_OF_LOG, Told, told
from click.testing import Result
from sqlalchemy import Engine, make_url, text

from txbatch.core.batch.transaction import Run
from txbatch.launch.job_file import load_job
from txbatch.run.run_names import hold
from txbatch.settings import resolve
from txbatch.spouts.partitioned_log import PartitionedLog
from txbatch.wiring import open_steps

Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]


@dataclass
class Words:
    """A job that counts the lines of a log, two a batch; its first batch is committed."""

    txbatch: Txbatch
    write_job: WriteJob
    log: PartitionedLog
    engine: Engine

    def written(self, old: str = "", new: str = "") -> str:
        return self.write_job("words.py", WORDS_OF_LOG.format(root=str(self.log.root)).replace(old, new) + MAIN)

    def copied(self, error: Told) -> Result:
        """Call the command that the error prints, as it is printed."""
        return self.txbatch(*error.command)

    def counted(self) -> dict[str, int]:
        with self.engine.connect() as connection:
            return dict(connection.execute(text("SELECT line, count FROM report.words")).tuples().all())


@pytest.fixture
def words(txbatch: Txbatch, write_job: WriteJob, engine: Engine, tmp_path: Path) -> Words:
    log = PartitionedLog(tmp_path / "log", segment_records=2)
    log.append("north", ["a", "b"])
    found = Words(txbatch, write_job, log, engine)
    assert txbatch("run", found.written()).exit_code == 0
    return found


def test_a_job_with_a_typing_error(words: Words) -> None:
    job = words.written("Count()", "Cuont()")
    error = told(words.txbatch("run", job))
    assert error == Told("TX115", "No: no batch runs before the job is loaded.", ["-v", "plan", job])
    shown = words.copied(error)
    assert "Traceback" in shown.stderr
    assert "name 'Cuont' is not defined" in shown.stderr
    words.written()
    assert words.copied(error).exit_code == 0


def test_a_field_that_is_not_there(words: Words) -> None:
    job = words.written('"line")', '"lien")')
    error = told(words.txbatch("run", job))
    numbers = "No: a job that is rejected counts nothing, and what is committed stays."
    assert error == Told("TX103", numbers, ["plan", job])
    assert "lien" in words.copied(error).stderr
    words.written()
    assert words.copied(error).exit_code == 0


def test_a_job_that_changed(words: Words) -> None:
    job = words.written("count=Count()", "n=Count()")
    error = told(words.txbatch("run", job))
    assert error.code == "TX601"
    assert error.numbers.endswith("before it uses a txid, and what is committed stays.")
    assert words.copied(error).exit_code == 0
    assert words.txbatch("run", job).exit_code == 0


def test_a_topology_of_another_name(words: Words) -> None:
    error = told(words.txbatch("batches", "wrods"))
    assert error == Told("TX401", "No: nothing was read or changed.", ["status"])
    assert "words" in words.copied(error).stdout


def test_another_run_is_at_work(words: Words) -> None:
    words.log.append("north", ["c", "d"])
    job = words.written()
    steps = open_steps(load_job(job), resolve())
    steps.initialize_transaction(Run("airflow:words:live", "words", "live"))
    error = told(words.txbatch("run", job))
    assert (error.code, error.numbers) == ("TX402", "No: the batch waits and has changed nothing.")
    assert "live" in words.copied(error).stdout, "the run in the way is named"


def test_a_call_of_the_same_name_is_at_work(words: Words) -> None:
    words.log.append("north", ["c", "d"])
    job = words.written()
    steps = open_steps(load_job(job), resolve())
    with hold(steps.locks, "words", Run("cli:nightly")):
        steps.initialize_transaction(Run("cli:nightly"))
        error = told(words.txbatch("run", job, "--run-id", "nightly"))
        assert error == Told("TX403", "No: only one run at a time can change a batch.", ["batches", "words"])
        assert "nightly" in words.copied(error).stdout


def test_a_state_of_another_topology(words: Words) -> None:
    """A copy of a job, with another name of the topology alone."""
    job = words.written('Topology("words")', 'Topology("lines")')
    error = told(words.txbatch("run", job))
    assert error == Told(
        "TX102", "No: a job that is rejected counts nothing, and what is committed stays.", ["plan", job]
    )
    words.written('Topology("words")', 'Topology("lines")')
    own = Path(job).read_text().replace('OpaqueState("words")', 'OpaqueState("lines")')
    Path(job).write_text(own)
    assert words.copied(error).exit_code == 0


def test_a_ledger_of_a_newer_version(words: Words) -> None:
    with words.engine.begin() as connection:
        connection.execute(text("INSERT INTO txbatch.migration (number, name) VALUES (999, 'of tomorrow')"))
    refusal = words.txbatch("status")
    assert told(refusal) == Told("TX803", "No: nothing was read or changed.", ["doctor"])
    assert f"database '{words.engine.url.database}' at " in refusal.stderr


def test_a_partition_that_is_away(words: Words) -> None:
    words.log.append("north", ["b", "c"])
    job = words.written("OpaquePartitioned", "Partitioned")
    assert words.txbatch("drop", "words", "--yes").exit_code == 0
    assert words.txbatch("run", job).exit_code == 0
    words.log.take_away("north")
    error = told(words.txbatch("run", job))
    assert error.code == "TX201"
    words.log.give_back("north")
    assert words.copied(error).exit_code == 0
    assert words.counted() == {"a": 1, "b": 2, "c": 1}


def test_a_row_that_was_changed_by_hand(words: Words) -> None:
    words.log.append("north", ["a", "c"])
    with words.engine.begin() as connection:
        connection.execute(text("UPDATE state.words SET txid = 99, count = 7 WHERE line = 'a'"))
    error = told(words.txbatch("run", words.written()))
    assert error == Told(
        "TX410", "Possibly: something outside txbatch may have changed this state.", ["verify", "words"]
    )
    shown = words.copied(error).stdout
    assert "DIFFERENT" in shown
    assert "count=7" in shown


def test_a_batch_that_is_committed_is_not_aborted(words: Words) -> None:
    error = told(words.txbatch("abort", "words", "1", "--why", "wrong"))
    assert (error.code, error.numbers) == ("TX411", "No: the batch counts exactly once.")
    restated = words.copied(error)
    assert restated.exit_code == 0, restated.output
    assert words.counted() == {"a": 1, "b": 1}


def test_a_server_that_does_not_answer(words: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXBATCH_DATABASE_URL", "postgresql+psycopg2://nobody@127.0.0.1:1/none")
    error = told(words.txbatch("status"))
    assert error == Told("TX801", "No: what is not committed is taken back by PostgreSQL.", ["doctor"])
    assert re.search("WRONG +database .*127.0.0.1", words.copied(error).stdout)


def test_a_question_about_the_future(words: Words) -> None:
    error = told(words.txbatch("as-of", "words", "9", "a"))
    assert error == Told("TX701", "No: the current numbers are right.", ["as-of", "words", "1"])
    assert "a" in words.copied(error).stdout, "the nearest txid that is kept"


def test_a_file_that_changed_after_its_batch_was_planned(
    txbatch: Txbatch, write_job: WriteJob, engine: Engine, tmp_path: Path
) -> None:
    day = tmp_path / "in" / "1"
    day.parent.mkdir()
    day.write_text("2026-03-01T10:00Z,a wrong")
    job, interval = write_job("days.py", DAYS.format(root=str(day.parent))), ("2026-03-01T00:00Z", "2026-03-02T00:00Z")
    told(txbatch("run", job, "--interval", *interval))
    day.write_text("2026-03-01T10:00Z,a 2026-03-01T10:00Z,b")
    error = told(txbatch("run", job, "--interval", *interval))
    assert error == Told(
        "TX204",
        "No: the attempt failed, and nothing of its batch is committed.",
        ["abort", "days", "1", "--why", "..."],
    )
    listed = txbatch("batches", "days", "--attempts").stdout
    assert '`txbatch abort days 1 --why "..."`' in listed, "the list of attempts has the command, too"
    assert txbatch(*error.command).exit_code == 0
    assert txbatch("run", job, "--interval", *interval).exit_code == 0
    with engine.connect() as connection:
        assert connection.execute(text("SELECT sum(count) FROM report.days")).scalar_one() == 2


def test_a_database_without_a_ledger(
    txbatch: Txbatch, databases: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = databases("bare")
    monkeypatch.setenv("TXBATCH_DATABASE_URL", url)
    refusal = txbatch("status")
    error = told(refusal)
    assert error == Told("TX803", "No: nothing was read or changed.", ["migrate"])
    before, question, _ = refusal.stderr.partition("see whether it is the database that you mean")
    assert (question != "", f"database '{make_url(url).database}' at " in before, "migrate" in before) == (
        True,
        True,
        False,
    ), "it asks first"
    assert txbatch(*error.command).exit_code == 0
    assert txbatch("status").exit_code == 0


def test_a_project_in_a_folder_with_files(txbatch: Txbatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "notes").touch()
    error = told(txbatch("init", "shop"))
    assert error == Told("TX903", "No: nothing was written.", ["init", "my_project"])
    assert txbatch(*error.command).exit_code == 0
    assert os.listdir(tmp_path / "shop") == ["notes"]
    assert (tmp_path / "my_project" / "jobs").is_dir()
