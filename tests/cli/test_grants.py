"""`txbatch grants`: with what it grants, the writer does all that it has to, the reader reads reports, and neither does more."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli_support import MAIN, refused
from click.testing import CliRunner, Result
from databases import admin, in_database
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import ProgrammingError
from without_spark import LikeTheDriver

from txbatch import settings
from txbatch.cli.main import main
from txbatch.postgres.database import grants
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import migrate
from txbatch.postgres.database.psql import command
from txbatch.postgres.database.queries import sql_root

ROOT = settings.project_root()
NAMES = ('the "owner"', "the writer's", "Reader $1")
PLAIN = ("plain_owner", "plain_writer", "plain_reader")
JOB = """
def number(record):
    return int(record["word"])
topology = Topology({name!r}, quarantine=5)
stream = topology.new_stream("in", FixedBatchSpout("word string", 2, "1", "x", "2", "y", "1", "3"))
stream.map(number, "n bigint").persist(AppendState("{name}_rows"))
counted = stream.group_by("word").persistent_aggregate(OpaqueState({name!r}), count=Count(){more})
counted.new_values_into("told.{name}")
"""
MORE = ', greatest=Max("word")'
READABLE = """
SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname LIKE 'report%' AND c.relkind IN ('v', 'r', 'm') ORDER BY 1
"""
RIGHTS = "SELECT oid::regclass::text, relacl::text FROM pg_class WHERE relacl IS NOT NULL ORDER BY 1"
SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema$|public$)' ORDER BY 1"


@dataclass
class Site:
    """A database with three roles, and the command as one of them."""

    url: str
    monkeypatch: pytest.MonkeyPatch

    def as_(self, role: str | None) -> str:
        url = make_url(self.url)
        return (url if role is None else url.set(username=role)).render_as_string(hide_password=False)

    def call(self, role: str | None, *given: str) -> Result:
        self.monkeypatch.setenv("TXBATCH_DATABASE_URL", self.as_(role))
        return CliRunner().invoke(main, list(given), prog_name="txbatch")

    def done(self, role: str | None, *given: str) -> str:
        result = self.call(role, *given)
        assert result.exit_code == 0, result.output
        return result.output

    def ask(self, role: str | None, statement: str) -> list[tuple[Any, ...]]:
        engine = create_engine(make_url(self.as_(role)).set(drivername="postgresql+psycopg2"))
        try:
            with engine.begin() as connection:
                found = connection.exec_driver_sql(statement.replace("%", "%%"))
                return [tuple(row) for row in found] if found.returns_rows else []
        finally:
            engine.dispose()

    def denied(self, role: str, statement: str) -> str:
        with pytest.raises(ProgrammingError, match=r"permission denied|must be") as error:
            self.ask(role, statement)
        return str(error.value.orig)


@pytest.fixture
def site(postgres_server: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """An empty database of its own on the tests' server, whose roles go with it."""
    assert home
    monkeypatch.setattr("txbatch.wiring.Application", LikeTheDriver)
    admin(postgres_server, "CREATE DATABASE granted")
    site = Site(in_database(postgres_server, "granted"), monkeypatch)
    yield site
    admin(postgres_server, "DROP DATABASE granted WITH (FORCE)")
    for name in ("ana", *NAMES, *PLAIN, "plain_admin"):
        admin(postgres_server, f"DROP ROLE IF EXISTS {grants.pg_name(name)}")


@pytest.fixture
def made(site: Site) -> Site:
    """The roles and a ledger, by the steps that the command tells."""
    owner, _, _ = NAMES
    site.done(None, "grants", *NAMES, "--create", "--apply")
    site.done(owner, "migrate")
    site.done(owner, "grants", *NAMES, "--apply")
    return site


Job = Callable[..., str]


@pytest.fixture
def job(write_job: Callable[[str, str], str]) -> Job:
    """Writes a job of three batches, with a quarantine."""

    def write(name: str = "word_count", more: str = "") -> str:
        return write_job(f"{name}_job.py", JOB.format(name=name, more=more) + MAIN)

    return write


def checks(site: Site, role: str | None, of: str = "rights") -> dict[str, Any]:
    """What `doctor` says of rights, or by another check."""
    (row,) = [row for row in rows_of(site.call(role, "doctor", "--json")) if row["check"] == of]
    return row


def rows_of(result: Result) -> list[dict[str, Any]]:
    return list(json.loads(result.stdout))


