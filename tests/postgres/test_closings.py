"""Closing in PostgreSQL: a plan and a commit at once, what reports say of it, and that windows are found by index (R26)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from contract.conftest import Postgres
from contract.test_watermarks import Days
from postgres.test_concurrency import held, wait_for_lock
from postgres_bench import Bench, Calls
from sqlalchemy import Engine
from support import LogSpout, code, manifest_of, run

from txbatch import Count, OpaqueState, Topology, session_window, window
from txbatch.cli.printing import show_status
from txbatch.core.batch.transaction import Batch
from txbatch.core.records.time_buckets import micros_of
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.postgres.upstream.closed_sessions import ClosedSessions


def hours(engine: Engine) -> tuple[Bench, datetime]:
    """A topology whose hours close, three batches at once; and one of its hours."""
    topology, spout = Topology("t", max_pending=3), LogSpout({"a": 100})
    spout.fields = "at timestamp"
    stream = topology.new_stream("in", spout).with_watermark("at", "10 minutes")
    stream.group_by(window("at", "1 hour")).persistent_aggregate(OpaqueState("hours"), visits=Count())
    return Bench(engine, topology), datetime(2026, 1, 5, 10, tzinfo=UTC)


def read_up_to(bench: Bench, name: str, at: datetime, **visits: int) -> tuple[Batch, Any]:
    """A batch, emitted, whose latest record is of that time; and its partials, by hour."""
    hours = [((at.replace(hour=int(hour[1:]), minute=0),), (number,)) for hour, number in visits.items()]
    return emitted(bench, name, at, {"hours": hours})


def emitted(bench: Bench, name: str, at: datetime, partials: Any) -> tuple[Batch, Any]:
    """A batch, emitted, of one state, whose latest record is of that time."""
    ((state, _),) = partials.items()
    batch = bench.planned(name)
    assignment = bench.ledger.start_attempt(batch, run(name), code())
    honest = manifest_of(bench.topology, assignment, partials)
    read = {part: replace(of, latest=micros_of(at)) for part, of in honest.streams["in"].items()}
    states = {state: replace(honest.states[state], late=0)}
    return bench.ledger.record_manifests([(assignment, replace(honest, streams={"in": read}, states=states))])[
        0
    ], partials


def planned_while_it_commits(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, batch: tuple[Batch, Any], name: str
) -> tuple[dict[str, Any], set[str]]:
    """What a commit and a plan that waits for it came to, and the types of all locks while it waits."""
    calls = Calls()
    with held(monkeypatch, "commit.before_commit") as (reached, go_on):
        calls.start("commit", lambda: bench.commit(*batch))
        assert reached.wait(30)
        calls.start("plan", lambda: bench.planned(name))
        wait_for_lock(bench)
        locks = {type_ for (type_,) in bench.rows("SELECT locktype FROM pg_locks")}
        go_on.set()
        return calls.join(), locks


@pytest.mark.rule("R26")
def test_a_plan_waits_for_a_commit_that_closes_windows_and_counts_in_none_of_them(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, at = hours(engine)
    first = read_up_to(bench, "1", at + timedelta(hours=3), h10=2, h13=1)
    answers, _ = planned_while_it_commits(bench, monkeypatch, first, "2")
    assert answers["commit"] is True
    closed_to = micros_of(at + timedelta(hours=2, minutes=50))
    assert answers["plan"].plan.watermark == {"in": closed_to}
    assert bench.rows("SELECT closed_to ->> 'hours' FROM txbatch.batch ORDER BY txid") == [(str(closed_to),), (None,)]
    told = [(at, at + timedelta(hours=1), 2, 1, 1)]
    assert bench.rows("SELECT * FROM report.closed_hours(0, 1)") == told
    assert bench.rows("SELECT closed_to, window_key, before_start FROM report.closings") == [
        (at + timedelta(hours=2, minutes=50), "window_start", at + timedelta(hours=2))
    ]


@pytest.mark.rule("R26")
def test_what_keeps_plans_and_commits_apart_no_reader_can_hold(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any role may take an advisory lock whose key it knows, or sees in `pg_locks`."""
    bench, at = hours(engine)
    bench.commit(*read_up_to(bench, "1", at, h10=1))
    second = read_up_to(bench, "2", at + timedelta(hours=3), h10=2, h13=1)
    answers, locks = planned_while_it_commits(bench, monkeypatch, second, "3")
    assert "advisory" not in locks
    assert answers["plan"].plan.watermark == {"in": micros_of(at + timedelta(hours=2, minutes=50))}


