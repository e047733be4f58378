"""A state on its way to another database and back: who reads it, who made views of it, and who comes too late (R21, R23)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from postgres_bench import Bench, Calls, words
from sqlalchemy import Engine, event, text
from support import LogSpout, word_count

from txbatch import Count, OpaqueState, Topology, failpoints
from txbatch.core.errors import SchemaMismatch, TerminalError, Unavailable
from txbatch.postgres.apart.warehouses import LEFT, Warehouses
from txbatch.postgres.database.engine import transaction
from txbatch.postgres.ledger import PostgresLedger

pytestmark = pytest.mark.rule("R21", "R23")
JOB, WHY = "jobs/job.py", "a warehouse is wanted"
REPORT = "SELECT word, count FROM report.word_count ORDER BY 1"
SHOWN = "SELECT to_regclass('report.word_count') IS NOT NULL"


def defined(database: str | None) -> Topology:
    return word_count(LogSpout({"a": 1_000_000}), state=OpaqueState("word_count", database=database))


class Moving(Bench):
    """A ledger whose state goes to a warehouse, and comes back. No lock is waited for long."""

    def __init__(self, engine: Engine, databases: Callable[[str], str]) -> None:
        super().__init__(engine, defined(None), Warehouses(databases))
        self.databases = databases
        self.warehouse = self.ledger.warehouses.engine("warehouse")
        for each in (self.engine, self.warehouse):
            event.listen(
                each, "begin", lambda connection: connection.exec_driver_sql("SET LOCAL lock_timeout = '300ms'")
            )
        self.whole(words(dog=2, cat=1), "1")

    def goes(self) -> None:
        self.topology = defined("warehouse")
        self.ledger.change(self.topology, JOB, WHY)

    def comes(self) -> None:
        self.topology = defined(None)
        self.ledger.change(self.topology, JOB, WHY)

    def there(self, statement: str) -> list[tuple[Any, ...]]:
        with self.warehouse.connect() as connection:
            return [tuple(row) for row in connection.execute(text(statement))]

    def told(self) -> list[Any]:
        with transaction(self.engine) as connection:
            return self.ledger.warehouses.ahead(connection, "word_count")

    def runs(self, topology: Topology, name: str, **counts: int) -> None:
        self.topology = topology
        self.ledger.register(topology, JOB)
        self.whole(words(**counts), name)


@pytest.fixture
def moving(engine: Engine, databases: Callable[[str], str]) -> Moving:
    return Moving(engine, databases)


@contextmanager
def cut(point: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TXBATCH_FAILPOINTS", f"{point}=raise")
        with pytest.raises(failpoints.FailpointReached):
            yield


def test_reports_are_where_the_state_is_and_nowhere_else(moving: Moving) -> None:
    moving.goes()
    assert moving.there(REPORT) == [("cat", 1), ("dog", 2)]
    assert moving.rows(SHOWN) == [(False,)]
    moving.whole(words(dog=1), "2")
    moving.comes()
    assert moving.rows(REPORT) == [("cat", 1), ("dog", 3)]
    assert moving.there(SHOWN) == [(False,)]
    assert moving.there("SELECT count(*) FROM txbatch.apart") == [(0,)]
    assert moving.told() == []


def test_a_view_of_others_there_is_named_and_nothing_has_changed(moving: Moving) -> None:
    moving.goes()
    with moving.warehouse.begin() as connection:
        connection.execute(text("CREATE VIEW public.mine AS SELECT * FROM report.word_count"))
    with pytest.raises(
        TerminalError, match=r"cannot be moved, as a view .*view public.mine depends on view report.word_count"
    ):
        moving.comes()
    moving.runs(defined("warehouse"), "2", dog=1)
    assert moving.there("SELECT * FROM public.mine ORDER BY 1")[1][:2] == ("dog", 3)
    with moving.warehouse.begin() as connection:
        connection.execute(text("DROP VIEW public.mine"))
    moving.comes()
    assert moving.rows(REPORT) == [("cat", 1), ("dog", 3)]


def test_a_view_of_others_here_is_named_and_nothing_is_shown_there(moving: Moving) -> None:
    moving.run("CREATE VIEW public.mine AS SELECT * FROM report.word_count")
    with pytest.raises(
        TerminalError, match=r"cannot be moved, as a view .*view public.mine depends on view report.word_count"
    ):
        moving.goes()
    moving.runs(defined(None), "2", dog=1)
    assert moving.rows("SELECT count FROM public.mine ORDER BY word") == [(1,), (3,)]
    assert moving.there("SELECT to_regclass('state.word_count') IS NOT NULL") == [(False,)]


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_reader_is_named_and_nothing_has_changed(moving: Moving, where: str) -> None:
    if where == "there":
        moving.goes()
    move = moving.goes if where == "here" else moving.comes
    with (moving.engine if where == "here" else moving.warehouse).connect() as reader:
        reader.execute(text(REPORT)).all()
        with pytest.raises(Unavailable, match=r"cannot be moved while others use it: session [0-9]+ of .*let them end"):
            move()
    assert moving.rows("SELECT database FROM txbatch.state") == [("warehouse" if where == "there" else None,)]
    move()
    moving.whole(words(dog=1), "2")
    shown = moving.there(REPORT) if where == "here" else moving.rows(REPORT)
    assert shown == [("cat", 1), ("dog", 3)]


def test_killed_on_its_way_there_nobody_sees_the_copy(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    with cut("change.apart_committed", monkeypatch):
        moving.goes()
    assert moving.there(SHOWN) == [(False,)]
    moving.runs(defined(None), "2", dog=1)
    moving.goes()
    assert moving.there(REPORT) == [("cat", 1), ("dog", 3)]


def test_killed_once_it_was_there_the_next_run_shows_it(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    with cut("change.committed", monkeypatch):
        moving.goes()
    assert moving.there(SHOWN) == [(False,)]
    assert moving.rows(SHOWN) == [(False,)]
    moving.runs(defined("warehouse"), "2", dog=1)
    assert moving.there(REPORT) == [("cat", 1), ("dog", 3)]


def test_killed_once_it_came_back_its_copy_is_told_and_the_next_run_drops_it(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving.goes()
    with cut("change.committed", monkeypatch):
        moving.comes()
    assert moving.told() == [{"state": "word_count", "database": "warehouse", "problem": LEFT}]
    moving.runs(defined(None), "2", dog=1)
    assert moving.there(SHOWN) == [(False,)]
    assert moving.told() == []
    moving.goes()
    assert moving.there(REPORT) == [("cat", 1), ("dog", 3)]


def test_a_copy_that_somebody_reads_is_no_matter_to_a_run(
    moving: Moving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    moving.goes()
    with cut("change.committed", monkeypatch):
        moving.comes()
    with moving.warehouse.connect() as reader, caplog.at_level(logging.WARNING):
        reader.execute(text(REPORT)).all()
        moving.runs(defined(None), "2", dog=1)
    assert "state 'word_count' in database 'warehouse', where it was, is a copy that does not count" in caplog.text
    moving.runs(defined(None), "3", dog=1)
    assert moving.there(SHOWN) == [(False,)]


def test_a_name_that_another_ledger_took_meanwhile_stays_its_own(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving.goes()
    with cut("change.committed", monkeypatch):
        moving.comes()
    with moving.warehouse.begin() as connection:
        connection.execute(text("UPDATE txbatch.apart SET ledger = '7b3dbd2f-3a5f-4f0e-8a60-1f0d5a1c0c0e'"))
    moving.runs(defined(None), "2", dog=1)
    assert moving.there(REPORT) == [("cat", 1), ("dog", 2)]
    assert moving.told() == []


def test_a_change_that_stalls_keeps_others_out_and_drops_nothing_that_counts(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has come back by the ledger, and holds its original still, while others want it there again."""
    moving.goes()
    said: list[Any] = []
    hit = failpoints.hit

    def stall(name: str) -> None:
        hit(name)
        if name == "change.committed" and not said:
            other = PostgresLedger(moving.engine, warehouses=Warehouses(moving.databases))
            engine = other.warehouses.engine("warehouse")
            event.listen(
                engine, "begin", lambda connection: connection.exec_driver_sql("SET LOCAL lock_timeout = '300ms'")
            )
            said.append(None)
            calls = Calls()
            calls.start("again", lambda: other.change(defined("warehouse"), JOB, WHY))
            said.append(calls.join()["again"])

    monkeypatch.setattr(failpoints, "hit", stall)
    moving.comes()
    assert isinstance(said[1], Unavailable), said
    assert moving.rows("SELECT database, left_in FROM txbatch.state") == [(None, None)]
    assert moving.rows(REPORT) == [("cat", 1), ("dog", 2)]
    moving.goes()
    moving.whole(words(dog=1), "2")
    assert moving.there(REPORT) == [("cat", 1), ("dog", 3)]


