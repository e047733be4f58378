"""Late records are counted in the scan of lines, from the byte on at which a file had ended; without Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from txbatch.core.batch.came_late import Late
from txbatch.core.errors import BadRecord
from txbatch.core.records.fields import parse_fields
from txbatch.core.records.time_buckets import micros_of
from txbatch.formats import scan as scans
from txbatch.formats.late_counts import Intervals, LateCounter, _ByPlace
from txbatch.formats.options import check_options
from txbatch.formats.scan import Format, Times, tasks_of

pytestmark = pytest.mark.rule("R17", "R24")
FIELDS = parse_fields("at timestamp, shop string, price int")
DAY = timedelta(days=1)
FIRST = datetime(2024, 1, 1, tzinfo=UTC)


class Added:
    """An accumulator of Spark's, in this process."""

    def __init__(self) -> None:
        self.by_place, self.value = _ByPlace(), _ByPlace().zero({})

    def add(self, term: Any) -> None:
        self.value = self.by_place.addInPlace(self.value, term)


def counted(*days: int) -> list[tuple[int, int, int]]:
    return [(10 + day, *(micros_of(FIRST + (day + more) * DAY) for more in (-1, 0))) for day in days]


def lines(*days: int) -> str:
    return "".join(f"2024-01-{day:02}T10:00:00Z,s,1\n" for day in days)


def met(file: Path, since: int, task_bytes: int = 10**9, times: int = 1) -> tuple[Any, int]:
    """The late records of the first and the third day, and how many records of the fifth were read."""
    added: Any = Added()
    late = LateCounter(Intervals(counted(1, 3)), {file: since}, added)
    bounds = FIRST - 9 * DAY, FIRST + 99 * DAY, FIRST + 4 * DAY, FIRST + 5 * DAY
    format_ = Format("csv", FIELDS, check_options("csv", {}), Times("at", *bounds), late=late)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scans, "TASK_BYTES_MIN", task_bytes)
        patch.setattr(scans, "TASK_BYTES_MAX", task_bytes)
        tasks = tasks_of({file: file.stat().st_size}, 1, apart={file: since})
    for _ in range(times):
        read = sum(len(batch) for task in tasks for range_ in task for batch in format_.read(range_))
    return late.late(lambda path: path.name), read


@pytest.mark.parametrize("task_bytes", [10**9, 7, 30, 61])
@pytest.mark.parametrize("times", [1, 2])
def test_each_late_record_counts_once_however_the_file_is_cut(tmp_path: Path, task_bytes: int, times: int) -> None:
    file = tmp_path / "a.csv"
    file.write_text(lines(1, 3, 5, 1) + lines(1, 1, 2, 3, 5, 5))
    since = len(lines(1, 3, 5, 1))
    found = {11: {"a.csv": Late(2, since)}, 13: {"a.csv": Late(1, since)}}
    assert met(file, since, task_bytes, times) == (found, 3)
    whole = {11: {"a.csv": Late(4, 0)}, 13: {"a.csv": Late(2, 0)}}
    assert met(file, 0, task_bytes, times) == (whole, 3)


def test_a_line_that_was_begun_before_is_of_what_was_counted(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(lines(1, 1, 1))
    assert met(file, len(lines(1)) + 3)[0] == {11: {"a.csv": Late(1, len(lines(1)) + 3)}}


def test_nothing_late_is_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(lines(2, 5, 9))
    assert met(file, 0) == ({}, 1)


def test_a_time_that_is_in_no_interval_fails_as_before(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("1970-01-01T10:00:00Z,s,1\n")
    with pytest.raises(BadRecord, match="line 1"):
        met(file, 0)


def test_times_and_days_are_counted_by_half_open_intervals() -> None:
    intervals = Intervals(counted(1, 3))
    moments = [FIRST - timedelta(microseconds=1), FIRST, FIRST + DAY - timedelta(microseconds=1), FIRST + DAY, None]
    assert intervals.count(pa.array(moments, pa.timestamp("us", tz="UTC"))) == {11: 2}
    days = [date(2023, 12, 31), date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 3), date(2024, 1, 4), None]
    assert intervals.count(pa.array(days, pa.date32())) == {11: 1, 13: 1}
    assert intervals.count(pa.array([], pa.timestamp("us", tz="UTC"))) == {}
    assert Intervals(()).count(pa.array(moments, pa.timestamp("us", tz="UTC"))) == {}
