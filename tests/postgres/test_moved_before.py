"""States that an earlier version moved to another database, or back, in a call that was cut off (R21)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from postgres_bench import Bench, words
from sqlalchemy import Engine, event, text
from support import LogSpout, word_count

from txbatch import OpaqueState, Topology
from txbatch.core.errors import Unavailable
from txbatch.postgres.apart import apart
from txbatch.postgres.apart.warehouses import Warehouses, identity_of
from txbatch.postgres.database.engine import run_all
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.schema import report_views

pytestmark = pytest.mark.rule("R21")
JOB = "jobs/job.py"
REPORT = "SELECT word, count FROM report.word_count ORDER BY 1"
SHOWN = "SELECT to_regclass('report.word_count') IS NOT NULL"
IS_THERE = "SELECT to_regclass('state.word_count') IS NOT NULL"
ELSEWHERE = {"renamed": OpaqueState("words", was="word_count"), "gone": OpaqueState("words", since="now")}


def defined(database: str | None) -> Topology:
    return word_count(LogSpout({"a": 1_000_000}), state=OpaqueState("word_count", database=database))


class Moved(Bench):
    """A ledger and its warehouse, where no lock is waited for long."""

    def __init__(self, engine: Engine, databases: Callable[[str], str], topology: Topology) -> None:
        super().__init__(engine, topology, Warehouses(databases))
        self.warehouse = self.ledger.warehouses.engine("warehouse")
        short = "SET LOCAL lock_timeout = '300ms'"
        event.listen(self.warehouse, "begin", lambda connection: connection.exec_driver_sql(short))
        self.whole(words(dog=2, cat=1), "1")

    def there(self, statement: str) -> list[tuple[Any, ...]]:
        with self.warehouse.connect() as connection:
            return [tuple(row) for row in connection.execute(text(statement))]

    def next_run(self, name: str) -> None:
        self.ledger.register(self.topology, JOB)
        self.whole(words(dog=1), name)


@pytest.fixture
def back(engine: Engine, databases: Callable[[str], str]) -> Moved:
    """The state has come back, and its copy is still where it was."""
    moved = Moved(engine, databases, defined(None))
    with moved.warehouse.begin() as connection:
        (there,) = defined("warehouse").aggregates
        apart.ensure(connection, identity_of(engine), "word_count", there, new=True)
        connection.execute(text("INSERT INTO state.word_count (word, count, txid) VALUES ('dog', 2, 1)"))
    moved.run("UPDATE txbatch.state SET left_in = 'warehouse'")
    return moved


def test_one_that_went_there_is_shown_by_the_next_run(engine: Engine, databases: Callable[[str], str]) -> None:
    moved = Moved(engine, databases, defined("warehouse"))
    with moved.warehouse.begin() as connection:
        run_all(connection, report_views.drop_functions(connection, "word_count"))
        connection.execute(text("DROP VIEW report.word_count"))
    moved.next_run("2")
    assert moved.there(REPORT) == [("cat", 1), ("dog", 3)]


def test_a_copy_of_one_that_came_back_goes_with_the_next_run(back: Moved) -> None:
    back.next_run("2")
    assert back.there(IS_THERE) == back.there(SHOWN) == [(False,)]
    assert back.there("SELECT count(*) FROM txbatch.apart") == [(0,)]
    assert back.rows(REPORT) == [("cat", 1), ("dog", 3)]
    assert back.rows("SELECT left_in FROM txbatch.state") == [(None,)]


def test_a_copy_that_somebody_reads_is_no_matter_to_a_run(back: Moved, caplog: pytest.LogCaptureFixture) -> None:
    with back.warehouse.connect() as reader, caplog.at_level(logging.WARNING):
        reader.execute(text(REPORT)).all()
        back.next_run("2")
    told = (
        "state 'word_count' in database 'warehouse' is a copy from before the state came back, and cannot be dropped: "
    )
    assert told in caplog.text
    back.next_run("3")
    assert back.there(IS_THERE) == [(False,)]


@pytest.mark.rule("R23")
@pytest.mark.parametrize("state", ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_copy_outlives_neither_the_name_nor_the_state(back: Moved, state: OpaqueState) -> None:
    """While somebody reads it, the state keeps its name, by which the copy is known."""
    topology = word_count(LogSpout({"a": 1_000_000}), state=state)
    with back.warehouse.connect() as reader:
        reader.execute(text(REPORT)).all()
        with pytest.raises(
            Unavailable, match=r"'word_count' in database 'warehouse' is a copy from before .* try again"
        ):
            back.ledger.change(topology, JOB, "finance asks for it")
    back.ledger.change(topology, JOB, "finance asks for it")
    assert back.there(IS_THERE) == [(False,)]


def test_a_name_that_another_ledger_took_meanwhile_stays_its_own(back: Moved) -> None:
    with back.warehouse.begin() as connection:
        connection.execute(text("UPDATE txbatch.apart SET ledger = '7b3dbd2f-3a5f-4f0e-8a60-1f0d5a1c0c0e'"))
    back.next_run("2")
    assert back.there(REPORT) == [("dog", 2)]
    assert back.rows("SELECT left_in FROM txbatch.state") == [(None,)]


def test_dropped_with_its_topology_nothing_is_left(back: Moved) -> None:
    with transaction(back.engine) as connection:
        back.ledger.warehouses.drop(connection, "word_count")
    assert back.there(IS_THERE) == [(False,)]
