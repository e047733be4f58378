"""Every bad input ends with exit code 1, one or two lines that say what to do, and nothing changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_support import COUNT, job_of, refused
from click.testing import Result
from sqlalchemy import Engine

from txbatch import fit, settings
from txbatch.cli.project import doctor
from txbatch.embedded import postgres
from txbatch.postgres.database import engine as engines
from txbatch.postgres.reading.ledger_reader import LedgerReader

Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "must define exactly one topology at module level; it defines none"),
        (
            job_of("a", "a") + "other = Topology('b')\n",
            "must define exactly one topology at module level; it defines a, b",
        ),
        ("topology = Topology('a')\n", "topology 'a' ends in no state; end a stream with persistent_aggregate(...)"),
        ("topology = Topology('a b')\n", "topology 'a b': a name has letters, digits"),
        ("1 +\n", "cannot be loaded: SyntaxError"),
        ("import nosuch\n", "cannot be loaded: ModuleNotFoundError: No module named 'nosuch'"),
        (job_of("a", "a") + "raise SystemExit(emit(topology))\n", "call emit(topology) only below `if __name__"),
        (job_of("a", "ü" * 40), "PostgreSQL would cut the names made from it: use at most 43"),
        (job_of("a", ""), "state '' is not a name"),
        (job_of("a", "a").replace("Opaque", "NonTransactional"), 'or say guarantee="at_least_once"'),
        (job_of("a", "a") + COUNT.format(state="a"), "state 'a' is given twice; rename one of them"),
    ],
)
def test_a_job_that_is_none(txbatch: Txbatch, write_job: WriteJob, engine: Engine, text: str, told: str) -> None:
    refused(txbatch("run", write_job("job.py", text)), told)
    assert LedgerReader(engine).status() == []


def test_a_job_file_that_is_not_there(txbatch: Txbatch) -> None:
    refused(
        txbatch("run", "jobs/nosuch.py"), "nosuch.py does not exist; give the path of a job, such as jobs/word_count.py"
    )


@pytest.mark.parametrize("command", [("batches", "nosuch"), ("status", "nosuch"), ("drop", "nosuch", "--yes")])
def test_an_unknown_topology(txbatch: Txbatch, command: tuple[str, ...]) -> None:
    refused(txbatch(*command), "no topology 'nosuch' is known; `txbatch status` lists them")
    as_json = txbatch(*command, "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["error"] == "UnknownName"


def test_a_folder_that_is_missing(txbatch: Txbatch, write_job: WriteJob, engine: Engine, tmp_path: Path) -> None:
    text = job_of("a", "a").replace('FixedBatchSpout("word string", 1, ("a"), ("b"))', f'FileSpout("{tmp_path}/none")')
    job = write_job("job.py", text.replace('group_by("word")', 'group_by("line")'))
    refused(txbatch("run", job), "none is not a folder that can be read; create it or mend the path")
    assert LedgerReader(engine).batches("a") == []


@pytest.mark.parametrize(
    "command", [("status",), ("batches", "a"), ("query", "a", "b"), ("migrate",), ("run",), ("drop", "a")]
)
def test_a_database_that_does_not_answer(
    txbatch: Txbatch, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("TXBATCH_DATABASE_URL", "postgresql+psycopg2://me:geheim@127.0.0.1:1/none")
    if command == ("run",):
        command = ("run", write_job("job.py", job_of("a", "a")))
    result = txbatch(*command)
    refused(result, "Connection refused")
    assert "`txbatch doctor`" in result.stderr
    assert "geheim" not in result.output


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "mysql://me:geheim@host/db",
        "postgresql+asyncpg://me:geheim@host/db",
        "postgresql://me:geheim@host:port/db",
        "postgresql://me:geheim@[::1/db",
    ],
)
def test_a_url_that_is_none(txbatch: Txbatch, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("TXBATCH_DATABASE_URL", url)
    result = txbatch("status")
    refused(result, "TXBATCH_DATABASE_URL")
    assert "geheim" not in result.output + txbatch("-v", "status").output


def test_a_server_that_is_too_old(txbatch: Txbatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "SERVER_VERSION_MIN", 990000)
    refused(txbatch("status"), "is too old: txbatch needs 15 or newer")


def test_versions_that_do_not_fit(txbatch: Txbatch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each is told in one line, with the versions that fit."""
    monkeypatch.setattr(settings, "project_root", lambda: tmp_path)
    monkeypatch.setattr(fit, "installed", {"apache-airflow": "3.5.0", "pyspark": "5.0.0"}.get)
    monkeypatch.setattr(fit, "sys", SimpleNamespace(version_info=(3, 15, 0)))
    monkeypatch.setattr(doctor, "check_fit", fit.check_fit.__wrapped__)
    result = txbatch("doctor", "--json")
    told = {row["check"]: row["detail"] for row in json.loads(result.stdout) if not row["ok"]}
    assert result.exit_code == 1
    for check, found, fits in (
        ("python", "Python 3.15.0", "3.11 to 3.14"),
        ("airflow", "apache-airflow 3.5.0", ">=3.1,<3.5"),
        ("spark", "pyspark 5.0.0", ">=4.2,<4.4"),
    ):
        assert told[check].startswith(f"TX809 (no retry helps): {found} does not fit txbatch, which needs ")
        assert fits in told[check]
        assert "\n" not in told[check]


