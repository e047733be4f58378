"""Databases with states apart have numbered migrations; one that was made before they were counted is carried on."""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier
from typing import Any

import pytest
from postgres_bench import Bench, Calls, words
from sqlalchemy import Engine, text
from support import LogSpout, word_count

from txbatch import OpaqueState
from txbatch.core.errors import NotMigrated, Unavailable
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.database.migrate import migrations
from txbatch.postgres.database.queries import query
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.database.warehouse_migrations import migrate_warehouse

pytestmark = pytest.mark.rule("R21")
ALL = [(each.number, each.name) for each in migrations("warehouse")]


@pytest.fixture
def bench(engine: Engine, databases: Callable[[str], str]) -> Bench:
    topology = word_count(LogSpout({"a": 1_000}), state=OpaqueState("word_count", database="warehouse"))
    return Bench(engine, topology, Warehouses(databases))


@pytest.fixture
def warehouse(bench: Bench) -> Engine:
    return bench.ledger.warehouses.engine("warehouse")


def rows(warehouse: Engine, statement: str) -> list[tuple[Any, ...]]:
    with warehouse.connect() as connection:
        return [tuple(row) for row in connection.execute(text(statement))]


def applied(warehouse: Engine) -> list[tuple[Any, ...]]:
    return rows(warehouse, "SELECT number, name FROM txbatch.warehouse_migration ORDER BY number")


def make_old(warehouse: Engine) -> None:
    """As the versions before left it: the first migration, and nothing that says so."""
    with warehouse.begin() as connection:
        connection.execute(text("DROP TABLE txbatch.warehouse_migration"))


def test_they_are_numbered_from_1_without_a_gap() -> None:
    assert [number for number, _ in ALL] == list(range(1, len(ALL) + 1))


def test_a_new_warehouse_has_had_all(warehouse: Engine) -> None:
    assert applied(warehouse) == ALL


def test_a_warehouse_of_an_older_version_is_carried_on_with_a_batch_in_flight(bench: Bench, warehouse: Engine) -> None:
    bench.whole(words(dog=1), "1")
    emitted = bench.emitted(words(dog=2), "2")
    make_old(warehouse)
    bench.ledger.register(bench.topology, "jobs/job.py")
    assert applied(warehouse) == ALL
    assert bench.commit(emitted, words(dog=2))
    assert rows(warehouse, "SELECT word, count, txid FROM state.word_count") == [("dog", 3, 2)]


def test_two_bring_it_to_this_version_at_once(warehouse: Engine) -> None:
    make_old(warehouse)
    together, calls = Barrier(2), Calls()

    def migrate() -> None:
        with transaction(warehouse) as connection:
            together.wait(30)
            migrate_warehouse(connection, create=False)

    for name in ("one", "other"):
        calls.start(name, migrate)
    calls.join()
    assert applied(warehouse) == ALL


def test_it_waits_for_a_commit_that_has_locked_its_row(bench: Bench, warehouse: Engine) -> None:
    bench.whole(words(dog=1), "1")
    make_old(warehouse)

    def migrate() -> None:
        with transaction(warehouse) as connection:
            connection.execute(text("SET LOCAL lock_timeout = '100ms'"))
            migrate_warehouse(connection, create=False)

    with warehouse.begin() as committing:
        committing.execute(query("lock_apart"), {"state": "word_count"}).one()
        with pytest.raises(Unavailable, match="lock timeout"):
            migrate()
    migrate()
    assert applied(warehouse) == ALL


def test_a_warehouse_of_a_newer_version_is_refused(bench: Bench, warehouse: Engine) -> None:
    with warehouse.begin() as connection:
        connection.execute(text("INSERT INTO txbatch.warehouse_migration (number, name) VALUES (99, 'later')"))
    with pytest.raises(NotMigrated, match=r"states apart has migrations \[99\] of a newer txbatch: update this one"):
        bench.ledger.register(bench.topology, "jobs/job.py")


def test_a_database_without_states_apart_is_left_alone(databases: Callable[[str], str]) -> None:
    other = Warehouses(databases).engine("other")
    with transaction(other) as connection:
        migrate_warehouse(connection, create=False)
    assert rows(other, "SELECT to_regnamespace('txbatch')") == [(None,)]
