"""Where windows end, in reports: by PostgreSQL's clocks of each zone as by Python's, and in all that shows a state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from postgres_bench import Bench
from sqlalchemy import Engine
from support import LogSpout, code, manifest_of, run

from txbatch import Count, OpaqueState, Topology, window
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.windows import window as windows
from txbatch.core.windows.window import Window

SKIPPED = ["Pacific/Apia", "Pacific/Kiritimati", "Pacific/Kwajalein"]
ZONES = [
    *("America/New_York", "America/Havana", "Atlantic/Azores", "America/St_Johns", "America/Sao_Paulo", "Pacific/Apia"),
    *("Australia/Lord_Howe", "Africa/Casablanca"),
]
LENGTHS = ["1 day", "1 week", "1 month", "1 year"]
# Clocks went forward and back over midnight, to no midnight and to two; Apia left out a day.
DAYS = [datetime(year, 1, 1, 12, tzinfo=UTC) + timedelta(days=day) for year in (2005, 2011, 2019) for day in range(365)]


def test_windows_end_as_in_python(engine: Engine) -> None:
    windows = [window("at", length, timezone=zone) for zone in ZONES for length in LENGTHS]
    windows += [window("at", length) for length in ("7 seconds", "90 minutes", "1 day", "1 week", "1 month")]
    windows += [window("at", length, timezone=zone, start="150 minutes") for zone in ZONES for length in LENGTHS]
    windows += [window("at", length, timezone=zone, start="-26 hours") for zone in ZONES for length in LENGTHS[1:]]
    windows += [window("at", "1 month", timezone=zone, start="14 days") for zone in ZONES]
    windows += [window("at", "1 week", start="-1 day"), window("at", "1 year", start="3 months")]
    check_ends(engine, windows, DAYS)


def test_windows_end_as_in_python_whose_first_day_was_skipped(engine: Engine) -> None:
    lengths = [("2 days", None), ("3 days", None), ("5 days", None), ("6 days", "2 days"), ("1 week", "1 day")]
    windows = [window("at", length, slide, timezone=zone) for zone in SKIPPED for length, slide in lengths]
    windows += [
        window("at", length, slide, timezone=zone, start="6 hours") for zone in SKIPPED for length, slide in lengths
    ]
    windows += [
        window("at", "1 month", timezone=zone, start=start) for zone in SKIPPED for start in ("-2 days", "20 days")
    ]
    skipped = [
        datetime(*day, 12, tzinfo=UTC) for day in ((2011, 12, 30), (1994, 12, 31), (1993, 8, 21), (1969, 12, 31))
    ]
    check_ends(engine, windows, [day + timedelta(days=more) for day in skipped for more in range(-9, 9)])


def check_ends(engine: Engine, windows: Sequence[Window], days: Sequence[datetime]) -> None:
    """Of all that begin around these days."""
    for made in windows:
        starts = sorted({start for day in days for start in made.starts(day) if start is not None})
        ends = f"SELECT s, {made.end_sql('s')} FROM unnest(%(starts)s::timestamptz[]) s ORDER BY s"
        with engine.connect() as connection:
            found = [tuple(row) for row in connection.exec_driver_sql(ends, {"starts": starts})]
        assert found == [(start, made.end(start)) for start in starts], made


def test_all_that_shows_a_state_has_the_end_of_its_windows(engine: Engine) -> None:
    topology, spout = Topology("t"), LogSpout({"a": 100})
    spout.fields = "at timestamp, shop string"
    hours = topology.new_stream("in", spout).group_by("shop", window("at", "1 hour", name="hour_start"))
    hours.persistent_aggregate(OpaqueState("hours"), visits=Count())
    bench, start = Bench(engine, topology), datetime(2026, 11, 23, 10, tzinfo=UTC)
    for name, visits in (("1", 2), ("2", 3)):
        bench.whole({"hours": [(("x", start), (visits,))]}, name)
    row, columns = ("x", start, start + timedelta(hours=1)), "shop, hour_start, hour_end, visits"
    assert bench.rows(f"SELECT {columns}, txid FROM report.hours") == [(*row, 5, 2)]
    assert bench.rows("SELECT * FROM report.hours") == [(*row, 5, 2)]
    for asked, way in product(("as_of_hours(1)", "corrected_hours(1)"), ("off", "on")):
        with engine.connect() as connection:
            connection.exec_driver_sql(f"SET LOCAL txbatch.far_back = {way}")
            assert [tuple(each) for each in connection.exec_driver_sql(f"SELECT * FROM report.{asked}")] == [
                (*row, 2, 1)
            ]
    assert bench.rows("SELECT * FROM report.get_hours('x', '2026-11-23 10:00Z')") == [(*row, 5, 2)]
    assert bench.rows(f"SELECT {columns} FROM report.hours_changes ORDER BY txid") == [(*row, 2), (*row, 3)]
    said = "SELECT col_description('report.hours'::regclass, 3)"
    assert bench.rows(said) == [
        ("When the window ends, which is not part of it, null after the year 9999: windows of 1 hour by at",)
    ]


def test_views_of_an_older_version_are_made_anew_where_windows_ended_otherwise(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the next run: a window at the end of the year 9999 made all of a report unreadable."""
    topology, spout, last = Topology("t"), LogSpout({"a": 100}), datetime(9999, 12, 31, 23, tzinfo=UTC)
    spout.fields = "at timestamp"
    hours = topology.new_stream("in", spout).group_by(window("at", "1 hour"))
    hours.persistent_aggregate(OpaqueState("hours"), visits=Count())
    partials = {"hours": [((last,), (2,))]}
    with monkeypatch.context() as older:
        older.setattr(Window, "end_sql", lambda _, start: f"({start} + interval '1 hour')")
        older.setattr(windows, "END", "When the window ends, which is not part of it")
        bench = Bench(engine, topology)
        bench.whole(partials, "1")
    with pytest.raises(ValueError, match="year 10000 is out of range"):
        bench.rows("SELECT * FROM report.hours")
    bench.run("COMMENT ON COLUMN report.hours.visits IS 'as somebody says'")
    bench = Bench(engine, topology)
    bench.whole(partials, "2")
    assert bench.rows("SELECT * FROM report.hours") == [(last, None, 4, 2)]
    ends = "SELECT window_end FROM"
    for shown in ("report.hours_changes", "report.as_of_hours(1)", "report.get_hours('9999-12-31 23:00Z')"):
        assert {end for (end,) in bench.rows(f"{ends} {shown}")} == {None}
    said = "SELECT col_description('report.hours'::regclass, n) FROM generate_series(2, 3) n"
    assert bench.rows(said) == [(f"{windows.END}: windows of 1 hour by at",), ("as somebody says",)]


