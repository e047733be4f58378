"""sql/reports/*.sql by psql, as an analyst runs them, on a database with a few batches."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cli_support import refused
from click.testing import CliRunner, Result
from sqlalchemy import Engine, make_url, text

from txbatch import settings
from txbatch.cli.main import main
from txbatch.core.errors import DefinitionError
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.psql import command, make_reader

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

    monkeypatch.setattr("txbatch.run.runner.Runner.submit", fail)
    assert txbatch("run", job).exit_code == 1
    with engine.begin() as connection:
        connection.execute(text("UPDATE txbatch.batch SET created_at = now() - interval '2 h 3 min' WHERE txid = 3"))


def psql(*arguments: str, url: str) -> subprocess.CompletedProcess[str]:
    """`txbatch psql`, as an analyst calls it."""
    command = [str(settings.project_root() / "bin" / "txbatch"), "psql", "--no-psqlrc", *arguments]
    return subprocess.run(command, env={**os.environ, "TXBATCH_DATABASE_URL": url}, capture_output=True, text=True)


def report(file: str, url: str) -> list[list[str]]:
    """The cells a report prints."""
    done = psql("--set=ON_ERROR_STOP=1", "--csv", "-f", str(REPORTS / file), url=url)
    assert (done.returncode, done.stderr) == (0, "")
    return [line.split(",") for line in done.stdout.splitlines()]


def test_every_report_says_what_it_answers_and_what_to_change() -> None:
    files = sorted(REPORTS.glob("*.sql"))
    assert len(files) == 7
    for file in files:
        head = file.read_text().partition("SELECT")[0]
        assert head.startswith("-- ")
        assert "-- To change: " in head
        assert f"bin/txbatch psql -f sql/reports/{file.name}" in head


@pytest.mark.rule("R19", "R23")
def test_every_report_answers_in_every_state_of_a_topology(
    txbatch: Txbatch, write_job: WriteJob, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, files = write_job("word_count.py", JOB), sorted(map(str, REPORTS.glob("*.sql")))
    every = ["--set=ON_ERROR_STOP=1", *(part for file in files for part in ("-f", file))]

    def done(*arguments: str) -> None:
        """Run a command, and every report after it."""
        given = txbatch(*arguments)
        assert given.exit_code == 0, given.output
        told = psql(*every, url=postgres_url)
        assert (told.returncode, told.stderr) == (0, ""), arguments

    def planned() -> None:
        with monkeypatch.context() as patch:
            patch.setattr("txbatch.run.runner.Runner.submit", lambda *_: 1 / 0)
            assert txbatch("run", job).exit_code == 1
        done("status")

    planned()
    done("run", job)
    done("rebuild", job, "--why", "a test")
    changed = [
        ["word", "contributed", "before", "now", "txid"],
        ["cat", "2", "", "2", "2"],
        ["man", "1", "2", "3", "2"],
    ]
    assert report("keys_changed_by_last_batch.sql", postgres_url) == changed
    done("rebuild", "word_count", "--drop-past")
    done("restate", "word_count", "1", "--why", "a test")
    planned()
    done("abort", "word_count", "4", "--skip", "--why", "a test")
    write_job("word_count.py", JOB.replace("count=Count()", 'count=Count(), n=Count(since="now")'))
    done("change", job, "--yes", "--why", "a test")
    done("gc", "word_count", "--keep-txids", "1")


@pytest.mark.usefixtures("batches")
def test_top_keys(postgres_url: str) -> None:
    assert report("top_keys.sql", postgres_url) == [
        ["word", "count", "last_changed_by"],
        ["man", "3", "2"],
        ["cat", "2", "2"],
        ["dog", "1", "1"],
    ]


@pytest.mark.usefixtures("batches")
def test_growth_per_batch(postgres_url: str) -> None:
    header, *rows = report("growth_per_batch.sql", postgres_url)
    assert header == ["txid", "committed_at", "records", "keys", "new_keys", "keys_in_all", "records_in_all"]
    assert [[row[0], *row[3:6]] for row in rows] == [["1", "2", "2", "2"], ["2", "2", "1", "3"]]


@pytest.mark.usefixtures("batches")
def test_batches_in_flight(postgres_url: str) -> None:
    header, row = report("batches_in_flight.sql", postgres_url)
    found = dict(zip(header, row, strict=True))
    assert found["run"].startswith("cli:")
    assert found["age"].startswith("02:03:")
    assert (found["topology"], found["txid"], found["status"], found["attempts"]) == ("word_count", "3", "planned", "1")


@pytest.mark.usefixtures("batches")
def test_attempts_failed(postgres_url: str) -> None:
    header, row = report("attempts_failed.sql", postgres_url)
    found = dict(zip(header, row, strict=True))
    assert (found["attempt"], found["status"], found["batch"]) == ("3:1", "failed", "planned")
    assert found["error"] == "the disk is full"


@pytest.mark.usefixtures("batches")
def test_keys_changed_by_last_batch(postgres_url: str) -> None:
    assert report("keys_changed_by_last_batch.sql", postgres_url) == [
        ["word", "contributed", "before", "now", "txid"],
        ["cat", "2", "", "2", "2"],
        ["man", "1", "2", "3", "2"],
    ]


@pytest.mark.usefixtures("batches")
def test_restatements_and_what_is_current_to_when(postgres_url: str, engine: Engine) -> None:
    with engine.begin() as connection:
        for statement in (
            "UPDATE txbatch.batch SET status = 'committed', kind = 'restate', position = 1, reason = 'a bad file',"
            " requested_by = 'ana', fence = 2, token = 't', committed_fence = 2, committed_at = now(), records = 2"
            " WHERE txid = 3",
            "UPDATE txbatch.batch SET replaced_by = 3 WHERE txid = 1",
            "INSERT INTO txbatch.partition SELECT topology, stream, partition, 3, status, metadata, 2, fingerprint"
            " FROM txbatch.partition WHERE txid = 1",
        ):
            connection.execute(text(statement))
    header, row = report("restatements.sql", postgres_url)
    found = dict(zip(header, row, strict=True))
    assert [found[name] for name in ("position", "was_txid", "now_txid", "status", "requested_by", "reason")] == [
        *("1", "1", "3", "committed", "ana", "a bad file")
    ]
    assert (found["records_before"], found["records"]) == ("3", "2")
    header, row = report("current_to.sql", postgres_url)
    found = dict(zip(header, row, strict=True))
    assert [found[name] for name in ("topology", "txid", "in_flight", "restated_by")] == ["word_count", "3", "0", "3"]


def test_reports_of_an_empty_ledger(txbatch: Txbatch, postgres_url: str) -> None:
    for file in ("batches_in_flight.sql", "attempts_failed.sql"):
        assert len(report(file, postgres_url)) == 1


def test_reports_are_plain_sql() -> None:
    assert not [file.name for file in Path(REPORTS).glob("*.sql") if "\\" in file.read_text()]


@pytest.mark.usefixtures("batches")
def test_psql_changes_nothing(postgres_url: str) -> None:
    done = psql("-c", "UPDATE state.word_count SET txid = 0", url=postgres_url)
    assert (done.returncode, done.stderr) == (1, "ERROR:  cannot execute UPDATE in a read-only transaction\n")


def test_psql_gets_a_password_by_its_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=1MB")
    engine = connect("postgresql://reader:se%40cret@db.example:5433/sales?sslmode=require")
    (_, dsn, *rest), environment = command(engine, ["-f", "a b.sql"])
    assert dsn == "--dbname=host=db.example dbname=sales user=reader port=5433 sslmode=require"
    assert rest == ["-f", "a b.sql"]
    assert environment["PGPASSWORD"] == "se@cret"
    assert environment["PGOPTIONS"] == "-c work_mem=1MB -c default_transaction_read_only=on"


@pytest.mark.parametrize("options", ["-csearch_path%3Dreport", "-c%20default_transaction_read_only%3Doff"])
def test_options_of_a_url_do_not_make_psql_write(postgres_url: str, options: str) -> None:
    done = psql("-c", "CREATE TABLE public.mine ()", url=f"{postgres_url}&options={options}")
    assert (done.returncode, done.stderr) == (1, "ERROR:  cannot execute CREATE TABLE in a read-only transaction\n")


def test_a_service_file_does_not_make_psql_write(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (_, dsn), _ = command(connect(f"{postgres_url}&service=mine"), [])
    assert "options='-c default_transaction_read_only=on'" in dsn


def test_a_password_of_a_key_is_not_put_on_a_command_line() -> None:
    with pytest.raises(DefinitionError, match="sslpassword would stand on psql's command line"):
        command(connect("postgresql://reader@db.example/sales?sslpassword=geheim"), [])


@pytest.mark.usefixtures("batches")
def test_a_reader_alone_may_use_psql(postgres_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the role of docs/run/roles.md, made as on the embedded server; what else it may do: nothing."""
    make_reader(engine)
    with engine.begin() as connection:
        connection.execute(text("GRANT CONNECT ON DATABASE postgres TO PUBLIC"))  # as earlier versions left it
    make_reader(engine)
    as_reader = make_url(postgres_url).set(username="report").render_as_string(hide_password=False)
    assert psql("-At", "-c", "SELECT count(*) > 0 FROM report.batches", url=as_reader).stdout == "t\n"
    for statement, told in {
        "SELECT * FROM txbatch.batch": "permission denied for schema txbatch",
        "COPY (SELECT 1) TO PROGRAM 'id'": "permission denied to COPY to or from an external program",
        "SELECT pg_read_file('PG_VERSION')": "permission denied for function pg_read_file",
        "BEGIN READ WRITE; CREATE TABLE public.mine (); COMMIT": "permission denied for schema public",
        "BEGIN READ WRITE; CREATE TEMP TABLE mine (); COMMIT": "permission denied to create temporary tables",
        "BEGIN READ WRITE; SELECT lo_create(7); COMMIT": "permission denied for function lo_create",
        "BEGIN READ WRITE; DELETE FROM report.word_count; COMMIT": "permission denied for view word_count",
        "SET ROLE txbatch": 'permission denied to set role "txbatch"',
    }.items():
        assert told in psql("-c", statement, url=as_reader).stderr
    for database in ("postgres", "template1"):
        elsewhere = make_url(as_reader).set(database=database).render_as_string(hide_password=False)
        assert f'permission denied for database "{database}"' in psql("-c", "SELECT lo_create(7)", url=elsewhere).stderr
    monkeypatch.setenv("TXBATCH_DATABASE_URL", as_reader)
    refused(
        CliRunner().invoke(main, ["status"]),
        "permission denied for schema txbatch: role 'report' lacks USAGE or CREATE on schema txbatch. A role that runs batches",
    )