def test_the_writer_does_all_that_a_writer_has_to(made: Site, job: Job) -> None:
    """Runs, restates, verifies, changes, rebuilds, folds and drops."""
    owner, writer, _ = NAMES
    assert checks(made, writer)["detail"] == f"role {writer} may run, rebuild and report"
    made.done(writer, "run", job(), "--until-idle")
    made.done(writer, "restate", "word_count", "1", "--why", "a bad file")
    made.done(writer, "verify", "word_count")
    made.done(writer, "rebuild", job(more=MORE), "--why", "the greatest, too")
    assert checks(made, writer)["ok"]
    assert checks(made, owner)["ok"]
    made.done(writer, "verify", "word_count")
    made.done(writer, "change", job(), "--why", "not the greatest")
    made.done(writer, "gc", "word_count", "--keep-txids", "1")
    made.done(writer, "as-of", "word_count", "4")
    assert made.ask(writer, "SELECT count(*) > 0 FROM told.word_count") == [(True,)]
    made.done(writer, "drop", "word_count", "--yes")


def test_the_reader_asks_every_report_and_nothing_else(made: Site, job: Job) -> None:
    _, writer, reader = NAMES
    made.ask(None, f"ALTER ROLE {grants.pg_name(reader)} LOGIN")
    made.done(writer, "run", job(), "--until-idle")
    for file in sorted((sql_root() / "reports").glob("*.sql")):
        made.ask(reader, file.read_text())
    assert len(made.ask(reader, "SELECT * FROM report.as_of_word_count(3)")) == 5
    assert "permission denied" in made.denied(reader, "SELECT * FROM report.as_of_word_count_quarantine(3)")
    made.done(writer, "rebuild", job(more=MORE), "--why", "the greatest, too")
    shown = [view for (view,) in made.ask(None, READABLE)]
    assert {"report.word_count", "report_past_1.word_count", "report.word_count_quarantine"} <= {*shown}
    for view in shown:
        if "quarantine" in view:
            assert "permission denied" in made.denied(reader, f"SELECT * FROM {view}")
        else:
            made.ask(reader, f"SELECT * FROM {view}")
    assert len(made.ask(reader, "SELECT * FROM report_past_1.as_of_word_count(2)")) == 4
    for statement in (
        "SELECT * FROM txbatch.batch",
        "SELECT * FROM state.word_count",
        "DELETE FROM report.word_count",
        "CREATE TABLE report.mine ()",
        "CREATE TABLE public.mine ()",
        "CREATE TEMP TABLE mine ()",
        "CREATE SCHEMA mine",
        "SELECT lo_create(7)",
    ):
        made.denied(reader, statement)
    for statement in ("UPDATE txbatch.migration SET name = ''", "ALTER TABLE txbatch.batch ADD mine text"):
        made.denied(writer, statement)


def test_a_reader_of_quarantines_reads_those_of_later_topologies(made: Site, job: Job) -> None:
    owner, writer, reader = NAMES
    made.ask(None, f"ALTER ROLE {grants.pg_name(reader)} LOGIN")
    made.done(writer, "run", job(), "--until-idle")
    made.done(owner, "grants", *NAMES, "--quarantine", "--apply")
    made.done(writer, "run", job("others"), "--until-idle")
    for name in ("word_count", "others"):
        assert len(made.ask(reader, f"SELECT * FROM report.{name}_quarantine")) == 2
        assert len(made.ask(reader, f"SELECT * FROM report.as_of_{name}_quarantine(2)")) == 2
    made.denied(reader, "SELECT * FROM state.word_count_quarantine")
    made.done(owner, "grants", *NAMES, "--apply")
    made.done(writer, "rebuild", job(more=MORE), "--why", "the greatest, too")
    for view in ("report.word_count_quarantine", "report.others_quarantine", "report_past_1.word_count_quarantine"):
        made.denied(reader, f"SELECT * FROM {view}")
    assert made.ask(reader, "SELECT count(*) FROM report.word_count") == [(5,)]


