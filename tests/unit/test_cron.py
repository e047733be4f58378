"""Intervals of a cron expression at a change of clocks, each of which can be named: as Airflow makes them."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

import pytest

from txbatch.cli.cron import split_by_cron
from txbatch.core.batch.transaction import Interval
from txbatch.core.errors import DefinitionError

NEW_YORK, ZURICH, SAO_PAULO, CAIRO = "America/New_York", "Europe/Zurich", "America/Sao_Paulo", "Africa/Cairo"
# What CronDataIntervalTimetable of Airflow 3.3.2 makes; the ends of one are a start of the next.
AT_CHANGES = [
    ("0 2 * * *", ZURICH, ["2024-10-26T02:00+02:00", "2024-10-27T02:00+01:00", "2024-10-28T02:00+01:00"]),
    ("0 2 * * *", ZURICH, ["2024-03-30T02:00+01:00", "2024-03-31T03:00+02:00", "2024-04-01T02:00+02:00"]),
    ("30 2 * * *", ZURICH, ["2024-03-30T02:30+01:00", "2024-03-31T03:30+02:00", "2024-04-01T02:30+02:00"]),
    ("30 2 * * *", NEW_YORK, ["2024-03-09T02:30-05:00", "2024-03-10T03:30-04:00", "2024-03-11T02:30-04:00"]),
    ("0 1-3 * * *", NEW_YORK, ["2024-11-02T03:00-04:00", "2024-11-03T01:00-05:00", "2024-11-03T02:00-05:00"]),
    ("30 0 * * *", SAO_PAULO, ["2018-11-03T00:30-03:00", "2018-11-04T01:30-02:00", "2018-11-05T00:30-02:00"]),
    ("20 */4 * * *", CAIRO, ["2024-04-25T20:20+02:00", "2024-04-26T01:20+03:00", "2024-04-26T04:20+03:00"]),
    ("0 * * * *", ZURICH, ["2024-10-27T02:00+02:00", "2024-10-27T02:00+01:00", "2024-10-27T03:00+01:00"]),
    ("30 * * * *", NEW_YORK, ["2024-03-10T01:30-05:00", "2024-03-10T03:30-04:00", "2024-03-10T04:30-04:00"]),
    ("0 0 * * *", "UTC", ["2024-03-10T00:00+00:00", "2024-03-11T00:00+00:00"]),
]


@pytest.mark.parametrize(("cron", "zone", "times"), AT_CHANGES)
def test_each_interval_at_a_change_of_clocks_can_be_named(cron: str, zone: str, times: list[str]) -> None:
    moments = list(map(datetime.fromisoformat, times))
    single = [Interval(*ends) for ends in pairwise(moments)]
    assert [split_by_cron(each, cron, zone) for each in single] == [[each] for each in single]
    assert split_by_cron(Interval(moments[0], moments[-1]), cron, zone) == single


@pytest.mark.parametrize(
    ("cron", "zone", "start", "end", "says"),
    [
        (
            "0 2 * * *",
            ZURICH,
            "2024-10-26T02:00+02:00",
            "2024-10-27T02:00+02:00",
            "end .* next one is 2024-10-27T02:00:00.01:00",
        ),
        ("0 2 * * *", ZURICH, "2024-10-27T02:00+02:00", "2024-10-28T02:00+01:00", "start .* next one is 2024-10-"),
        (
            "0 2 * * *",
            ZURICH,
            "2024-05-01T02:00:30+02:00",
            "2024-05-02T02:00+02:00",
            "start .* next one is 2024-05-02T02",
        ),
        ("0 0 * * *", "UTC", "2024-05-01T00:00+00:00", "2024-05-01T12:00+00:00", "end .* next one is 2024-05-02T00"),
        ("0 0 * * *", "UTC", "2024-05-01T01:00+00:00", "2024-05-02T00:00+00:00", "start .* next one is 2024-05-02T00"),
        (
            "30 2 * * *",
            NEW_YORK,
            "2024-03-10T01:30-05:00",
            "2024-03-11T02:30-04:00",
            "start .* next one is 2024-03-10T03:30",
        ),
    ],
)
def test_what_is_no_time_of_the_expression_is_refused(cron: str, zone: str, start: str, end: str, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        split_by_cron(Interval(datetime.fromisoformat(start), datetime.fromisoformat(end)), cron, zone)