@pytest.mark.parametrize("command", [("status",), ("batches", "a"), ("query", "a", "b"), ("run",), ("drop", "a")])
def test_a_database_that_is_not_migrated(
    txbatch: Txbatch,
    write_job: WriteJob,
    monkeypatch: pytest.MonkeyPatch,
    postgres_server: str,
    command: tuple[str, ...],
) -> None:
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_server)  # its own database, which no test migrates
    if command == ("run",):
        command = ("run", write_job("job.py", job_of("a", "a")))
    refused(
        txbatch(*command), "has no ledger: see whether it is the database that you mean, by TXBATCH_DATABASE_URL or "
    )


def test_an_embedded_server_that_cannot_be_made(
    txbatch: Txbatch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TXBATCH_DATABASE_URL")
    (tmp_path / "file").touch()
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "file" / "home"))
    assert not postgres.is_running(tmp_path)
    refused(txbatch("status"), "Not a directory; set TXBATCH_HOME to a folder of your own")


def test_two_topologies_of_one_name(txbatch: Txbatch, write_job: WriteJob) -> None:
    assert txbatch("run", write_job("one.py", job_of("a", "a"))).exit_code == 0
    other = write_job("two.py", job_of("a", "a").replace('("b")', '("c")'))
    refused(
        txbatch("run", other),
        f"one.py defines it already; if {other} is a second job, give its topology another name there",
    )


@pytest.mark.rule("R11")
def test_a_pair_that_is_not_exactly_once(txbatch: Txbatch, write_job: WriteJob, engine: Engine) -> None:
    """Refused before anything is planned; said out loud, it runs."""
    job = job_of("words", "words").replace("OpaqueState", "NonTransactionalState")
    refused(txbatch("run", write_job("job.py", job)), 'say guarantee="at_least_once"')
    assert LedgerReader(engine).status() == []
    said = job.replace("count=Count()", 'guarantee="at_least_once", count=Count()')
    assert txbatch("run", write_job("job.py", said)).exit_code == 0


def test_two_topologies_on_one_state(txbatch: Txbatch, write_job: WriteJob, engine: Engine) -> None:
    assert txbatch("run", write_job("one.py", job_of("a", "shared"))).exit_code == 0
    refused(txbatch("run", write_job("two.py", job_of("b", "shared"))), "state 'shared' belongs to topology 'a'")
    assert [row["topology"] for row in LedgerReader(engine).status()] == ["a"]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            "count=Count()",
            "total=Count()",
            "value 'count' of state 'a' is gone; value 'total' of state 'a' is new (bigint",
        ),
        (
            "count=Count()",
            'count=Max("word")',
            "value 'count' of state 'a' changes from Count to Max of word",
        ),
        ("Opaque", "Transactional", "state 'a' changes from opaque to transactional"),
    ],
)
def test_a_state_defined_otherwise(txbatch: Txbatch, write_job: WriteJob, before: str, after: str, told: str) -> None:
    job = job_of("a", "a")
    assert txbatch("run", write_job("job.py", job)).exit_code == 0
    result = txbatch("run", write_job("job.py", job.replace(before, after)))
    refused(result, told)
    assert "Put the old definition back; or `txbatch rebuild a --why" in result.stderr
    assert "txbatch drop" not in result.stderr, "of all ways out the page tells, and the message of the first"
    refused(txbatch("plan", write_job("job.py", job.replace(before, after))), told)


def test_an_error_nobody_thought_of(txbatch: Txbatch, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("txbatch.postgres.database.migrate.check_migrated", fail)
    refused(txbatch("status"), "OSError: [Errno 28] No space left on device; `txbatch -v` shows where")
    assert "Traceback" in txbatch("-v", "status").stderr