def test_errors_of_attempts_are_for_those_who_may_read_quarantines(
    made: Site, write_job: Callable[[str, str], str]
) -> None:
    """An error cites the record that failed."""
    owner, writer, reader = NAMES
    made.ask(None, f"ALTER ROLE {grants.pg_name(reader)} LOGIN")
    failing = JOB.replace('"n bigint")', '"n bigint", on_error="fail")').format(name="words", more="")
    assert made.call(writer, "run", write_job("words_job.py", failing + MAIN)).exit_code == 1
    asked = "SELECT status, error FROM report.attempts"
    ((_, cited),) = made.ask(writer, asked)
    assert "'x'" in cited
    hidden = "not shown to who may not read quarantines: `txbatch grants OWNER WRITER READER --quarantine`"
    assert made.ask(reader, asked) == [("failed", hidden)]
    assert made.ask(reader, f"{asked} WHERE error LIKE '%x%' AND error <> {grants.pg_text(hidden)}") == []
    made.ask(None, f"CREATE ROLE ana LOGIN IN ROLE {grants.pg_name(reader)}")
    assert made.ask("ana", asked) == [("failed", hidden)]
    made.done(owner, "grants", *NAMES, "--quarantine", "--apply")
    assert made.ask(reader, asked) == made.ask("ana", asked) == made.ask(owner, asked) == [("failed", cited)]
    made.done(owner, "grants", *NAMES, "--apply")
    assert made.ask(reader, asked) == [("failed", hidden)]


def test_a_view_of_a_quarantine_that_is_made_again_is_kept_from_readers(made: Site, job: Job) -> None:
    """As after an upgrade: the ledger of an older version lacks a view, and the next run makes that view."""
    _, writer, reader = NAMES
    made.ask(None, f"ALTER ROLE {grants.pg_name(reader)} LOGIN")
    made.done(writer, "run", job())
    made.ask(
        writer, 'DROP VIEW report."word_count_quarantine@versions"; DROP VIEW report.word_count_quarantine_changes'
    )
    made.done(writer, "run", job())
    for view in ('report."word_count_quarantine@versions"', "report.word_count_quarantine_changes"):
        assert len(made.ask(writer, f"SELECT * FROM {view}")) > 0
        assert "permission denied" in made.denied(reader, f"SELECT * FROM {view}")


def test_each_schema_of_a_migration_is_granted(site: Site) -> None:
    """A migration that makes a schema is whole only with its grants."""
    migrate(connect(site.url))
    found = {name for (name,) in site.ask(None, SCHEMAS)}
    text = grants.ledger_sql(grants.Roles(*PLAIN))
    granted = {
        name
        for line in re.findall(r"^GRANT .* ON SCHEMA (.*) TO \"plain_writer\";$", text, re.M)
        for name in line.split(", ")
    }
    assert granted == found
    kept_from = re.search(r"^REVOKE ALL ON SCHEMA (.*) FROM \"plain_reader\";$", text, re.M)
    assert kept_from
    assert {*kept_from[1].split(", ")} == found - {"report"}


def test_doctor_names_each_right_that_is_missing(made: Site) -> None:
    owner, writer, _ = NAMES
    name = grants.pg_name(writer)
    by_admin = ", and an administrator what is on a database, by the same with `--create`"
    for statement, told in {
        f"REVOKE CREATE ON DATABASE granted FROM {name}": "for a rebuild: CREATE on database granted",
        f"REVOKE USAGE ON SCHEMA contribution_base FROM {name}": "for a run: USAGE on schema contribution_base",
        f"REVOKE INSERT, DELETE ON txbatch.batch FROM {name}": "for a run: DELETE, INSERT on txbatch.batch",
        f"REVOKE SELECT ON report.batches FROM {name}": "for a report: SELECT on report.batches",
    }.items():
        made.ask(None, statement)
        said = checks(made, writer)
        assert not said["ok"]
        assert said["detail"].startswith(
            f"TX804 (no retry helps): role {writer!r} lacks {told}: the ledger's owner grants it by "
            f"`txbatch grants OWNER WRITER READER --apply`{by_admin}"
        )
        made.done(None, "grants", *NAMES, "--create", "--apply")
        made.done(owner, "grants", *NAMES, "--apply")
        assert checks(made, writer)["ok"]


def test_doctor_says_of_no_role_that_it_may_run_before_the_ledger_is_migrated(site: Site) -> None:
    owner, writer, _ = NAMES
    site.done(None, "grants", *NAMES, "--create", "--apply")
    said = checks(site, owner)
    assert not said["ok"]
    assert "run `txbatch migrate`" in said["detail"]
    site.ask(None, f"REVOKE CREATE ON DATABASE granted FROM {grants.pg_name(writer)}")
    assert "CREATE on database granted" in checks(site, writer)["detail"]


def test_a_missing_right_is_told_with_its_object_and_to_whom_it_matters(made: Site, job: Job) -> None:
    _, writer, _ = NAMES
    made.ask(None, f"REVOKE ALL ON SCHEMA contribution_base FROM {grants.pg_name(writer)}")
    said = made.call(writer, "run", job())
    told = (
        f"permission denied for schema contribution_base: role {writer!r} lacks USAGE or CREATE on schema contribution_base. "
        "A role that runs batches or rebuilds needs it: the ledger's owner grants it by "
        "`txbatch grants OWNER WRITER READER --apply`"
    )
    assert told in said.output


