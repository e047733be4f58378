"""Dates and times from text: one instant, or refused with the reason."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from txbatch.core.errors import DefinitionError
from txbatch.formats import options, times
from txbatch.formats.misfit import BadValue

NEW_YORK = {"timezone": "America/New_York"}


def parsed(text: str, type_: str = "timestamp", **given: Any) -> Any:
    """The value of a text that stands last of three, behind a null and a copy of itself."""
    array = times.parse(pa.array([None, text, text], pa.string()), type_, options.check_options("json", given))
    assert array.type == (pa.date32() if type_ == "date" else pa.timestamp("us", "UTC"))
    nothing, first, second = array.to_pylist()
    assert (nothing, first) == (None, second)
    return first


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2013-01-31T05:06:07Z", "2013-01-31T05:06:07"),
        ("2013-01-31 05:06:07", "2013-01-31T05:06:07"),
        ("2013-01-31 05:06", "2013-01-31T05:06:00"),
        ("2013-01-31", "2013-01-31T00:00:00"),
        ("2013-01-31T05:06:07.5Z", "2013-01-31T05:06:07.500000"),
        ("2013-01-31 05:06:07,123", "2013-01-31T05:06:07.123000"),
        ("2013-01-31T05:06:07.123456000Z", "2013-01-31T05:06:07.123456"),
        ("2013-01-31 05:06:07 UTC", "2013-01-31T05:06:07"),
        ("2013-01-31 05:06:07+01", "2013-01-31T04:06:07"),
        ("2013-01-31 05:06:07 -0530", "2013-01-31T10:36:07"),
        ("2013-01-31T05:06+14:00", "2013-01-30T15:06:00"),
        ("2012-02-29", "2012-02-29T00:00:00"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999"),
    ],
)
def test_iso_8601_is_read_as_it_is_written(text: str, instant: str) -> None:
    assert parsed(text) == datetime.fromisoformat(instant).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("12:30:00", "it has no date"),
        ("", "it is empty"),
        (" 2013-01-31", "it has blanks around it"),
        ("1700000000", "it is a number"),
        ("1700000000000", "it is a number"),
        ("2013-01-31 05:00 EST", "a zone by name may mean several"),
        ("2013-01-31 05:00 IST", "a zone by name may mean several"),
        ("2013-01-31T05:00[Europe/Berlin]", "a zone by name may mean several"),
        ("01/31/2013", "write it like 2013-01-31T05:00:00Z"),
        ("31.01.2013", "write it like"),
        ("20130131", "write it like"),
        ("2013-1-31", "write it like"),
        ("2013-01-31 05", "write it like"),
        ("2013-01-31T05:06:07.Z", "write it like"),
        ("2013-01-31T05:06:07Z\n", "it has blanks around it"),
        ("2013-01-31t05:06:07z", "write it like"),
        ("12013-01-31", "write it like"),
        ("yesterday", "write it like"),
        ("\u0662\u0660\u0661\u0663-01-31", "write it like"),
        ("2013-02-30", "no such time"),
        ("2013-02-29T00:00:00Z", "no such time"),
        ("2013-13-01", "no such time"),
        ("2013-01-31 24:00:00", "no such time"),
        ("2013-01-31 05:60:00", "no such time"),
        ("2016-12-31 23:59:60Z", "no such time"),
        ("2013-01-31T05:00:00+25:00", "no such time"),
        ("2013-01-31T05:06:07.1234567Z", "more digits than microseconds"),
        ("0000-01-01", "outside 0001 to 9999"),
        ("0001-01-01T00:00:00+01:00", "outside 0001 to 9999"),
        ("9999-12-31T23:59:59-01:00", "outside 0001 to 9999"),
    ],
)
def test_anything_else_is_refused_and_the_reason_told(text: str, reason: str) -> None:
    with pytest.raises(BadValue, match=reason) as refused:
        parsed(text)
    assert refused.value.index == 1


def test_a_time_without_a_zone_is_that_of_the_option() -> None:
    assert parsed("2013-01-31 05:00", **NEW_YORK) == datetime(2013, 1, 31, 10, tzinfo=UTC)
    assert parsed("2013-07-31", **NEW_YORK) == datetime(2013, 7, 31, 4, tzinfo=UTC)
    assert parsed("2013-07-31 05:00Z", **NEW_YORK) == datetime(2013, 7, 31, 5, tzinfo=UTC)
    mixed = pa.array(["2013-07-31 05:00", "2013-07-31 05:00Z", None])
    instants = times.parse(mixed, "timestamp", NEW_YORK).to_pylist()
    assert instants == [datetime(2013, 7, 31, 9, tzinfo=UTC), datetime(2013, 7, 31, 5, tzinfo=UTC), None]


def test_when_clocks_change_a_time_is_one_instant_or_refused() -> None:
    with pytest.raises(BadValue, match="was never on the clocks of America/New_York"):
        parsed("2013-03-10T02:30", **NEW_YORK)
    with pytest.raises(BadValue, match=r"was twice on the clocks of America/New_York; .* ambiguous="):
        parsed("2013-11-03T01:30", **NEW_YORK)
    assert parsed("2013-11-03T01:30", ambiguous="earliest", **NEW_YORK) == datetime(2013, 11, 3, 5, 30, tzinfo=UTC)
    assert parsed("2013-11-03T01:30", ambiguous="latest", **NEW_YORK) == datetime(2013, 11, 3, 6, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "unit", "instant"),
    [
        ("1700000000", "s", "2023-11-14T22:13:20"),
        ("1700000000.123456", "s", "2023-11-14T22:13:20.123456"),
        ("1700000000123", "ms", "2023-11-14T22:13:20.123"),
        ("1700000000123456", "us", "2023-11-14T22:13:20.123456"),
        ("1700000000123456.000", "us", "2023-11-14T22:13:20.123456"),
        ("-0.5", "s", "1969-12-31T23:59:59.5"),
    ],
)
def test_numbers_are_times_in_the_unit_that_is_said(text: str, unit: str, instant: str) -> None:
    assert parsed(text, unit=unit) == datetime.fromisoformat(instant).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "unit", "reason"),
    [
        ("1700000000000", "s", "outside 0001 to 9999"),
        ("99999999999999999999", "ms", "outside 0001 to 9999"),
        ("1700000000.1234567", "s", "more digits than microseconds"),
        ("1700000000.5", "us", "more digits than microseconds"),
        ("1.7e9", "s", 'is no number of s since 1970, as unit="s" says'),
        ("2013-01-31", "ms", "is no number of ms since 1970"),
        ("", "ms", "is no number of ms since 1970"),
    ],
)
def test_other_numbers_are_refused(text: str, unit: str, reason: str) -> None:
    with pytest.raises(BadValue, match=reason):
        parsed(text, unit=unit)


@pytest.mark.parametrize(
    ("text", "format_", "instant"),
    [
        ("1/31/2013 5:07 pm", "%m/%d/%Y %I:%M %p", "2013-01-31T17:07:00"),
        ("12/31/2013 12:00 AM", "%m/%d/%Y %I:%M %p", "2013-12-31T00:00:00"),
        ("31.01.2013", "%d.%m.%Y", "2013-01-31T00:00:00"),
        ("20130131T050607", "%Y%m%dT%H%M%S", "2013-01-31T05:06:07"),
        ("31-Jan-2013 05:06:07.5 +0100", "%d-%b-%Y %H:%M:%S.%f %z", "2013-01-31T04:06:07.5"),
        ("31 may 2013 5h", "%d %B %Y %Hh", "2013-05-31T05:00:00"),
    ],
)
def test_a_format_says_how_times_are_written(text: str, format_: str, instant: str) -> None:
    assert parsed(text, timestamp_format=format_) == datetime.fromisoformat(instant).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "format_"),
    [
        ("2013111", "%Y%m%d"),
        ("31/01/2013", "%m/%d/%Y"),
        ("1/31/13", "%m/%d/%Y"),
        ("13:00 PM 1/1/2013", "%I:%M %p %m/%d/%Y"),
    ],
)
def test_what_is_not_written_so_is_refused(text: str, format_: str) -> None:
    with pytest.raises(BadValue, match=r"is no timestamp: it is not like|no such time"):
        parsed(text, timestamp_format=format_)


def test_dates_are_days() -> None:
    assert parsed("2013-01-31", "date") == date(2013, 1, 31)
    assert parsed("1/31/2013", "date", date_format="%m/%d/%Y") == date(2013, 1, 31)
    for text in ("2013-01-31T00:00:00", "2013-02-30", "0000-01-01", "20130131", "31.01.2013", "", "15000"):
        with pytest.raises(BadValue, match="is no date: "):
            parsed(text, "date")


@pytest.mark.parametrize(
    "given",
    [
        {"unit": "ns"},
        {"timezone": "EST"},
        {"timezone": "Mars/Base"},
        {"timezone": "../UTC"},
        {"ambiguous": "first"},
        {"timestamp_format": "%y-%m-%d"},
        {"timestamp_format": "%Y-%m-%d %Z"},
        {"timestamp_format": "%H:%M"},
        {"timestamp_format": "%Y-%m-%d %I:%M"},
        {"timestamp_format": "%Y-%m-%d %M"},
        {"timestamp_format": "%Y-%m-%d %"},
        {"date_format": "%Y-%m-%d %H"},
        {"date_format": "yyyy-MM-dd"},
    ],
)
def test_an_option_that_could_be_misread_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=f"option {next(iter(given))}="):
        options.check_options("json", given)