def test_two_changes_at_once_are_one(moving: Moving) -> None:
    calls = Calls()
    for name in ("one", "other"):
        ledger = PostgresLedger(moving.engine, warehouses=Warehouses(moving.databases))
        calls.start(name, lambda ledger=ledger: ledger.change(defined("warehouse"), JOB, WHY))  # type: ignore[misc]
    answers = calls.join()
    assert sorted(len(each) if isinstance(each, list) else 0 for each in answers.values()) == [0, 1], answers
    moving.runs(defined("warehouse"), "2", dog=1)
    assert moving.there(REPORT) == [("cat", 1), ("dog", 3)]


def test_dropped_with_its_topology_nothing_is_left(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    moving.goes()
    with cut("change.committed", monkeypatch):
        moving.comes()
    with transaction(moving.engine) as connection:
        moving.ledger.warehouses.drop(connection, "word_count")
    assert moving.there("SELECT to_regclass('state.word_count') IS NOT NULL") == [(False,)]


def test_killed_once_it_had_moved_the_same_call_completes_it(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    with cut("change.committed", monkeypatch):
        moving.goes()
    moving.goes()
    assert moving.there(REPORT) == [("cat", 1), ("dog", 2)]
    with cut("change.committed", monkeypatch):
        moving.comes()
    moving.comes()
    assert moving.there(SHOWN) == [(False,)]
    assert moving.told() == []


def test_a_copy_that_never_counted_keeps_its_topologys_name_and_it_is_said_what_drops_it(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cut("change.apart_committed", monkeypatch):
        moving.goes()

    def renamed(database: str | None) -> Topology:
        topology = Topology("words", was="word_count")
        stream = topology.new_stream("words", LogSpout({"a": 1_000_000})).group_by("word")
        stream.persistent_aggregate(
            OpaqueState("word_count", database=database), guarantee="at_least_once", count=Count()
        )
        return topology

    moving.ledger.change(renamed(None), JOB, WHY)
    with pytest.raises(SchemaMismatch, match="`txbatch drop word_count --database warehouse` drops what it left there"):
        moving.ledger.change(renamed("warehouse"), JOB, WHY)
    (owner,) = moving.ledger.warehouses.owners("warehouse", "word_count")
    assert moving.ledger.warehouses.drop_in("warehouse", "word_count", owner["ledger"]) == ["word_count"]
    moving.ledger.change(renamed("warehouse"), JOB, WHY)
    assert moving.there(REPORT) == [("cat", 1), ("dog", 2)]


ELSEWHERE = {
    "renamed": OpaqueState("words", was="word_count"),
    "gone": OpaqueState("words", since="now"),
}


@pytest.mark.parametrize("state", ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_copy_outlives_neither_the_name_nor_the_state(
    moving: Moving, state: OpaqueState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While somebody reads it, the state keeps its name, by which the copy is known."""
    left_there(moving, monkeypatch)
    topology = word_count(LogSpout({"a": 1_000_000}), state=state)
    with moving.warehouse.connect() as reader:
        reader.execute(text(REPORT)).all()
        with pytest.raises(
            Unavailable, match="'word_count' in database 'warehouse' has a copy from before it came back"
        ):
            moving.ledger.change(topology, JOB, WHY)
    assert moving.told() == [{"state": "word_count", "database": "warehouse", "problem": LEFT}]
    moving.ledger.change(topology, JOB, WHY)
    assert moving.there(SHOWN) == [(False,)]


def test_copies_are_left_in_one_database_at_most(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    left_there(moving, monkeypatch)
    with moving.warehouse.connect() as reader:
        reader.execute(text(REPORT)).all()
        with pytest.raises(Unavailable, match="in database 'warehouse' has a copy from before it came back"):
            moving.ledger.change(defined("other"), JOB, WHY)
    moving.ledger.change(defined("other"), JOB, WHY)
    moving.comes()
    assert moving.there(SHOWN) == [(False,)]
    assert moving.rows(REPORT) == [("cat", 1), ("dog", 2)]


def test_who_holds_a_copy_is_named_when_the_state_goes_there_again(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_there(moving, monkeypatch)
    with moving.warehouse.connect() as reader:
        reader.execute(text(REPORT)).all()
        with pytest.raises(Unavailable, match=r"cannot be moved while others use it: session [0-9]+ of .*let them end"):
            moving.goes()
    with moving.warehouse.begin() as connection:
        connection.execute(text("CREATE VIEW public.mine AS SELECT * FROM report.word_count"))
    with pytest.raises(TerminalError, match=r"cannot be moved, as a view .*view public.mine depends on view"):
        moving.goes()
    moving.runs(defined(None), "2", dog=1)
    assert moving.rows(REPORT) == [("cat", 1), ("dog", 3)]


def left_there(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state has come back, and its copy is still where it was."""
    moving.goes()
    with cut("change.committed", monkeypatch):
        moving.comes()