def test_an_administrator_who_may_not_grant_is_told(site: Site) -> None:
    """PostgreSQL itself only warns: nothing was granted, and the command said that all was."""
    site.ask(None, "CREATE ROLE plain_admin LOGIN CREATEROLE")
    told = "role plain_admin may not grant on database granted: its owner or a superuser runs this"
    refused(site.call("plain_admin", "grants", *PLAIN, "--create", "--apply"), told)
    assert site.ask(None, "SELECT FROM pg_roles WHERE rolname = 'plain_writer'") == []


def test_an_administrator_who_is_no_superuser_is_told_what_stays(site: Site) -> None:
    site.ask(None, "CREATE ROLE plain_admin LOGIN CREATEROLE")
    site.ask(None, "ALTER DATABASE granted OWNER TO plain_admin; GRANT CREATE ON SCHEMA public TO PUBLIC")
    said = site.done("plain_admin", "grants", *PLAIN, "--create", "--apply")
    assert 'no privileges could be revoked for "lo_create"' in said
    assert "granted in database granted" in said
    site.ask(None, "ALTER ROLE plain_reader LOGIN")
    site.denied("plain_reader", "CREATE TABLE public.mine ()")


def test_it_says_what_comes_first(site: Site) -> None:
    owner, writer, reader = NAMES
    refused(site.call(None, "grants", *NAMES, "--apply"), f"the server has no role {owner!r}, {writer!r}, {reader!r}")
    site.done(None, "grants", *NAMES, "--create", "--apply")
    refused(site.call(None, "grants", *NAMES, "--apply"), f"if it is, run `txbatch migrate` as {owner!r}, then")
    site.done(owner, "migrate")
    refused(site.call(writer, "grants", *NAMES, "--apply"), f"role {writer!r} may not grant what {owner!r} owns")


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("o", "w", "public"), "'public' cannot be a role"),
        (("o", "w", "w"), "the reader 'w' would be a writer as well"),
        (("o", "w$grants$", "r"), "cannot be a role"),
        (("o", "w" * 64, "r"), "cannot be a role"),
    ],
)
def test_names_that_cannot_be_meant(names: tuple[str, ...], told: str) -> None:
    refused(CliRunner().invoke(main, ["grants", *names]), told)


def test_one_role_may_own_and_write(site: Site, job: Job) -> None:
    owner, _, reader = NAMES
    site.done(None, "grants", owner, owner, reader, "--create", "--apply")
    site.done(owner, "migrate")
    for _ in range(2):
        site.done(owner, "grants", owner, owner, reader, "--apply")
    site.done(owner, "run", job())
    assert site.done(owner, "migrate")
    site.ask(None, f"ALTER ROLE {grants.pg_name(reader)} LOGIN")
    assert site.ask(reader, "SELECT count(*) FROM report.word_count") == [(2,)]


def test_what_is_printed_is_what_is_applied(site: Site) -> None:
    """By psql, any number of times, before or after."""
    owner = PLAIN[0]
    for _ in range(2):
        psql(site, None, site.done(None, "grants", *PLAIN, "--create"))
    site.done(owner, "migrate")
    for _ in range(2):
        psql(site, owner, site.done(None, "grants", *PLAIN))
    before = site.ask(None, RIGHTS)
    site.done(owner, "grants", *PLAIN, "--apply")
    assert before == site.ask(None, RIGHTS)
    assert checks(site, PLAIN[1])["ok"]


