"""Sessions in PostgreSQL: all that shows a state shows sessions, of any moment, and a user's are found by index (R27)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from postgres_bench import Bench
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from support import LogSpout

from txbatch import Count, OpaqueState, Sum, Topology, session_window
from txbatch.core.corrections.verify import Outcome
from txbatch.postgres.corrections.verify import PostgresBooks
from txbatch.postgres.reading.history_reader import HistoryReader
from txbatch.postgres.schema import report_views, sessions

pytestmark = pytest.mark.rule("R27")
DAY = datetime(2026, 11, 24, tzinfo=UTC)


def at(minute: int) -> datetime:
    return DAY + timedelta(minutes=minute)


def piece(user: str, start: int, end: int, visits: int) -> Any:
    return (user, at(start)), (at(end), visits, visits)


def visits() -> Topology:
    topology, spout = Topology("t"), LogSpout({"a": 10_000})
    spout.fields = "at timestamp, user string, spent bigint"
    grouped = topology.new_stream("in", spout).group_by("user", session_window("at", "30 minutes"))
    grouped.persistent_aggregate(OpaqueState("sessions"), visits=Count(), spent=Sum("spent"))
    return topology


@pytest.fixture
def bench(engine: Engine) -> Bench:
    """The sessions at 0 and at 100 minutes are one by the second batch, and no more by its restate."""
    bench = Bench(engine, visits())
    bench.whole({"sessions": [piece("x", 0, 40, 3), piece("x", 100, 110, 2), piece("y", 0, 0, 1)]}, "1")
    bench.whole({"sessions": [piece("x", 70, 75, 2), piece("z", 5, 5, 1)]}, "2")
    return bench


WHOLE, LEFT, RIGHT = ("x", at(0), at(110), 7, 7), ("x", at(0), at(40), 3, 3), ("x", at(100), at(110), 2, 2)
Y, Z = ("y", at(0), at(0), 1, 1), ("z", at(5), at(5), 1, 1)


def asked(bench: Bench, of: str) -> list[tuple[Any, ...]]:
    return sorted(bench.rows(f"SELECT * FROM report.{of}"))


def test_reports_show_sessions_of_now_and_of_any_moment(bench: Bench) -> None:
    columns = (
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'report' AND table_name = 'sessions'"
    )
    assert [name for (name,) in bench.rows(f"{columns} ORDER BY ordinal_position")] == [
        *("user", "session_start", "session_end", "visits", "spent", "txid")
    ]
    now = [(*WHOLE, 2), (*Y, 1), (*Z, 2)]
    assert asked(bench, "sessions") == asked(bench, "as_of_sessions(2)") == asked(bench, "corrected_sessions(2)") == now
    assert (
        asked(bench, "as_of_sessions(1)")
        == asked(bench, "corrected_sessions(1)")
        == [*((*LEFT, 1), (*RIGHT, 1), (*Y, 1))]
    )
    assert asked(bench, "get_sessions('x', '2026-11-24 00:00Z')") == [(*WHOLE, 2)]
    assert asked(bench, "get_sessions('x', '2026-11-24 01:40Z')") == []
    assert len(bench.rows("SELECT * FROM report.sessions_changes")) == 5
    assert bench.rows("SELECT obj_description('report.sessions'::regclass)") == [
        (
            "State 'sessions' of topology 't': one row per session, of sessions by at, 30 minutes apart, whole batches only",
        )
    ]


def test_what_came_together_and_apart_is_told_as_changes(bench: Bench) -> None:
    joined = [
        ("x", at(0), "changed", at(40), at(110), 3, 7, 3, 7, 2),
        ("x", at(100), "removed", at(110), None, 2, None, 2, None, 2),
        ("z", at(5), "added", None, at(5), None, 1, None, 1, 2),
    ]
    assert asked(bench, "changes_sessions(1, 2)") == joined
    assert [row[:3] for row in asked(bench, "changes_sessions(2, 1)")] == [
        ("x", at(0), "changed"),
        ("x", at(100), "added"),
        ("z", at(5), "removed"),
    ]
    assert asked(bench, "changes_sessions(2, 2)") == []


def test_why_has_all_versions_that_begin_within_a_session(bench: Bench) -> None:
    asked_for = "SELECT position, txid, visits, counts FROM report.why_sessions('x', '2026-11-24 00:00Z')"
    assert sorted(bench.rows(asked_for)) == [(1, 1, 2, True), (1, 1, 3, True), (2, 2, 2, True)]
    assert bench.rows("SELECT * FROM report.why_sessions('x', '2026-11-24 00:01Z')") == []


@pytest.mark.rule("R19")
def test_all_pieces_of_a_session_are_compared_with_what_batches_contributed(bench: Bench) -> None:
    reader, key = HistoryReader(bench.engine), ("x", "2026-11-24 00:00:00+00")
    told = reader.why("sessions", key)
    assert (told["equal"], len(told["versions"]), told["values"]["visits"]) == (True, 3, 7)
    (row,) = reader.as_of("sessions", 1, [key])
    assert (row["session_end"], row["visits"], row["txid"]) == (at(40), 3, 1)
    assert [each["visits"] for each in reader.as_of("sessions", 2)] == [7, 1, 1]
    bench.run("UPDATE state.sessions SET visits = 3 WHERE session_start = '2026-11-24 01:10Z'")
    assert reader.why("sessions", key)["equal"] is False


@pytest.mark.rule("R24")
def test_verify_compares_pieces(bench: Bench) -> None:
    books = PostgresBooks(bench.engine)
    (found,) = books.states(bench.topology)
    assert (found.keys, found.outcome) == (5, Outcome.EQUAL)
    bench.run("UPDATE state.sessions SET session_end = session_end + interval '1 second' WHERE \"user\" = 'y'")
    (found,) = books.states(bench.topology)
    assert (found.different, found.outcome) == (1, Outcome.DIFFERENT)


def test_sessions_of_a_user_are_found_by_index(bench: Bench) -> None:
    bench.run(
        'INSERT INTO state.sessions ("user", session_start, session_end, visits, spent, txid) '
        "SELECT 'u' || n % 10000, '2020-01-01Z'::timestamptz + n * interval '1 hour', "
        "'2020-01-01Z'::timestamptz + n * interval '1 hour', 1, 1, 2 FROM generate_series(1, 50000) n",
        "ANALYZE state.sessions",
    )
    plan = "\n".join(row[0] for row in bench.rows("EXPLAIN SELECT * FROM report.sessions WHERE \"user\" = 'u7'"))
    assert "Seq Scan" not in plan
    assert "Index" in plan
    assert bench.rows("SELECT count(*) FROM report.sessions WHERE \"user\" = 'u7'") == [(5,)]


@pytest.mark.rule("R24")
def test_a_view_of_an_older_version_names_the_session_that_does_not_fit_from_the_next_run_on(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also as of a txid; who asks for other keys, or not for the sum, is told what there is."""
    large = 5 * 10**18
    with monkeypatch.context() as older:
        older.setattr(sessions, "_limits", lambda _: None)
        older.setattr(report_views, "SESSION_END", "Max")
        bench = Bench(engine, visits())
        bench.whole({"sessions": [(("x", at(0)), (at(0), 1, large)), (("y", at(0)), (at(0), 1, 1))]}, "1")
        bench.whole({"sessions": [(("x", at(9)), (at(9), 1, large))]}, "2")
        with pytest.raises(DBAPIError, match="bigint out of range"):
            asked(bench, "sessions")
    bench = Bench(engine, visits())
    bench.whole({"sessions": [(("z", at(0)), (at(0), 1, 1))]}, "3")
    told = r"TX305 \(no retry helps\): state 'sessions', session \(x, 2026-11-24 00:00:00\+00\): the total 1\d+ of 'spent' is out"
    for of in ("sessions", "as_of_sessions(3)", "corrected_sessions(2)"):
        with pytest.raises(DBAPIError, match=told):
            asked(bench, of)
        assert bench.rows(f"SELECT spent FROM report.{of} WHERE \"user\" = 'y'") == [(1,)]
        assert sorted(bench.rows(f"SELECT visits FROM report.{of}"))[-1] == (2,)