@pytest.mark.rule("R25", "R26")
def test_an_abort_beside_a_commit_lets_no_window_close_that_its_records_may_count_in(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit sees the aborted batch as open, or its partition as behind: never neither."""
    bench, at = hours(engine)
    lengths = bench.topology.streams["in"].spout.lengths  # type: ignore[attr-defined]
    lengths.update(a=10, b=10)
    assert bench.commit(*read_up_to(bench, "1", at.replace(minute=50), h10=2))
    lengths["a"] = 20
    second = read_up_to(bench, "2", at + timedelta(hours=5), h15=1)
    lengths["b"] = 20
    third = bench.planned("3")
    calls = Calls()
    with held(monkeypatch, "commit.times_read") as (reached, go_on):
        calls.start("commit", lambda: bench.commit(*second))
        assert reached.wait(30)
        bench.ledger.abort("t", third.txid, "why")
        go_on.set()
        assert calls.join() == {"commit": True}
    held_at = str(micros_of(at.replace(minute=40)))
    assert bench.rows("SELECT closed_to ->> 'hours' FROM txbatch.batch ORDER BY txid") == [
        (held_at,),
        (held_at,),
        (None,),
    ]


@pytest.mark.rule("R26")
def test_the_status_says_for_which_gap_windows_wait(
    engine: Engine, databases: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Days 5, 6 and 8; an earlier one alone, below what is closed, holds nothing."""
    visits = Days(Postgres(engine, databases), "seen")

    def told() -> str:
        (row,) = LedgerReader(engine).status()
        show_status([{**row, "half_committed": [], "changed": [], "uncounted": []}])
        return capsys.readouterr().out

    for number in (5, 6, 1):
        visits.counts_day(visits.plans(number), number, 5)
    assert told() == ""
    visits.counts_day(visits.plans(8), 8, 5)
    assert (
        told()
        == "visits: windows are closed up to 2026-01-11 23:50:00, and wait for the gap from 2026-01-12 00:00:00\n"
    )
    visits.counts_day(visits.plans(7), 7, 5)
    assert told() == ""


@pytest.mark.rule("R25")
def test_reports_and_the_status_say_which_batch_had_records_ahead_of_it(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    bench, at = hours(engine)
    assert bench.commit(*read_up_to(bench, "1", at, h9=1))
    future = at.replace(year=2126)
    batch, partials = read_up_to(bench, "2", future, h10=2)
    assignment, manifest = bench.ledger.newest_attempt(batch)
    assert manifest is not None
    read = {part: replace(of, ahead=2) for part, of in manifest.streams["in"].items()}
    batch = bench.ledger.record_manifests([(assignment, replace(manifest, streams={"in": read}))])[0]
    assert bench.commit(batch, partials)
    assert bench.rows("SELECT ahead, ahead_to FROM report.batches ORDER BY txid") == [(None, None), (2, future)]
    (row,) = LedgerReader(engine).status()
    show_status([{**row, "half_committed": [], "changed": []}])
    assert capsys.readouterr().out == (
        "t: txid 2 read 2 records of a time after it was planned, up to 2126-01-05 10:00:00: for the watermark as of then; "
        "`txbatch batches t` has all of these\n"
    )


@pytest.mark.rule("R26")
def test_closed_windows_are_found_by_the_index_of_the_state(engine: Engine) -> None:
    bench, at = hours(engine)
    assert bench.commit(*read_up_to(bench, "1", at, h9=1))
    assert bench.commit(*read_up_to(bench, "2", at + timedelta(hours=3), h10=2, h13=1))
    bench.run(
        "INSERT INTO state.hours (window_start, visits, txid)"
        " SELECT timestamptz '1900-01-01' + n * interval '1 hour', 1, 1 FROM generate_series(1, 100000) n",
        "ANALYZE state.hours",
    )
    found = "SELECT window_start, visits, closed_by FROM report.closed_hours(1, 2)"
    assert sorted(bench.rows(found)) == [(at.replace(hour=9), 1, 2), (at, 2, 2)]
    plan = "\n".join(line for (line,) in bench.rows(f"EXPLAIN {found}"))
    assert "Index" in plan, plan
    assert "Seq Scan on hours" not in plan, plan


@pytest.mark.rule("R26")
@pytest.mark.rule("R27")
def test_closed_sessions_are_found_by_the_index_on_their_ends(engine: Engine) -> None:
    """As they are now and as of their closing, of a hundred thousand; which sessions those are, reports say as of now."""
    topology, spout, at = Topology("t"), LogSpout({"a": 100}), datetime(2026, 1, 5, 10, tzinfo=UTC)
    spout.fields = "at timestamp, user string"
    stream = topology.new_stream("in", spout).with_watermark("at", "10 minutes")
    stream.group_by("user", session_window("at", "30 minutes")).persistent_aggregate(
        OpaqueState("sessions"), visits=Count()
    )
    bench, hour = Bench(engine, topology), timedelta(hours=1)
    assert bench.commit(*emitted(bench, "1", at, {"sessions": [(("ann", at), (at, 2))]}))
    assert bench.commit(*emitted(bench, "2", at + hour, {"sessions": [(("bob", at + hour), (at + hour, 1))]}))
    time = "timestamptz '1990-01-01' + n * interval '1 hour'"
    filled, of_all = f"SELECT 'u' || n % 10000, {time}, {time}, 1, 1", "FROM generate_series(1, 100000) n"
    columns = '"user", session_start, session_end, visits, txid'
    bench.run(
        f"INSERT INTO state.sessions ({columns}) {filled} {of_all}",
        f"INSERT INTO contribution.sessions ({columns}, position) {filled}, 1 {of_all}",
        "ANALYZE",
    )
    found = "SELECT * FROM report.closed_sessions(1, 2)"
    assert bench.rows(found) == [("ann", at, at, 2, 1, 2)]
    (closing,) = bench.ledger.upstream.closings("sessions", {"start": 1, "end": 2, "windows": "new"})
    with engine.connect() as connection:
        known = bench.ledger.upstream.known("sessions")
        closed = ClosedSessions(connection, known, "report", ["user", "session_start"], "session_end")
        as_of = closed.rows("SELECT * FROM report.as_of_sessions(%(cut)s)")
        given = {"cut": 2, "first": closing.first, "end": closing.end}
        assert [tuple(row) for row in connection.exec_driver_sql(as_of, given)] == [("ann", at, at, 2, 1, False)]
        explained = [*connection.exec_driver_sql(f"EXPLAIN (VERBOSE) {as_of}", given)]
    for lines in (explained, bench.rows(f"EXPLAIN (VERBOSE) {found}")):
        plan = "\n".join(line for (line,) in lines)
        assert "session_end_idx" in plan, plan
        assert "Seq Scan on state.sessions" not in plan, plan
        assert 'Seq Scan on contribution_partition."sessions@1"' not in plan, plan


@pytest.mark.rule("R26")
@pytest.mark.rule("R27")
def test_sessions_by_no_other_key_close(engine: Engine) -> None:
    topology, spout, at = Topology("t"), LogSpout({"a": 100}), datetime(2026, 1, 5, 10, tzinfo=UTC)
    spout.fields = "at timestamp"
    stream = topology.new_stream("in", spout).with_watermark("at", "10 minutes")
    stream.group_by(session_window("at", "30 minutes")).persistent_aggregate(OpaqueState("sessions"), visits=Count())
    bench, minutes = Bench(engine, topology), timedelta(minutes=1)
    assert bench.commit(*emitted(bench, "1", at, {"sessions": [((at,), (at, 2))]}))
    hour = at + 60 * minutes
    assert bench.commit(*emitted(bench, "2", hour, {"sessions": [((hour,), (hour, 1))]}))
    upstream, columns = bench.ledger.upstream, ["session_start", "visits", "closed_by"]
    range_ = {"start": 0, "end": 2, "windows": "all", "of": list(upstream.known("sessions").made)}
    assert bench.rows("SELECT session_start, visits, closed_by FROM report.closed_sessions(0, 2)") == [(at, 2, 2)]
    assert [*upstream.closed("sessions", range_, columns)] == [(at, 2, 2)]
    assert upstream.reopened("sessions", range_) is None
    late = {"sessions": [((at + 25 * minutes,), (at + 50 * minutes, 1))]}
    assert bench.commit(*emitted(bench, "3", hour + minutes, late))
    assert upstream.reopened("sessions", {**range_, "end": 3}) == 2