def test_what_a_reader_changed_of_itself_is_put_back_by_several_at_once(postgres_url: str, engine: Engine) -> None:
    make_reader(engine)
    as_reader = make_url(postgres_url).set(username="report").render_as_string(hide_password=False)
    for change in (
        "ALTER ROLE report SET statement_timeout = '1h'",
        f"ALTER ROLE report IN DATABASE {engine.url.database} SET work_mem = '1MB'",
        "ALTER ROLE report RESET ALL",
        "ALTER ROLE report PASSWORD 'mine'",
    ):
        assert psql("-c", f"BEGIN READ WRITE; {change}; COMMIT", url=as_reader).stderr == ""
        with ThreadPoolExecutor() as several:
            list(several.map(make_reader, [engine] * 4))
        with engine.connect() as connection:
            rows = "SELECT setdatabase, setconfig FROM pg_db_role_setting WHERE setrole = 'report'::regrole"
            assert list(connection.execute(text(rows))) == [(0, ["default_transaction_read_only=on"])]
            password = "SELECT rolpassword FROM pg_authid WHERE rolname = 'report'"
            assert connection.scalar(text(password)) is None


def test_psql_of_nobody() -> None:
    done = psql(url="postgresql://127.0.0.1:1/nobody")
    assert done.returncode == 1
    assert "txbatch: " in done.stderr
