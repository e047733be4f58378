"""Migrations arrive at sql/schema.sql, once, and the tables refuse what cannot be."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import takewhile
from threading import Barrier
from typing import Any

import pytest
from postgres_bench import Bench, Calls, words
from refusals import refused
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from txbatch.core.errors import DefinitionError, NotMigrated, SchemaMismatch, Unavailable
from txbatch.postgres.database import migrate as module
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import Migration, check_migrated, migrate, migrations
from txbatch.postgres.database.queries import sql_root, statements
from txbatch.postgres.database.warehouse_migrations import migrate_warehouse

CATALOGS = {
    "columns": """SELECT table_schema, table_name, column_name, ordinal_position, data_type, is_nullable, column_default,
                         collation_name FROM information_schema.columns WHERE table_schema IN ('txbatch', 'report', 'state')""",
    "constraints": """SELECT conrelid::regclass::text, contype, pg_get_constraintdef(oid) FROM pg_constraint
                       WHERE connamespace = 'txbatch'::regnamespace""",
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'txbatch'",
    "functions": """SELECT CASE WHEN prokind = 'a' THEN (SELECT (p.oid::regprocedure, aggtransfn, aggtranstype::regtype)::text
                                                          FROM pg_aggregate WHERE aggfnoid = p.oid)
                                ELSE pg_get_functiondef(p.oid) END, obj_description(p.oid)
                     FROM pg_proc p WHERE pronamespace = 'report'::regnamespace""",
    "views": "SELECT viewname, definition FROM pg_views WHERE schemaname = 'report'",
    "schemas": """SELECT nspname, obj_description(oid) FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema)'
                     AND nspname <> 'public'""",
    "options": "SELECT relname, reloptions FROM pg_class WHERE relnamespace = 'txbatch'::regnamespace",
}


def catalog(engine: Engine) -> dict[str, list[Any]]:
    with engine.connect() as connection:
        return {name: sorted(map(str, connection.execute(text(sql)))) for name, sql in CATALOGS.items()}


@pytest.fixture
def empty(postgres_server: str) -> Any:
    from databases import admin, in_database

    admin(postgres_server, "CREATE DATABASE empty")
    yield connect(in_database(postgres_server, "empty"))
    admin(postgres_server, "DROP DATABASE empty WITH (FORCE)")


def test_migrations_arrive_at_the_schema(engine: Engine, empty: Engine) -> None:
    with empty.begin() as connection:
        connection.connection.cursor().execute((sql_root() / "schema.sql").read_text(encoding="utf-8"))
    migrated = catalog(engine)
    assert all(migrated.values())
    assert catalog(empty) == migrated


def test_migrating_twice_changes_nothing(empty: Engine) -> None:
    with pytest.raises(NotMigrated, match=r"database 'empty' at .*:\d+, asked as '.*', has no ledger: see whether"):
        check_migrated(empty)
    assert migrate(empty) == migrations()
    before = catalog(empty)
    assert migrate(empty) == []
    assert catalog(empty) == before
    check_migrated(empty)


def test_two_migrate_at_once(empty: Engine) -> None:
    together, calls = Barrier(2), Calls()
    for name in ("one", "other"):
        calls.start(name, lambda: (together.wait(30), migrate(empty))[1])
    assert sorted(calls.join().values(), key=len) == [[], migrations()]


def test_a_migration_that_fails_leaves_nothing(empty: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    good = migrations()
    monkeypatch.setattr(
        module, "migrations", lambda: [*good, Migration(9, "bad", "CREATE TABLE txbatch.x (); SELECT 1/0")]
    )
    with pytest.raises(Exception, match="division by zero"):
        migrate(empty)
    with pytest.raises(NotMigrated):
        check_migrated(empty)


TOPOLOGY = "INSERT INTO txbatch.topology (topology, job, by_interval, source) VALUES ('t', 'j', true, '{}')"


def migrated_before(empty: Engine, comes: Callable[[Migration], bool]) -> list[Migration]:
    """Make the ledger of the version before a migration comes, and return the migrations from that on."""
    every = migrations()
    before = list(takewhile(lambda each: not comes(each), every))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "migrations", lambda: before)
        assert migrate(empty) == before
    return every[len(before) :]


def test_a_state_that_has_the_name_of_a_report_to_come_is_named_and_nothing_changes(
    empty: Engine,
) -> None:
    later = migrated_before(empty, lambda each: "VIEW report.closings" in each.sql)
    with empty.begin() as connection:
        connection.connection.cursor().execute(
            f"{TOPOLOGY}; INSERT INTO txbatch.state (state, topology, kind, contributions, columns)"
            " VALUES ('closings', 't', 'opaque', true, '{}')"
        )
    was = catalog(empty)
    with pytest.raises(
        SchemaMismatch, match=r"state 'closings' has the name of a report .* was=\"closings\"\) and `txbatch change`"
    ):
        migrate(empty)
    assert catalog(empty) == was
    with empty.begin() as connection:
        connection.execute(text("UPDATE txbatch.state SET state = 'calls'"))
    assert migrate(empty) == later


def told_of_batches_before(empty: Engine, column: str, *stored: tuple[int, int, str, str]) -> list[tuple[int, Any]]:
    """Where the migration named after a column sets it: in batches of before, each a txid, its position, kind and reason."""
    migrated_before(empty, lambda each: each.name == column)
    with empty.begin() as connection:
        cursor = connection.connection.cursor()
        cursor.execute(TOPOLOGY)
        cursor.executemany(
            "INSERT INTO txbatch.batch (topology, status, key, metadata, lease_until, aborted_at, txid, position, kind, reason)"
            " VALUES ('t', 'aborted', 'run:one', '{}', now(), now(), %s, %s, %s, %s)",
            stored,
        )
    migrate(empty)
    with empty.connect() as connection:
        found = connection.execute(text("SELECT * FROM txbatch.batch ORDER BY txid")).mappings()
        return [(row["txid"], row[column]) for row in found if row[column]]


def test_what_was_aborted_as_abandoned_is_told_of_batches_before(empty: Engine) -> None:
    assert told_of_batches_before(
        empty,
        "abandoned",
        (1, 1, "ordinary", "abandoned by one; other found it so"),
        (2, 2, "ordinary", "a mistake; aborted: abandoned by nobody"),
        (3, 1, "restate", "a file was late; aborted: abandoned by one; other found it so"),
        (4, 1, "restate", "abandoned by its readers; aborted: a mistake"),
    ) == [(1, True), (3, True)]


def test_what_a_look_back_restated_is_told_of_batches_before(empty: Engine) -> None:
    assert told_of_batches_before(
        empty,
        "found_by",
        (1, 1, "ordinary", "lookback: no restate"),
        (2, 1, "restate", "lookback: 12 records in x.csv"),
        (3, 1, "restate", "a lookback: by hand"),
        (4, 1, "restate", "lookback: 1 record in x.csv; aborted: it failed"),
    ) == [(2, 1), (4, 1)]


def test_a_database_of_a_newer_version(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO txbatch.migration (number, name) VALUES (99, 'future')"))
    with refused("TX803", "migration 99", f"{engine.url.database!r}"):
        check_migrated(engine)


def test_migrations_are_numbered_from_1_without_gaps() -> None:
    files = [file.name for file in (sql_root() / "migrations").iterdir()]
    assert [migration.number for migration in migrations()] == list(range(1, len(files) + 1))


def test_a_server_too_old(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txbatch.postgres.database.engine.SERVER_VERSION_MIN", 990000)
    with pytest.raises(DefinitionError, match="is too old"):
        migrate(engine)


@pytest.mark.parametrize("url", ["mysql://localhost/x", "nonsense", "sqlite://", "postgresql+asyncpg://h/d"])
def test_a_url_that_is_none_of_ours(url: str) -> None:
    with pytest.raises(DefinitionError, match="TXBATCH_DATABASE_URL"):
        connect(url)


def test_a_server_that_does_not_answer(tmp_path: Any) -> None:
    with pytest.raises(Unavailable, match="txbatch doctor"):
        check_migrated(connect(f"postgresql+psycopg2://nobody@/nothing?host={tmp_path}"))


def test_a_password_is_in_no_error() -> None:
    with pytest.raises(Unavailable) as raised:
        check_migrated(connect("postgresql+psycopg2://nobody:s3cret@127.0.0.1:1/nothing"))
    assert "s3cret" not in str(raised.value)


def test_every_statement_can_be_planned(engine: Engine) -> None:
    """Names, columns and types fit the schema, also of those that no test runs."""
    with engine.connect() as connection:
        migrate_warehouse(connection, create=True)
        for number, (name, statement) in enumerate(statements().items()):
            prepared = statement
            for position, parameter in enumerate(sorted(set(text(statement).compile().params)), start=1):
                prepared = re.sub(rf"(?<!:):{parameter}\b", f"${position}", prepared)
            lock = "\nLOCK TABLE" in prepared  # which nothing prepares
            try:
                connection.connection.cursor().execute(prepared if lock else f"PREPARE s{number} AS {prepared}")
            except Exception as error:
                raise AssertionError(f"{name}: {error}") from error


IMPOSSIBLE = [
    "UPDATE txbatch.batch SET status = 'done'",
    "UPDATE txbatch.batch SET txid = 0",
    "UPDATE txbatch.batch SET position = 2",
    "UPDATE txbatch.batch SET status = 'committed'",
    "UPDATE txbatch.batch SET status = 'aborted'",
    "UPDATE txbatch.batch SET status = 'aborted', aborted_at = now()",
    "UPDATE txbatch.batch SET committed_at = now()",
    "UPDATE txbatch.batch SET fence = 0",
    "UPDATE txbatch.batch SET fence = -1",
    "UPDATE txbatch.batch SET token = NULL",
    "UPDATE txbatch.batch SET succeeded_at = now()",
    "UPDATE txbatch.batch SET metadata = NULL",
    "UPDATE txbatch.batch SET data_interval = 'empty'",
    "UPDATE txbatch.batch SET data_interval = tstzrange(now(), now() + interval '1 h', '[]')",
    "UPDATE txbatch.batch SET status = 'committed', committed_at = now(), committed_fence = fence + 1",
    "UPDATE txbatch.batch SET topology = 'nobody'",
    "DELETE FROM txbatch.batch",
    "UPDATE txbatch.attempt SET status = 'failed'",
    "UPDATE txbatch.attempt SET error = 'why', status = 'emitted'",
    "UPDATE txbatch.attempt SET manifest = NULL",
    "UPDATE txbatch.attempt SET attempt_id = 0",
    "UPDATE txbatch.attempt SET txid = 9",
    "INSERT INTO txbatch.batch_key (topology, key, ordinal, txid) VALUES ('word_count', 'k', 0, 1)",
    "INSERT INTO txbatch.batch_key (topology, key, ordinal, txid) VALUES ('word_count', 'k', 1, 7)",
    "INSERT INTO txbatch.partition (topology, stream, partition, txid, status, metadata)"
    " VALUES ('word_count', 'w', 'a', 1, 'read', '{}')",
    "INSERT INTO txbatch.state (state, topology, kind, contributions, columns) VALUES ('s', 'word_count', 'magic', true, '{}')",
    "DELETE FROM txbatch.topology",
]


@pytest.mark.parametrize("statement", IMPOSSIBLE)
def test_the_tables_refuse_what_cannot_be(bench: Bench, statement: str) -> None:
    bench.emitted(words(dog=1))
    with pytest.raises(IntegrityError):
        bench.run(statement)


def test_a_new_topology_cannot_begin_at_txid_1_twice(bench: Bench) -> None:
    bench.planned()
    with pytest.raises(IntegrityError, match="batch_pkey"):
        bench.run(
            "INSERT INTO txbatch.batch (topology, txid, position, key, metadata, lease_until)"
            " VALUES ('word_count', 1, 1, 'k', '{}', now())"
        )
