"""Closing in PostgreSQL: a plan and a commit at once, what reports say of it, and that windows are found by index (R26)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from postgres.test_concurrency import held, wait_for_lock
from postgres_bench import Bench, Calls
from sqlalchemy import Engine
from support import LogSpout, code, manifest_of, run

from txbatch import Count, OpaqueState, Topology, window
from txbatch.core.cuts import micros_of
from txbatch.core.transaction import Batch


def hours(engine: Engine) -> tuple[Bench, datetime]:
    """A topology whose hours close, three batches at once; and one of its hours."""
    topology, spout = Topology("t", max_pending=3), LogSpout({"a": 100})
    spout.fields = "at timestamp"
    stream = topology.new_stream("in", spout).with_watermark("at", "10 minutes")
    stream.group_by(window("at", "1 hour")).persistent_aggregate(OpaqueState("hours"), visits=Count())
    return Bench(engine, topology), datetime(2026, 1, 5, 10, tzinfo=UTC)


def read_up_to(bench: Bench, name: str, at: datetime, **visits: int) -> tuple[Batch, Any]:
    """A batch, emitted, whose latest record is of that time; and its partials, by hour."""
    partials = {"hours": [((at.replace(hour=int(hour[1:]), minute=0),), (number,)) for hour, number in visits.items()]}
    batch = bench.planned(name)
    assignment = bench.ledger.start_attempt(batch, run(name), code())
    honest = manifest_of(bench.topology, assignment, partials)
    read = {part: replace(of, latest=micros_of(at)) for part, of in honest.streams["in"].items()}
    states = {"hours": replace(honest.states["hours"], late=0)}
    return bench.ledger.record_manifest(assignment, replace(honest, streams={"in": read}, states=states)), partials


@pytest.mark.rule("R26")
def test_a_plan_waits_for_a_commit_that_closes_windows_and_counts_in_none_of_them(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, at = hours(engine)
    first, calls = read_up_to(bench, "1", at + timedelta(hours=3), h10=2, h13=1), Calls()
    with held(monkeypatch, "commit.before_commit") as (reached, go_on):
        calls.start("commit", lambda: bench.commit(*first))
        assert reached.wait(30)
        calls.start("plan", lambda: bench.planned("2"))
        wait_for_lock(bench)
        go_on.set()
        answers = calls.join()
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
