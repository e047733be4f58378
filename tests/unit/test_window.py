"""Windows of event time, in memory: where they begin and end, what is refused, and what is said of them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import refusals
from hypothesis import given, settings
from hypothesis import strategies as st

from txbatch import Count, FixedBatchSpout, Max, OpaqueState, Stream, Topology, window
from txbatch.core.definition.changes import column_changes
from txbatch.core.definition.stored import columns
from txbatch.core.errors import BadRecord, DefinitionError
from txbatch.core.records.time_buckets import micros_of, time_of
from txbatch.core.topology.guarantee import guarantees
from txbatch.core.topology.walks import one_for_one
from txbatch.core.windows.window import Window
from txbatch.memory.runner import run
from txbatch.testing import submit_topology

# Clocks that go forward and back by night, at midnight, over midnight, by half an hour and by a day; and one that has none of it.
ZONES = [
    *(
        "America/New_York",
        "Europe/Berlin",
        "America/Havana",
        "Atlantic/Azores",
        "America/St_Johns",
        "America/Sao_Paulo",
    ),
    *("Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu", "Africa/Casablanca", "UTC"),
]
HOUR = timedelta(hours=1)
ZONED = st.builds(
    lambda length, zone, start: window("at", length, timezone=zone, start=start),
    st.sampled_from(["1 day", "2 days", "1 week", "1 month", "3 months", "1 year", "7 years"]),
    st.sampled_from(ZONES),
    st.sampled_from([None, None, "6 hours", "-90 minutes", "23 hours", "150 minutes"]),
)
SHIFTED = [
    ("1 month", "14 days"),
    ("1 month", "-27 days"),
    ("3 months", "-1 month"),
    ("1 year", "3 months"),
    ("1 week", "-1 day"),
]
ELSEWHERE = st.builds(
    lambda of, zone: window("at", of[0], timezone=zone, start=of[1]), st.sampled_from(SHIFTED), st.sampled_from(ZONES)
)
PLAIN = st.sampled_from(
    [
        *((length, None) for length in ("1 second", "7 seconds", "10 minutes", "36 hours", "1 day", "1 week")),
        *(("7 seconds", "3 seconds"), ("10 minutes", "-90 seconds"), ("1 day", "-8 hours"), ("1 week", "-1 day")),
    ]
).map(lambda of: window("at", of[0], start=of[1]))
few = settings(max_examples=60, deadline=None)
FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
TIMES = st.integers(micros_of(FIRST), micros_of(LAST)).map(time_of)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def stream_of(*records: Any, fields: str = "at timestamp, shop string") -> Stream:
    return Topology("t").new_stream("in", FixedBatchSpout(fields, 3, *(records or [(at("2026-11-23"), "x")])))


# ---- where they begin and end


@few
@given(st.one_of(ZONED, ELSEWHERE, PLAIN), TIMES)
def test_a_time_is_within_its_window_which_begins_where_the_one_before_ends(made: Any, time: datetime) -> None:
    try:
        (start,) = made.starts(time)
    except BadRecord:
        assert time.year < 8
        return
    end = made.end(start)
    assert start <= time
    assert end is None or time < end
    assert made.starts(start) == [start]
    assert made.first_open(micros_of(time)) == micros_of(start)
    if end is not None:
        assert made.starts(end - timedelta(microseconds=1)) == [start]
        assert made.starts(end) == [end]


@few
@given(st.sampled_from(ZONES), st.integers(20 * 366 * 24 * 60, 67 * 365 * 24 * 60))
def test_a_day_begins_when_its_date_does(zone: str, minutes: int) -> None:
    """But where the clocks go back over midnight: then the date that began stays."""
    time = at("1970-01-01") + timedelta(minutes=minutes)
    (start,) = window("at", "1 day", timezone=zone).starts(time)
    assert start is not None
    day, began = (each.astimezone(ZoneInfo(zone)).date() for each in (time, start))
    assert day == began or (zone == "America/St_Johns" and day == began - timedelta(days=1))
    assert (start - timedelta(microseconds=1)).astimezone(ZoneInfo(zone)).date() < began


def test_days_have_as_many_hours_as_the_clocks_of_the_zone() -> None:
    def hours(day: str, zone: str) -> float:
        made = window("at", "1 day", timezone=zone)
        (start,) = made.starts(at(day).replace(tzinfo=ZoneInfo(zone)) + 12 * HOUR)
        assert start is not None
        end = made.end(start)
        assert end is not None
        return (end - start) / HOUR

    assert [hours(day, "America/New_York") for day in ("2026-03-07", "2026-03-08", "2026-11-01")] == [24, 23, 25]
    assert [hours(day, "America/Havana") for day in ("2026-03-08", "2026-11-01", "2026-11-02")] == [23, 25, 24]
    assert [hours(day, "Australia/Lord_Howe") for day in ("2026-04-05", "2026-10-04")] == [24.5, 23.5]
    assert hours("2011-12-29", "Pacific/Apia") == 24  # the 30th was skipped


def test_weeks_begin_on_mondays_and_months_on_their_first_day() -> None:
    wednesday = at("2026-11-25T08:00")
    found = {
        length: window("at", length, timezone="Europe/Berlin").starts(wednesday)[0]
        for length in ("1 week", "1 month", "3 months", "1 year")
    }
    local = {
        length: start and start.astimezone(ZoneInfo("Europe/Berlin")).isoformat()[:16]
        for length, start in found.items()
    }
    assert local == {
        "1 week": "2026-11-23T00:00",
        "1 month": "2026-11-01T00:00",
        "3 months": "2026-10-01T00:00",
        "1 year": "2026-01-01T00:00",
    }
    assert window("at", "1 week").starts(wednesday) == [at("2026-11-23")]


def begun(of: Any, day: str, zone: str = "UTC") -> tuple[str, str]:
    """The start and the end of the window around noon of a day, by the clocks of a zone."""
    (start,) = of.starts(at(day).replace(tzinfo=ZoneInfo(zone)) + 12 * HOUR)
    return tuple(each.astimezone(ZoneInfo(zone)).isoformat(timespec="minutes") for each in (start, of.end(start)))


def test_windows_begin_elsewhere_by_the_clocks_of_their_zone() -> None:
    berlin = "Europe/Berlin"
    assert begun(window("at", "1 week", start="-1 day"), "2026-11-25") == (
        "2026-11-22T00:00+00:00",
        "2026-11-29T00:00+00:00",
    )
    assert begun(window("at", "1 day", start="6 hours"), "2026-11-25") == (
        "2026-11-25T06:00+00:00",
        "2026-11-26T06:00+00:00",
    )
    days = window("at", "1 day", start="6 hours", timezone=berlin)
    assert begun(days, "2026-03-28", berlin) == ("2026-03-28T06:00+01:00", "2026-03-29T06:00+02:00")
    assert begun(days, "2026-10-24", berlin) == ("2026-10-24T06:00+02:00", "2026-10-25T06:00+01:00")
    months = window("at", "1 month", start="14 days", timezone=berlin)
    assert begun(months, "2026-03-14", berlin) == ("2026-02-15T00:00+01:00", "2026-03-15T00:00+01:00")
    assert begun(months, "2026-03-29", berlin) == ("2026-03-15T00:00+01:00", "2026-04-15T00:00+02:00")
    year = window("at", "1 year", start="3 months", timezone=berlin)
    assert begun(year, "2026-03-31", berlin) == ("2025-04-01T00:00+02:00", "2026-04-01T00:00+02:00")
    slides = window("at", "7 days", slide="1 day", start="6 hours", timezone=berlin)
    starts = [
        start and start.astimezone(ZoneInfo(berlin)).isoformat()[:13] for start in slides.starts(at("2026-03-29T12:00"))
    ]
    assert starts == [f"2026-03-{day}T06" for day in range(23, 30)]


def test_a_week_whose_first_day_is_the_one_on_which_clocks_change() -> None:
    """On Sundays at 2:00 by the clocks, which Berlin skips in March and has twice in October; and at midnight before."""
    berlin, hours = "Europe/Berlin", window("at", "1 week", start="-22 hours", timezone="Europe/Berlin")
    week = window("at", "1 week", start="-1 day", timezone=berlin)
    assert begun(week, "2026-03-29", berlin) == ("2026-03-29T00:00+01:00", "2026-04-05T00:00+02:00")
    assert begun(week, "2026-10-25", berlin) == ("2026-10-25T00:00+02:00", "2026-11-01T00:00+01:00")
    assert begun(hours, "2026-03-29", berlin) == ("2026-03-29T03:00+02:00", "2026-04-05T02:00+02:00")
    assert begun(hours, "2026-10-25", berlin) == ("2026-10-25T02:00+02:00", "2026-11-01T02:00+01:00")
    for moment in (
        "2026-10-25T00:00",
        "2026-10-25T01:30",
    ):  # 2:00 in summer, and 2:30 in winter, which clocks show later
        assert hours.starts(at(moment)) == [at("2026-10-25T00:00")]
    assert hours.starts(at("2026-10-24T23:59")) == [at("2026-10-18T00:00")]
    assert hours.starts(at("2026-03-29T00:59")) == [at("2026-03-22T01:00")]


def test_equal_windows_are_described_alike_whichever_start_is_given() -> None:
    def said(length: str, start: str, **more: Any) -> str:
        return window("at", length, start=start, **more).described

    assert said("1 week", "-1 day") == said("1 week", "6 days") == "windows of 1 week by at, beginning 1 day earlier"
    assert said("1 week", "-24 hours", timezone="Asia/Tokyo") == said("1 week", "144 hours", timezone="Asia/Tokyo")
    assert said("1 day", "12 hours") == said("1 day", "-12 hours") == "windows of 1 day by at, beginning 12 hours later"
    assert (
        said("1 year", "9 months")
        == said("1 year", "-3 months")
        == "windows of 1 year by at, beginning 3 months earlier"
    )
    assert said("1 month", "14 days", timezone="Asia/Tokyo").endswith("by at in Asia/Tokyo, beginning 14 days later")
    for made in (
        window("at", "1 week", start="-1 day"),
        window("at", "1 week", start="90 minutes", timezone="Asia/Tokyo"),
    ):
        again = Window.from_json(made.to_json())
        assert (again.cut, again.size, again.slide, again.origin) == (made.cut, made.size, made.slide, made.origin)


@few
@given(TIMES.filter(lambda time: time.year > 1), st.sampled_from([None, "Asia/Kathmandu", "America/Havana"]))
def test_a_window_that_slides_is_all_that_a_time_is_in(time: datetime, zone: str | None) -> None:
    made = window("at", "7 days", slide="1 day", timezone=zone)
    starts = made.starts(time)
    assert len(starts) == made.per_record == 7
    (day,) = window("at", "1 day", timezone=zone).starts(time)
    assert starts[-1] == day
    assert made.first_open(micros_of(time)) == micros_of(starts[0])
    for start, later in pairwise(starts):
        assert start is not None
        assert window("at", "1 day", timezone=zone).end(start) == later
        end = made.end(start)
        assert end is None or start <= time < end


def test_a_skipped_day_is_no_window_of_its_own() -> None:
    starts = window("at", "3 days", slide="1 day", timezone="Pacific/Apia").starts(at("2011-12-30T10:00"))
    assert starts == [at("2011-12-29T10:00"), at("2011-12-30T10:00")]


SKIPPED = {"Pacific/Apia": "2011-12-30", "Pacific/Kiritimati": "1994-12-31", "Pacific/Kwajalein": "1993-08-21"}


@pytest.mark.parametrize("zone", [*SKIPPED, "America/Havana", "Australia/Lord_Howe"])
@pytest.mark.parametrize("days", range(1, 8))
def test_a_window_has_ended_is_late_and_is_closed_at_the_same_time(zone: str, days: int) -> None:
    """Also where its first day, or its last, was skipped; of `days` by `days`, and by each slide that divides them."""
    around = [at(SKIPPED.get(zone, "2011-11-06")) + hour * HOUR for hour in range(-10 * 24, 10 * 24, 6)]
    slides = [each for each in range(1, days + 1) if days % each == 0]
    for slide, start in [*((each, None) for each in slides), (days, "6 hours"), (slides[0], "-150 minutes")]:
        made = window("at", f"{days} days", slide=f"{slide} days", timezone=zone, start=start)
        found = [(time, start, made.end(start)) for time in around for start in made.starts(time) if start]
        ends = {start: end for _, start, end in found if end}
        assert all(start <= time < ends[start] for time, start, _ in found)
        assert all(made.starts(end) == [end] for end in ends.values() if slide == days)
        for now in map(micros_of, [*around, *ends.values()]):
            shut = {start for start, end in ends.items() if micros_of(end) <= now}
            assert {start for start in ends if micros_of(start) < made.late_before(now)} == shut
            assert {start for start in ends if micros_of(start) < made.first_open(now)} == shut


def test_times_at_the_ends_of_what_python_has() -> None:
    assert window("at", "10 minutes").starts(FIRST) == [FIRST]
    assert window("at", "10 minutes").end(at("9999-12-31T23:50")) is None
    assert window("at", "1 month", timezone="Asia/Tokyo").starts(LAST) == [at("9999-12-31T15:00")]
    assert window("at", "1 year").starts(LAST) == [at("9999-01-01")]
    for made in (window("at", "1 day", timezone="America/New_York"), window("at", "7 years"), window("at", "36 hours")):
        with refusals.refused("TX305", "'at'", "window", "1", "9999"):
            made.starts(FIRST)
    assert window("at", "1 hour").starts(None) == window("at", "2 hours", slide="1 hour").starts(None) == [None]
    assert window("at", "1 hour").starts(at("2026-11-23T10:05").replace(tzinfo=None)) == [at("2026-11-23T10:00")]


# ---- in a topology


def test_any_batches_count_what_one_pass_does() -> None:
    random, zone = Random(14), ZoneInfo("America/New_York")
    times = [at("2026-10-28") + timedelta(minutes=random.randrange(0, 14 * 24 * 60)) for _ in range(300)]
    records = [(time, random.choice("xyz")) for time in times]
    days: dict[tuple[date, str], int] = {}
    for time, shop in records:
        key = time.astimezone(zone).date(), shop
        days[key] = days.get(key, 0) + 1
    for size in (7, 100, 300):
        topology = Topology("t")
        stream = topology.new_stream("in", FixedBatchSpout("at timestamp, shop string", size, *records))
        day = window("at", "1 day", timezone=zone.key)
        stream.group_by(day, "shop").persistent_aggregate(OpaqueState("days"), n=Count(), last=Max("at"))
        rows = run(topology).rows("days")
        assert {(start.astimezone(zone).date(), shop): row.value[0] for (start, shop), row in rows.items()} == days
        assert all(start <= row.value[1] < day.end(start) for (start, _), row in rows.items())


def test_a_report_has_the_end_of_each_window() -> None:
    stream = stream_of((at("2026-11-23T10:05"), "x"), (at("2026-11-23T10:59"), "x"))
    stream.group_by(window("at", "1 hour"), "shop").persistent_aggregate(OpaqueState("hours"), n=Count())
    stream.group_by("shop", window("at", "1 day", name="day")).persistent_aggregate(OpaqueState("days"), n=Count())
    local = submit_topology(stream.topology)
    local.run()
    assert local.rows("hours") == [
        {"window_start": at("2026-11-23T10:00"), "shop": "x", "window_end": at("2026-11-23T11:00"), "n": 2}
    ]
    assert local.rows("days") == [{"shop": "x", "day": at("2026-11-23"), "day_end": at("2026-11-24"), "n": 2}]


def test_a_null_time_is_refused_by_a_state() -> None:
    stream = stream_of((None, "x"))
    stream.group_by(window("at", "1 hour")).persistent_aggregate(OpaqueState("hours"), n=Count())
    with refusals.refused("TX306", "key", "null", "'at'", "'shop'", "'x'", "'window_start'"):
        run(stream.topology)


def test_a_question_is_grouped_by_windows_too() -> None:
    topology = stream_of().topology
    asked = topology.new_query_stream("per_hour", "at timestamp")
    asked.group_by(window("at", "2 hours", slide="1 hour")).aggregate(n=Count())
    topology.streams["in"].persistent_aggregate(OpaqueState("all"), n=Count())
    local = submit_topology(topology)
    assert local.ask("per_hour", [at("2026-11-23T10:05")]) == [
        [{"window_start": at("2026-11-23T09:00"), "n": 1}, {"window_start": at("2026-11-23T10:00"), "n": 1}]
    ]


def test_records_are_one_for_one_unless_windows_slide() -> None:
    stream = stream_of()
    hours, sliding = (stream.group_by(window("at", "1 hour", slide=slide)).stream for slide in (None, "10 minutes"))
    assert one_for_one(hours.node) == stream.roots
    assert one_for_one(sliding.node) is None


def test_a_topology_says_by_which_windows_it_counts_and_a_change_of_them_is_told() -> None:
    def aggregate(*by: Any) -> Any:
        return stream_of().group_by(*by).persistent_aggregate(OpaqueState("s"), n=Count())

    hours, same, days, plain = (
        aggregate(window("at", "1 hour"), "shop"),
        aggregate(window("at", "60 minutes"), "shop"),
        aggregate(window("at", "7 days", slide="1 day", timezone="Europe/Berlin"), "shop"),
        aggregate("at", "shop"),
    )
    assert columns(hours)["windows"] == columns(same)["windows"] == ["windows of 1 hour by at"]
    assert columns(days)["windows"] == ["windows of 7 days, one every 1 day, by at in Europe/Berlin"]
    assert "windows" not in columns(plain)
    topology = Topology("t")
    topology.add(days)
    assert guarantees(topology)[0]["windows"] == columns(days)["windows"][0]
    assert list(column_changes("s", columns(hours), columns(days))) == [
        "state 's' changes from counting by windows of 1 hour by at "
        "to counting by windows of 7 days, one every 1 day, by at in Europe/Berlin"
    ]
    assert list(column_changes("s", columns(hours), columns(same))) == []
    daily = (
        stream_of()
        .group_by(window("at", "1 day"))
        .aggregate(n=Count())
        .persistent_aggregate(OpaqueState("m"), most=Max("n"))
    )
    assert columns(daily)["windows"] == ["windows of 1 day by at"]
    assert daily.window is None


# ---- what is refused

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no time": ({"time": ""}, "time is ''; give the name of a field"),
    "no name": ({"name": None}, "name is None; give the name of a field"),
    "no length": ({"length": "soon"}, "the length 'soon' is not a whole number and a unit, such as '10 minutes'"),
    "no number": ({"length": "hour"}, "the length 'hour' is not a whole number and a unit"),
    "a number": ({"length": 600}, "the length 600 is not a whole number and a unit"),
    "unknown unit": ({"length": "3 fortnights"}, "units are second, minute, hour, day, week, month, year"),
    "a part of a unit": ({"length": "1.5 hours"}, "the length '1.5 hours' is not a whole number and a unit"),
    "nothing": ({"length": "0 minutes"}, "the length '0 minutes' is not at least 1 minute"),
    "less than nothing": ({"length": "-5 minutes"}, "the length '-5 minutes' is not at least 1 minute"),
    "too many digits": ({"length": "1" * 5_000 + " seconds"}, "of 5,000 digits is not at most 10,000 years"),
    "too many digits below nothing": (
        {"length": "-" + "1" * 5_000 + " days"},
        "a length of 5,001 digits is not at most 10,000 years",
    ),
    "too long": ({"length": "10001 years"}, "and at most 10,000 years"),
    "slide of nothing": ({"slide": "0 seconds"}, "the slide '0 seconds' is not at least 1 second"),
    "slide too long": (
        {"slide": "2 hours"},
        "window('at', '1 hour', slide='2 hours'): the slide is longer than the window",
    ),
    "slide that does not divide": ({"slide": "7 minutes"}, "the slide does not divide the window"),
    "slide too short": (
        {"length": "1 week", "slide": "1 second"},
        "each record would count in 604,800 windows; at most 10,000",
    ),
    "months that slide": (
        {"length": "2 months", "slide": "1 month"},
        "months and years differ in length, and have no slide",
    ),
    "slide of a month": (
        {"length": "60 days", "slide": "1 month"},
        "months and years differ in length, and have no slide",
    ),
    "a start of nothing": ({"start": "0 minutes"}, "the start '0 minutes' is not shorter than what lies between"),
    "a start that is too late": ({"start": "60 minutes"}, "start='60 minutes'): the start '60 minutes' is not shorter"),
    "a start that is too early": ({"length": "1 day", "slide": "1 hour", "start": "-1 hour"}, "is not shorter than"),
    "a start of a month": ({"length": "1 week", "start": "1 month"}, "the start '1 month' is in months"),
    "a month that starts after its least length": ({"length": "1 month", "start": "28 days"}, "is not shorter than"),
    "a start that is none": ({"start": "soon"}, "the start 'soon' is not a whole number and a unit"),
    "a start of parts": ({"start": 6}, "the start 6 is not a whole number and a unit"),
    "a start of ages": ({"start": "-10001 years"}, "at most 10,000 years"),
    "no zone": (
        {"length": "1 day", "timezone": "Mars/Olympus"},
        "timezone='Mars/Olympus' must be 'UTC' or the name of a zone",
    ),
    "short zone": (
        {"length": "1 day", "timezone": "CET"},
        "must be 'UTC' or the name of a zone, such as 'Europe/Berlin'",
    ),
    "an offset": ({"length": "1 day", "timezone": 2}, "timezone=2 must be 'UTC' or the name of a zone"),
    "hours in a zone": ({"timezone": "Europe/Berlin"}, "leave it out, or give lengths of days"),
    "days that slide by hours": (
        {"length": "1 day", "slide": "1 hour", "timezone": "Europe/Berlin"},
        "a day there may have 23 or 25 hours",
    ),
}


@pytest.mark.parametrize(("options", "says"), BAD.values(), ids=BAD)
def test_a_window_that_is_none_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        window(**{"time": "at", "length": "1 hour", **options})
    assert says in str(refused.value)


def test_a_stream_that_has_no_such_windows_is_refused() -> None:
    stream, hour = stream_of(), window("at", "1 hour")
    refused = {
        "a window is of 'shop', a string; windows are of a timestamp": (window("shop", "1 hour"),),
        "a window is of 'when', which is no field here; it has at, shop": (window("when", "1 hour"),),
        "group_by: 2 windows; group by one of them": (hour, window("at", "1 day", name="day")),
        "the field 'Shop', which is there already; give it another name": (window("at", "1 hour", name="Shop"),),
        "key 'window_start' is given twice": (hour, "window_start"),
    }
    for says, by in refused.items():
        with pytest.raises(DefinitionError) as error:
            stream.group_by(*by)
        assert says in str(error.value)
    with refusals.refused("TX102", "column", "'window_end'", "twice"):
        stream.group_by(hour).persistent_aggregate(OpaqueState("s"), window_end=Count())
    with refusals.refused("TX102", "column", "'txid'", "'s'"):
        stream.group_by(window("at", "1 hour", name="txid")).persistent_aggregate(OpaqueState("s"), n=Count())
