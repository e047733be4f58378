"""Names of folders: which files an interval reads by them, and what they say of fields, without Spark."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import refusals
from read_files import read_parquet, read_text

from txbatch import IntervalSpout
from txbatch.core.batch.transaction import Metadata
from txbatch.core.records.fields import parse_fields
from txbatch.formats import options
from txbatch.formats.folders import FolderTimes, moments, overlaps
from txbatch.formats.scan import Format

FIELDS = "at timestamp, name string"
DAY = {"header": True, "folder_time": "day"}


def written(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("at,name\n")
    return root


def spout(root: Path, **given: Any) -> IntervalSpout:
    return IntervalSpout(root, FIELDS, time="at", options=DAY | given)


def plan(of: IntervalSpout, start: str, end: str) -> Metadata:
    found = of.initialize_transaction(1, None, {"interval": [f"{start}:00+00:00", f"{end}:00+00:00"]})
    assert found is not None
    return found


def read(of: IntervalSpout, start: str, end: str) -> list[str]:
    return list(plan(of, start, end)["files"])


DAYS = ("day=2026-11-01/a.csv", "day=2026-11-01/b.csv", "day=2026-11-02/a.csv", "day=2026-11-03/a.csv")


def test_an_interval_reads_the_files_of_its_folders_alone(tmp_path: Path) -> None:
    """And so a broken file fails the intervals of its folder, and no other one."""
    of = spout(written(tmp_path, *DAYS))
    assert read(of, "2026-11-01T00:00", "2026-11-02T00:00") == [*DAYS[:2]]
    assert read(of, "2026-11-02T23:00", "2026-11-03T01:00") == [*DAYS[2:]]
    assert read(of, "2026-11-01T00:00", "2026-11-04T00:00") == [*DAYS]
    assert read(of, "2026-11-05T00:00", "2026-11-06T00:00") == []
    assert read(spout(tmp_path, folder_time="other"), "2026-11-05T00:00", "2026-11-06T00:00") == [*DAYS]


def test_a_folder_that_names_no_time_is_read_by_every_interval(tmp_path: Path) -> None:
    """Right, if not as quick: nothing says which times are in such a file."""
    names = (
        *("a.csv", "day=/a.csv", "day=2026-11-31/a.csv", "day=__HIVE_DEFAULT_PARTITION__/a.csv", "day=20261101/a.csv"),
        *("day=2026-11-01/day=2026-11-02/a.csv", "day=2026%2D11%2D01/a.csv", "day=9999-12-31/a.csv"),
    )
    found = read(spout(written(tmp_path, *names, DAYS[0])), "2026-11-05T00:00", "2026-11-06T00:00")
    assert found == sorted(names)
    assert read(spout(tmp_path), "2026-11-01T00:00", "2026-11-02T00:00") == sorted([*names, DAYS[0]])


@pytest.mark.parametrize(
    ("folder", "zone", "first", "last"),
    [
        ("2026", "UTC", "2026-01-01T00:00", "2027-01-01T00:00"),
        ("2026-12", "UTC", "2026-12-01T00:00", "2027-01-01T00:00"),
        ("2026-11-30", "UTC", "2026-11-30T00:00", "2026-12-01T00:00"),
        ("2026-11-30T23", "UTC", "2026-11-30T23:00", "2026-12-01T00:00"),
        ("2026-11-30-23", "UTC", "2026-11-30T23:00", "2026-12-01T00:00"),
        ("2026-11-01", "America/New_York", "2026-11-01T04:00", "2026-11-02T05:00"),
        ("2026-10-25-02", "Europe/Berlin", "2026-10-25T00:00", "2026-10-25T02:00"),
        ("2026-03-29-03", "Europe/Berlin", "2026-03-29T01:00", "2026-03-29T02:00"),
    ],
)
def test_the_times_of_a_folder(folder: str, zone: str, first: str, last: str) -> None:
    expected = tuple(datetime.fromisoformat(each).replace(tzinfo=UTC) for each in (first, last))
    assert FolderTimes("day", zone).span(f"a/day={folder}/b/x.csv") == expected


def test_a_file_that_appeared_is_of_the_intervals_of_its_folder(tmp_path: Path) -> None:
    of = spout(written(tmp_path, *DAYS[:3]))
    before = plan(of, "2026-11-01T00:00", "2026-11-02T00:00")
    written(tmp_path, "day=2026-11-01/c.csv", "day=2026-11-02/c.csv", "c.csv")
    assert of.appeared(before) == ["c.csv", "day=2026-11-01/c.csv"]


def test_files_of_an_earlier_plan_that_no_folder_puts_into_the_interval_are_lacking(tmp_path: Path) -> None:
    """Where the option joined later (R17): had one of them records of the interval, a restate would leave them out in silence."""
    before = plan(IntervalSpout(written(tmp_path, *DAYS), FIELDS, time="at"), "2026-11-01T00:00", "2026-11-02T00:00")
    of = spout(tmp_path)
    assert of.lacking(before, plan(of, "2026-11-01T00:00", "2026-11-02T00:00")) == [*DAYS[2:]]


def test_days_of_several_folders_go_together_if_each_plan_has_all_files_of_its_interval(tmp_path: Path) -> None:
    of = spout(written(tmp_path, *DAYS, "a.csv"))
    with of.one_look():
        plans = [plan(of, f"2026-11-0{day}T00:00", f"2026-11-0{day + 1}T00:00") for day in (1, 2, 3)]
    fused = of.fused(plans)
    assert fused is not None
    assert sorted(fused["files"]) == sorted([*DAYS, "a.csv"])
    assert fused["interval"] == ["2026-11-01T00:00:00+00:00", "2026-11-04T00:00:00+00:00"]
    written(tmp_path, "day=2026-11-01/late.csv")
    later = plan(of, "2026-11-01T12:00", "2026-11-02T00:00")
    half = plan(of, "2026-11-01T00:00", "2026-11-01T12:00")
    assert of.fused([half, later]) is not None
    half["files"].pop("day=2026-11-01/late.csv")
    assert of.fused([half, later]) is None, "the later plan would read a file for the earlier one, too"
    (tmp_path / "a.csv").write_text("at,name\n\n")
    assert of.fused([plans[0], plan(of, "2026-11-02T00:00", "2026-11-03T00:00")]) is None
    assert IntervalSpout(tmp_path, FIELDS, time="at").fused([plans[0], plans[1]]) is None


def test_what_several_plans_read_together_is_what_each_reads(tmp_path: Path) -> None:
    """At random: by the hour, day, month and year, in folders that are there, in any intervals."""
    chance = random.Random(36)
    begin = datetime(2026, 10, 30, tzinfo=UTC)
    forms = ("%Y", "%Y-%m", "%Y-%m-%d", "%Y-%m-%d-%H")
    names = {
        f"day={(begin + timedelta(hours=chance.randrange(90))).strftime(chance.choice(forms))}/x.csv" for _ in range(60)
    }
    of = spout(written(tmp_path, *names, "x.csv"))
    for _ in range(30):
        cuts = sorted({begin + timedelta(hours=chance.randrange(96)) for _ in range(4)})
        hours = [each.isoformat()[:16] for each in cuts]
        plans = [plan(of, *between) for between in pairwise(hours)]
        if not plans:
            continue
        fused = of.fused(plans)
        assert fused is not None
        for each in plans:
            may = {
                name for name in fused["files"] if overlaps(FolderTimes("day").span(name), *moments(each["interval"]))
            }
            assert may == each["files"].keys()


def rows(path: Path, root: Path, fields: str, **given: Any) -> Sequence[dict[str, Any]]:
    declared = parse_fields(fields)
    return read_text(path, Format("csv", declared, options.check_options("csv", given), root=root)).to_pylist()


def test_names_of_folders_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    written(tmp_path, "k=a/k=b/x.csv", "K=a/x.csv", "k=a/k=a/x.csv")
    for file, names in {"k=a/k=b/x.csv": ("'a'", "'b'"), "K=a/x.csv": ("'K'", "'k'")}.items():
        with refusals.refused("TX303", file, *names):
            rows(tmp_path / file, tmp_path, f"{FIELDS}, k string", header=True, folders="k")
    assert rows(tmp_path / "k=a/k=a/x.csv", tmp_path, f"{FIELDS}, k string", header=True, folders="k") == []
    fields = parse_fields(f"{FIELDS}, k string")
    with refusals.refused("TX303", "'k'", "'K'"):
        read_parquet(_parquet(tmp_path / "K=a/x.parquet"), fields, tmp_path, {"optional": ("k",)})


@pytest.mark.parametrize(
    ("value", "type_"), [("99999", "smallint"), ("-2147483649", "int"), ("%ff", "string"), ("%C3%28", "string")]
)
def test_a_folder_value_that_is_cut_or_replaced_is_refused(tmp_path: Path, value: str, type_: str) -> None:
    written(tmp_path, f"k={value}/x.csv")
    with refusals.refused("TX303", f"'{value}'", type_):
        rows(tmp_path / f"k={value}/x.csv", tmp_path, f"{FIELDS}, k {type_}", header=True, folders="k")


def _parquet(path: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    at = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"at": at, "name": ["a"]}), path)
    return path


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"folders": "day"}, ("TX208", "folders='day'", "at, name")),
        ({"folders": "at"}, ("TX208", "folders='at'", "timestamp")),
        ({"folder_time": "a/b"}, ("TX208", "folder_time='a/b'", "folders")),
        ({"folder_time": ""}, ("TX208", "folder_time=''")),
    ],
)
def test_what_is_refused_when_it_is_defined(given: dict[str, Any], complaint: tuple[str, ...]) -> None:
    with refusals.refused(*complaint):
        IntervalSpout("/in", FIELDS, time="at", options={"header": True, **given})


def test_files_that_only_the_runs_of_one_interval_read(tmp_path: Path) -> None:
    """A run of another interval never meets a late record in them: it looks into the folders instead."""
    of = spout(written(tmp_path, *DAYS, "b.csv"))
    for start, end, found in (
        ("2026-11-01T00:00", "2026-11-02T00:00", [*DAYS[:2]]),
        ("2026-11-01T00:00", "2026-11-03T00:00", [*DAYS[:3]]),
        ("2026-11-01T10:00", "2026-11-01T11:00", []),
        ("2026-11-01T12:00", "2026-11-02T12:00", []),
    ):
        now = plan(of, start, end)
        assert "b.csv" in now["files"], "a file without a folder is read by every interval"
        assert of.bounded(now, now["files"]) == found
    assert of.by_folders
    assert not IntervalSpout(tmp_path, FIELDS, time="at", lookback="3 days").by_folders
