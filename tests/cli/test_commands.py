"""Every command, with and without --json, and its exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import refused
from click import Context
from click.testing import CliRunner, Result

from txbatch import settings
from txbatch.cli.main import OnDemand, Unread, main
from txbatch.embedded import postgres

Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
ROOT = settings.project_root()
WORDS = """
topology = Topology("words")
stream = topology.new_stream("in", FixedBatchSpout("word string, n bigint", 2, ("a", 1), ("b", 2), ("a", 3), ("c", 4)))
stream.group_by("word").persistent_aggregate(OpaqueState("words"), count=Count(), total=Sum("n"))
"""
CHECKS = [
    *(
        "database",
        "migrations",
        "rights",
        "warehouses",
        "python",
        "spark",
        "airflow",
        "java",
        "staging",
        "sources",
        "dags",
    ),
]
COMMANDS = [
    ("migrate",),
    ("status",),
    ("status", "words"),
    ("batches", "words"),
    ("batches", "words", "--attempts"),
    ("query", "words", "a", "z"),
    ("doctor",),
]


@pytest.fixture
def ran(txbatch: Txbatch, write_job: WriteJob) -> str:
    """The job of two batches that were run."""
    job = write_job("words.py", WORDS)
    result = txbatch("run", job, "--until-idle")
    assert result.exit_code == 0, result.output
    return job


def printed(result: Result) -> list[list[str]]:
    """The cells of a table."""
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def json_rows(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_json(txbatch: Txbatch, ran: str, command: tuple[str, ...]) -> None:
    assert txbatch(*command).exit_code == 0
    assert isinstance(json_rows(txbatch(*command, "--json")), list)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_tables_fit_a_terminal(txbatch: Txbatch, ran: str, command: tuple[str, ...]) -> None:
    lines = txbatch(*command).stdout.splitlines()
    # the folder of this test may have a long name, and a path is not cut
    assert [line for line in lines if len(line.replace(str(settings.home()), "").rstrip()) > 100] == []


def test_run_prints_what_it_committed(txbatch: Txbatch, write_job: WriteJob) -> None:
    job = write_job("words.py", WORDS)
    first = json_rows(txbatch("run", job, "--json"))
    assert [(row["txid"], row["status"], row["keys"]) for row in first] == [(1, "committed", {"words": 2})]
    header, row = printed(txbatch("run", job))
    assert dict(zip(header, row, strict=False))["txid"] == "2"


@pytest.mark.rule("R4")
def test_run_says_nothing_new(txbatch: Txbatch, ran: str) -> None:
    result = txbatch("run", ran)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "nothing new\n")
    assert json_rows(txbatch("run", ran, "--json")) == []


def test_until_idle_prints_all_in_their_order(txbatch: Txbatch, write_job: WriteJob) -> None:
    found = json_rows(txbatch("run", write_job("words.py", WORDS), "--until-idle", "--json"))
    assert [row["txid"] for row in found] == [1, 2]


@pytest.mark.rule("R2")
def test_the_same_run_id_meets_the_same_batch(txbatch: Txbatch, write_job: WriteJob) -> None:
    job = write_job("words.py", WORDS)
    for _ in range(2):
        assert [row["txid"] for row in json_rows(txbatch("run", job, "--run-id", "mine", "--json"))] == [1]
    assert json_rows(txbatch("query", "words", "a", "--json"))[0]["count"] == 1


def test_status(txbatch: Txbatch, ran: str) -> None:
    (row,) = json_rows(txbatch("status", "--json"))
    assert (row["topology"], row["committed"], row["in_flight"], row["states"]) == ("words", 2, 0, ["words"])
    assert printed(txbatch("status"))[1][:2] == ["words", "2"]


def test_status_of_nothing(txbatch: Txbatch) -> None:
    result = txbatch("status")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no topology has run yet; `txbatch run jobs/sentences.py` runs one" in result.stderr


def test_batches_newest_first(txbatch: Txbatch, ran: str) -> None:
    assert [row["txid"] for row in json_rows(txbatch("batches", "words", "--json"))] == [2, 1]
    assert [row["txid"] for row in json_rows(txbatch("batches", "words", "--limit", "1", "--json"))] == [2]
    assert [row["attempt"] for row in json_rows(txbatch("batches", "words", "--attempts", "--json"))] == ["2:1", "1:1"]


def test_drop_wants_a_yes(txbatch: Txbatch, ran: str, home: Path) -> None:
    left = home / "staging" / "words" / "7" / "1-abc"
    left.mkdir(parents=True)
    refused = txbatch("drop", "words")
    assert refused.exit_code == 2
    assert "this drops 'words' and its states, words; say --yes if that is meant" in refused.stderr
    assert json_rows(txbatch("drop", "words", "--yes", "--json")) == [{"dropped": "words", "states": ["words"]}]
    assert not (home / "staging" / "words").exists()
    assert json_rows(txbatch("status", "--json")) == []
    assert [row["txid"] for row in json_rows(txbatch("run", ran, "--json"))] == [1]
    assert json_rows(txbatch("query", "words", "a", "--json"))[0]["count"] == 1


def test_plan_says_what_a_run_would_be_refused_for(txbatch: Txbatch, ran: str) -> None:
    job = Path(ran)
    job.write_text(job.read_text().replace("total=Sum", "sum=Sum"))
    told = "value 'total' of state 'words' is gone; value 'sum' of state 'words' is new (bigint, summed)"
    plan, run = (txbatch(command, ran).stderr.partition("txbatch: ")[2] for command in ("plan", "run"))
    assert plan == run
    assert told in plan
    assert [each["txid"] for each in json_rows(txbatch("batches", "words", "--json"))] == [2, 1]


def test_doctor_is_content(txbatch: Txbatch) -> None:
    rows = json_rows(txbatch("doctor", "--json"))
    assert [row["check"] for row in rows] == CHECKS
    root = settings.project_root()
    jobs, dags = (len(list((root / folder).glob("*.py"))) for folder in ("jobs", "dags"))
    assert dags > 1
    assert re.fullmatch(
        rf"\d+ DAGs in dags/ and {jobs} jobs in jobs/ of {re.escape(str(root))} load", rows[-1]["detail"]
    )


def test_doctor_says_once_that_a_setting_is_wrong(txbatch: Txbatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXBATCH_HOME", "")
    result = txbatch("doctor")
    assert result.exit_code == 1
    told = "TX806 (no retry helps): TXBATCH_HOME is set and empty: give it a value, or unset it"
    assert " ".join(result.stdout.split()).count(told) == 1


def test_doctor_fails_when_something_is_wrong(
    txbatch: Txbatch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TXBATCH_STAGING", str(tmp_path / "file"))
    monkeypatch.setenv("TXBATCH_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    result = txbatch("doctor", "--json")
    assert result.exit_code == 1
    assert {row["check"]: row["ok"] for row in json.loads(result.stdout)} == {
        "database": False,
        "migrations": False,
        "rights": False,
        "warehouses": False,
        "python": True,
        "airflow": True,
        "spark": True,
        "java": True,
        "staging": False,
        "sources": True,
        "dags": True,
    }
    assert txbatch("doctor").exit_code == 1


def checked() -> dict[str, tuple[bool, str]]:
    """What the doctor says of each check."""
    told = json.loads(CliRunner().invoke(main, ["doctor", "--json"]).stdout)
    return {row["check"]: (row["ok"], row["detail"]) for row in told}


def test_an_embedded_server_is_new_to_the_doctor_and_is_started_when_it_is_stopped(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TXBATCH_DATABASE_URL", raising=False)
    try:
        new = checked()
        assert new["migrations"] == new["warehouses"] == (True, "new: the first run makes the ledger")
        for _ in range(2):
            result = CliRunner().invoke(main, ["status"])
            assert result.exit_code == 0
            assert result.output == "no topology has run yet; `txbatch run jobs/sentences.py` runs one\n"
            assert postgres.is_running(home)
            assert checked()["warehouses"] == (True, "no states apart")
            postgres.stop(home)
    finally:
        postgres.stop(home)


@pytest.mark.parametrize(
    "arguments",
    [
        ("nosuch",),
        ("run",),
        ("batches",),
        ("batches", "words", "--limit", "0"),
        ("run", "job.py", "--interval", "2013-01-01T00:00:00Z"),
        ("run", "job.py", "--interval", "2013-01-01", "2013-01-02"),
        ("run", "job.py", "--interval", "yesterday", "today"),
        ("status", "--nosuch"),
    ],
    ids=" ".join,
)
def test_wrong_usage(txbatch: Txbatch, arguments: tuple[str, ...]) -> None:
    result = txbatch(*arguments)
    assert result.exit_code == 2
    assert "Error: " in result.stderr


def test_help_lists_commands_by_use_in_whole_with_an_example_and_where_to_read_on() -> None:
    said = CliRunner().invoke(main, ["--help"], terminal_width=80).stdout
    lines = said.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    listed = [line.split()[0] for line in lines if line[2] != " "]  # what a command does may take two lines
    assert listed[:8] == ["init", "run", "follow", "plan", "status", "batches", "query", "ask"]
    assert set(listed) == set(main.commands)
    assert "..." not in said.partition("Commands:")[2]
    assert "txbatch run jobs/sentences.py && txbatch query sentences how are" in said
    assert "`txbatch explain TX402`" in said
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("command", [["psql"], ["demo", "psql"], ["demo", "outage"]])
def test_commands_that_print_no_rows_have_no_json(command: list[str]) -> None:
    assert "--json" not in CliRunner().invoke(main, [*command, "--help"]).stdout


@pytest.mark.parametrize("skip", [[], ["--skip"]])
def test_abort_of_an_unknown_topology_says_so(txbatch: Txbatch, skip: list[str]) -> None:
    refused(
        txbatch("abort", "nosuch", "1", "--why", "x", *skip),
        "no topology 'nosuch' is known; `txbatch status` lists them",
    )


def test_ctrl_c_stops_and_aborts_nothing(
    txbatch: Txbatch, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_job("words.py", WORDS)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("without_spark.WithoutSpark.emit", interrupted)
        result = txbatch("run", job)
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr.splitlines()[-1] == "txbatch: stopped; the next call goes on"
    assert [row["txid"] for row in json_rows(txbatch("run", job, "--json"))] == [1, 2]


# What other commands need, and what belongs to Spark, to sources and to the definition of jobs.
NOT_OF_STATUS = (
    *(f"txbatch.core.{name}." for name in ("topology", "aggregates", "protocol", "definition")),
    *(f"txbatch.{name}." for name in ("launch", "run", "wiring", "spark", "spouts", "formats", "postgres.apart")),
    *("txbatch.cli.run.", "croniter.", "pyarrow.", "pyspark.", "fsspec.", "airflow.", "rich.console."),
)


def test_status_imports_what_status_needs(home: Path, postgres_url: str) -> None:
    """A command that is asked again and again: its time is that of its imports."""
    program = (
        "from txbatch.cli.main import main; main(['status'], standalone_mode=False); import sys; print(*sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "plugins"), "TXBATCH_DATABASE_URL": postgres_url}
    command = [sys.executable, "-P", "-c", program]
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    imported = said.splitlines()[-1].split()
    assert "txbatch.postgres.reading.ledger_reader" in imported
    assert [name for name in imported if f"{name}.".startswith(NOT_OF_STATUS)] == []


def test_a_command_whose_import_fails_is_not_told_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of another package may look for a variable of the environment as soon as it is imported."""

    def imported(_: str) -> None:
        raise KeyError("SPARK_HOME")

    monkeypatch.setattr("txbatch.cli.main.resolve_name", imported)
    group = OnDemand(commands={"run": Unread("run")})
    with pytest.raises(KeyError, match="SPARK_HOME"):
        group.get_command(Context(group), "run")
    assert group.get_command(Context(group), "rum") is None
