"""Windows leave states in PostgreSQL: in steps, with what reports, `why`, as-of and verify say of it then (R30)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from contract.conftest import Memory, Postgres
from contract.test_keep_windows import BY, Keeping, four_again, four_hours, rebuilds
from contract.test_restate import restate_of
from contract.test_watermarks import at
from sqlalchemy import Engine, text

from txbatch.core.corrections.audit import Audit
from txbatch.core.corrections.rebuild import Swapped
from txbatch.core.corrections.verify import Outcome
from txbatch.core.errors import UnknownName
from txbatch.postgres.corrections import window_retention
from txbatch.postgres.corrections.verify import PostgresBooks
from txbatch.postgres.reading.history_reader import HistoryReader
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.postgres.schema import state_tables

pytestmark = pytest.mark.rule("R30")


@pytest.fixture
def backing(engine: Engine, databases: Any) -> Postgres:
    return Postgres(engine, databases)


def left(backing: Postgres) -> Keeping:
    visits = four_hours(backing)
    visits.folds(4)
    assert visits.leaves() == [(180, 3, 6)]
    return visits


def asked(engine: Engine, statement: str) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(statement))]


def test_it_goes_in_steps_of_whole_windows(backing: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_retention, "STEP_ROWS", 2)
    visits = four_hours(backing)
    visits.folds(4)
    assert [windows for _, windows, _ in visits.leaves()] == [2, 1]
    (row,) = LedgerReader(backing.engine).status("visits")[0]["windows_left"]
    assert (row["windows"], row["records"], row["left_before"]) == (3, 6, at(180))


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("seed", range(4))
def test_steps_of_any_size_let_the_same_go_as_the_twin_in_memory(
    backing: Postgres, by: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = Random(seed)
    monkeypatch.setattr(window_retention, "STEP_ROWS", chance.randint(1, 3))
    day = 24 * 60 if by == "days" else 60
    both = [Keeping(each, "1 hour", "drop", BY[by]) for each in (backing, Memory())]
    positions: list[int] = []
    for number in range(1, 10):
        minutes = [number * day + chance.randint(-40, 10) for _ in range(chance.randint(1, 4))]
        again = number > 4 and chance.random() < 0.3
        positions += [] if again else [number]
        for visits in both:
            visits.counts(restate_of(positions[-1], f"{number}") if again else f"{number}", a=minutes)
        if number % 3 == 0:
            found = []
            for visits in both:
                visits.folds(positions[-2])
                gone = visits.leaves()
                found.append((sum(each for _, each, _ in gone), sum(each or 0 for *_, each in gone), visits.starts()))
            assert found[0] == found[1]
    assert [backing.left_rows("visits")] == [both[1].backing.left_rows("visits")]


def test_the_state_is_what_its_base_and_contributions_amount_to(backing: Postgres) -> None:
    visits = left(backing)
    visits.counts("6", a=[5, 290])
    (found,) = PostgresBooks(backing.engine).states(visits.topology)
    assert (found.outcome, found.keys) == (Outcome.EQUAL, 2)
    assert PostgresBooks(backing.engine).audit(visits.topology) == Audit()


@pytest.mark.rule("R23")
def test_what_a_rebuild_replaced_is_told_without_what_had_left_it(backing: Postgres) -> None:
    visits = left(backing)
    visits.counts("6", a=[300])
    assert isinstance(backing.rebuilds.swap(rebuilds(visits, {**four_again(), 6: [300]}), visits.topology), Swapped)
    reader, told = HistoryReader(backing.engine), "begin before 2026-01-05 03:00 UTC have left"
    assert [row["window_start"] for row in reader.as_of("visits", 4)] == [at(180)]
    assert told in (reader.told_without("visits", 4) or "")
    assert reader.told_without("visits", 5) is None


def test_why_of_a_window_that_has_left_says_so(backing: Postgres) -> None:
    left(backing)
    reader = HistoryReader(backing.engine)
    gone = r"has no key '2026-01-05 01:00:00\+00,x' any more, .*state 'visits' that begin before 2026-01-05 03:00 UTC have left"
    with pytest.raises(UnknownName, match=gone):
        reader.why("visits", ["2026-01-05 01:00:00+00", "x"])
    with pytest.raises(UnknownName, match="and never had"):
        reader.why("visits", ["2026-01-05 03:00:00+00", "y"])
    assert reader.why("visits", ["2026-01-05 03:00:00+00", "x"])["equal"]


def test_what_it_was_is_told_without_them_and_with_a_warning(backing: Postgres) -> None:
    visits = left(backing)
    visits.counts("6", a=[300])
    reader = HistoryReader(backing.engine)
    assert [row["window_start"] for row in reader.as_of("visits", 4)] == [at(180)]
    assert reader.told_without("visits", 4) == (
        "as of txid 4 these windows are missing: the windows of state 'visits' that begin before 2026-01-05 03:00 UTC have left "
        "it by retention"
    )
    assert reader.told_without("visits", 5) is None
    with backing.engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        with driver.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM report.as_of_visits(4)")
            assert ["is told without what retention has let go of since" in each for each in {*driver.notices}] == [
                True
            ]
            del driver.notices[:]
            cursor.execute("SELECT count(*) FROM report.as_of_visits(5)")
            assert driver.notices == []


def test_the_report_says_until_when_they_have_left(backing: Postgres) -> None:
    left(backing)
    columns = "topology, state, keep::text, sessions, left_before, windows, records, txid"
    assert asked(backing.engine, f"SELECT {columns} FROM report.windows_left") == [
        ("visits", "visits", "01:00:00", False, at(180), 3, 6, 5)
    ]


def test_a_topology_that_is_dropped_leaves_nothing(backing: Postgres) -> None:
    left(backing)
    with backing.engine.begin() as connection:
        state_tables.drop(connection, "visits")
    assert asked(backing.engine, "SELECT * FROM txbatch.windows_left") == []
