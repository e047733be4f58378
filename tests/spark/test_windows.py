"""Windows: Spark begins them where Python does, in every zone, by one job over random times; and those of processing time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from spark.conftest import plan

from txbatch import Count, FixedBatchSpout, Max, OpaqueState, Topology, window
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.errors import BadRecord
from txbatch.core.records.fields import Field
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.windows.window import Window
from txbatch.direct.emitter import emit_batch
from txbatch.spark.frames import of_rows

ZONES = [
    *("America/New_York", "America/Havana", "Atlantic/Azores", "America/St_Johns", "America/Sao_Paulo", "Pacific/Apia"),
    *("Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca"),
]
PLAIN = [
    *(
        window("at", length)
        for length in ("1 second", "1 minute", "1 hour", "1 day", "7 seconds", "10 minutes", "36 hours")
    ),
    *(window("at", length) for length in ("1 week", "5 months")),
    *(
        window("at", length, start=start)
        for length, start in (("1 week", "-1 day"), ("1 day", "6 hours"), ("1 month", "14 days"))
    ),
    *(window("at", length, start=start) for length, start in (("1 hour", "-10 minutes"), ("1 year", "3 months"))),
    *(window("at", length, slide=slide) for length, slide in (("10 minutes", "1 minute"), ("2 weeks", "1 week"))),
]
ZONED = [
    *(window("at", length, timezone=zone) for zone in ZONES for length in ("1 day", "1 week", "1 month")),
    *(window("at", "7 days", slide="1 day", timezone=zone) for zone in ZONES),
    *(window("at", "1 day", timezone=zone, start="150 minutes") for zone in ZONES),
    *(window("at", "1 week", timezone=zone, start="-1 day") for zone in ZONES[:6]),
    *(window("at", "1 month", timezone=zone, start="-26 hours") for zone in ZONES[4:]),
    *(window("at", "3 days", slide="1 day", timezone=zone, start="-90 minutes") for zone in ZONES[::3]),
    *(
        window("at", length, timezone="Pacific/Apia") for length in ("2 days", "3 days")
    ),  # one of these began on the day left out
]
# Of these, clocks went over midnight in St. John's, a day was left out in Apia, and Havana and the Azores had two midnights.
YEARS = (1977, 2005, 2011, 2019)


def times() -> tuple[list[datetime], list[datetime]]:
    """Any times, and those of which all know the clocks of the zones."""
    random, begin = Random(14), datetime(1, 1, 1, tzinfo=UTC)
    known = [
        datetime(year, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
        for year in YEARS
        for minute in range(0, 525_600, 1_330)
    ]
    known += [each + timedelta(microseconds=random.randrange(10**9)) for each in known]
    last = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    any_ = [begin, last, *(begin + (last - begin) * random.random() for _ in range(500))]
    return any_, known


def begins(made: Window, at: datetime) -> set[int] | None:
    """Where Python begins the windows of a time; None where it has not the year."""
    try:
        return {micros_of(start) for start in made.starts(at) if start is not None}
    except BadRecord:
        return None


def in_micros(made: Window) -> str:
    if made.per_record == 1:
        return f"array(unix_micros({made.spark}))"
    return f"transform({made.spark}, start -> unix_micros(start))"


def found(spark: SparkSession, windows: list[Window], at: list[datetime]) -> list[Any]:
    frame = of_rows(spark, [Field("at", "timestamp")], [(each,) for each in at])
    named = [f"{in_micros(made)} as w{number}" for number, made in enumerate(windows)]
    return [dict(row) for row in frame.selectExpr("at", *named).toArrow().to_pylist()]


def test_windows_begin_as_in_python(spark: SparkSession) -> None:
    for windows, at in zip((PLAIN, ZONED), times(), strict=True):
        rows = found(spark, windows, at)
        assert len(rows) == len(at)
        for number, made in enumerate(windows):
            for row in rows:
                expected, starts = begins(made, row["at"]), row[f"w{number}"]
                assert len(starts) == len({*starts})
                assert expected == {*starts} if expected is not None else min(starts) < micros_of(at[0]), (
                    made,
                    row["at"],
                )


def test_windows_begin_where_those_of_spark_and_flink_do(spark: SparkSession) -> None:
    """Spark's startTime and Flink's offset are counted from 1970, a Thursday; our weeks from a Monday."""
    at = [each for each in times()[1] if each.year >= 1970]
    frame = of_rows(spark, [Field("at", "timestamp")], [(each,) for each in at])
    pairs = [
        (window("at", "1 day", start="6 hours"), ("1 day", "6 hours")),
        (window("at", "1 hour", start="-10 minutes"), ("1 hour", "50 minutes")),
        (window("at", "1 week", start="-1 day"), ("7 days", "3 days")),
        (window("at", "1 week"), ("7 days", "4 days")),
    ]
    for ours, (length, start) in pairs:
        theirs = frame.selectExpr("at", f"window(at, '{length}', '{length}', '{start}').start as start")
        size, offset = ours.size, ours.origin % ours.size
        for row in theirs.toArrow().to_pylist():
            moment = micros_of(row["at"])
            assert micros_of(row["start"]) == moment - (moment - offset + size) % size
            assert begins(ours, row["at"]) == {micros_of(row["start"])}


@pytest.mark.rule("R29")
def test_records_have_the_numbers_of_the_plan_as_in_memory(emit: Callable[..., Any]) -> None:
    """By their order, nulls last, the same ones in any; tumbling and sliding; and of a plan that says none, null."""
    topology = Topology("t")
    items = [("x", 2.5), (None, 1.0), ("y", None), ("x", -0.5), ("x", 2.5), ("é", 0.0), ("", 3.0)]
    numbers = topology.new_stream("in", FixedBatchSpout("item string, price double", 9, *items)).numbered()
    numbers.group_by("number").persistent_aggregate(OpaqueState("each"), item=Max("item"), price=Max("price"))
    threes = numbers.each("number - number % 3", "first bigint").group_by("first")
    threes.persistent_aggregate(OpaqueState("threes"), n=Count(), last=Max("number"))
    slides = numbers.flat_map("sequence(number - number % 2 - 2, number, 2)", "first bigint").group_by("first")
    slides.persistent_aggregate(OpaqueState("slides"), n=Count())
    metadata = plan(topology)
    assert metadata is not None
    found = emit(topology, replace(BatchPlan.from_json(metadata), base={"in": 4}).to_json())
    order = [("", 3.0), ("x", -0.5), ("x", 2.5), ("x", 2.5), ("y", None), ("é", 0.0), (None, 1.0)]
    assert found.partials["each"] == {(4 + at,): each for at, each in enumerate(order)}
    assert found.partials["threes"] == {(3,): (2, 5), (6,): (3, 8), (9,): (2, 10)}
    assert found.partials["slides"] == {(2,): (2,), (4,): (4,), (6,): (4,), (8,): (3,), (10,): (1,)}
    with pytest.raises(BadRecord, match="key 'number' is null"):
        emit(topology, metadata)


@pytest.mark.rule("R28")
def test_records_have_the_processing_time_of_the_plan_as_in_memory(emit: Callable[..., Any]) -> None:
    """Of merged streams, by windows that slide; beside them a state of one that has none; and of a plan that says none, null."""
    topology = Topology("t")
    web, shop = (topology.new_stream(name, FixedBatchSpout("item string", 9, *"xyx")) for name in ("web", "shop"))
    both = topology.merge(web, shop, name="both").with_processing_time()
    by = window("planned_at", "10 minutes", slide="5 minutes")
    both.group_by(by, "item").persistent_aggregate(OpaqueState("s"), n=Count(), last=Max("planned_at"))
    web.group_by("item").persistent_aggregate(OpaqueState("plain"), n=Count())
    metadata, at = plan(topology), datetime(2026, 1, 5, 10, 2, tzinfo=UTC)
    assert metadata is not None
    planned = replace(BatchPlan.from_json(metadata), planned_at=micros_of(at)).to_json()
    found = emit(topology, planned)
    assignment = Assignment("t", TransactionAttempt(1, 1), "token", planned, "code")
    manifest, partials = emit_batch(topology, assignment)
    assert found.partials == {name: dict(each) for name, each in partials.items()}
    assert found.partials["s"] == {
        (at.replace(hour=hour, minute=minute), item): (2 * number, at)
        for hour, minute in ((9, 55), (10, 0))
        for item, number in (("x", 2), ("y", 1))
    }
    assert [each.states["s"].late for each in (found.manifest, manifest)] == [0, 0]
    assert found.manifest.streams["web"][""].latest is None
    with pytest.raises(BadRecord, match="key 'window_start' is null"):
        emit(topology, metadata)