def psql(site: Site, role: str | None, statements: str) -> None:
    line, environment = command(connect(site.as_(role)), ["-X", "-q", "-f", "-"])
    environment.pop("PGOPTIONS")
    done = subprocess.run(line, env=environment, input=statements, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_one_source_is_what_the_stack_the_starter_and_the_docs_have() -> None:
    roles = grants.Roles("txbatch_owner", "txbatch", "report")
    made, granted = grants.whole(grants.roles_sql(roles)), grants.whole(grants.ledger_sql(roles))
    assert (ROOT / "starter" / "postgres" / "10-roles.sql").read_text() == made
    documented = (ROOT / "docs" / "reference" / "grants.md").read_text()
    assert f"```sql\n{made}```" in documented
    assert f"```sql\n{granted}```" in documented
    command = "txbatch grants txbatch_owner txbatch report --apply"
    for file in ("docker/migrate", "starter/docker-compose.yml", "docs/run/roles.md", "docs/run/install.md"):
        assert command in (ROOT / file).read_text(), file
    by_hand = re.compile(r"^(GRANT|ALTER DEFAULT PRIVILEGES)", re.M)
    for folder in ("docker", "starter"):
        assert not [each for each in (ROOT / folder).rglob("*.sql") if by_hand.search(each.read_text())]


APART = (
    """
topology = Topology("apart")
stream = topology.new_stream("in", FixedBatchSpout("word string", 2, "1", "x", "2"))
stream.group_by("word").persistent_aggregate(OpaqueState("apart", database="warehouse"), count=Count())
"""
    + MAIN
)


@pytest.fixture
def there(made: Site, postgres_server: str) -> Iterator[Site]:
    """A database for states apart, which the settings name by an administrator's URL."""
    admin(postgres_server, "CREATE DATABASE warehouse")
    there = Site(in_database(postgres_server, "warehouse"), made.monkeypatch)
    made.monkeypatch.setenv("TXBATCH_DATABASE_URL_WAREHOUSE", there.as_(None))
    yield there
    admin(postgres_server, "DROP DATABASE warehouse WITH (FORCE)")


APART_GRANTS = ("grants", *NAMES, "--warehouse", "warehouse", "--apply")


@pytest.mark.parametrize("first", ["grants", "run"])
def test_a_warehouse_serves_its_writer_and_its_readers(
    first: str, made: Site, there: Site, write_job: Callable[[str, str], str]
) -> None:
    _, writer, reader = NAMES
    made.ask(None, f"ALTER ROLE {grants.pg_name(reader)} LOGIN")
    job, set_to = write_job("apart.py", APART), partial(made.monkeypatch.setenv, "TXBATCH_DATABASE_URL_WAREHOUSE")
    made.done(None, *APART_GRANTS, "--create")
    steps = {"grants": (None, APART_GRANTS), "run": (writer, ("run", job, "--until-idle"))}
    for step in sorted(steps, key=lambda each: each != first):
        role, given = steps[step]
        set_to(there.as_(role))
        made.done(role, *given)
    assert there.ask(reader, "SELECT count(*) FROM report.apart") == [(3,)]
    there.denied(reader, "SELECT * FROM state.apart")
    there.denied(reader, "SELECT lo_create(7)")


def test_a_right_that_is_missing_in_a_warehouse_is_told_with_its_grants(
    made: Site, there: Site, write_job: Callable[[str, str], str]
) -> None:
    _, writer, _ = NAMES
    name, job = grants.pg_name(writer), write_job("apart.py", APART)
    made.done(None, *APART_GRANTS, "--create")
    made.done(None, *APART_GRANTS)
    made.monkeypatch.setenv("TXBATCH_DATABASE_URL_WAREHOUSE", there.as_(writer))
    made.done(writer, "run", job)
    assert checks(made, writer, "warehouses") == {"check": "warehouses", "ok": True, "detail": "1 states in warehouse"}
    there.ask(None, f"REVOKE USAGE ON SCHEMA state FROM {name}; REVOKE DELETE ON txbatch.apart FROM {name}")
    told = checks(made, writer, "warehouses")["detail"]
    assert told.startswith(
        f"TX804 (no retry helps): role {writer!r} lacks in database 'warehouse' for a run: USAGE on schema state, DELETE on "
        "txbatch.apart"
    )
    assert "`txbatch grants OWNER WRITER READER --warehouse warehouse --apply`" in told
    refused(made.call(writer, "run", job), "OWNER WRITER READER --warehouse warehouse --apply`")
    there.ask(None, f"GRANT USAGE ON SCHEMA state TO {name}; GRANT DELETE ON txbatch.apart TO {name}")
    there.ask(None, "ALTER TABLE state.apart OWNER TO CURRENT_USER")
    assert (
        "lacks in database 'warehouse' for a run: ownership on state.apart"
        in checks(made, writer, "warehouses")["detail"]
    )
    refused(made.call(writer, "run", job), "ALTER TABLE")
    made.ask(None, f"REVOKE ALL ON txbatch.attempt FROM {name}")
    there.ask(None, f"ALTER TABLE state.apart OWNER TO {name}")
    told = checks(made, writer, "warehouses")["detail"]
    assert "on table attempt" in told
    assert "--warehouse" not in told  # asked of the ledger while a transaction of the warehouse is open