def test_the_report_of_batches_has_the_least_watermark_and_what_was_late(engine: Engine) -> None:
    topology, at = Topology("t"), datetime(2026, 1, 5, 10, tzinfo=UTC)
    streams = []
    for name in ("web", "shop"):
        spout = LogSpout({"a": 100})
        spout.fields = "at timestamp, shop string"
        streams.append(topology.new_stream(name, spout).with_watermark("at", "1 minute"))
    hours = topology.merge(*streams, name="both").group_by(window("at", "1 hour"))
    hours.persistent_aggregate(OpaqueState("hours"), visits=Count())
    bench, partials = Bench(engine, topology), {"hours": [((at,), (7,))]}
    batch = bench.planned("1")
    assignment = bench.ledger.start_attempt(batch, run("1"), code())
    honest = manifest_of(topology, assignment, partials)
    latest = {"web": at, "shop": at - timedelta(hours=3)}
    read = {
        name: {part: replace(of, latest=micros_of(latest[name])) for part, of in parts.items()}
        for name, parts in honest.streams.items()
    }
    states = {"hours": replace(honest.states["hours"], kept=7, late=2)}
    emitted = bench.ledger.record_manifests([(assignment, replace(honest, streams=read, states=states))])[0]
    assert bench.commit(emitted, partials)
    shown = bench.rows("SELECT late, watermark FROM report.batches")
    assert shown == [({"hours": 2}, at - timedelta(hours=3, minutes=1))]
    batch = bench.planned("2")
    assert batch.plan.watermark == {name: micros_of(each) - 60_000_000 for name, each in latest.items()}
