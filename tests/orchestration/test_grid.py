"""The grid of a DAG whose runs have no interval: which schedules take one, and which intervals a run counts by it."""

from __future__ import annotations

import re
import runpy
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow import sdk
from airflow.sdk import DAG, Asset, BaseOperator
from airflow.timetables import interval
from airflow_schedules import WITHOUT
from refusals import refused

from txbatch import wiring
from txbatch.core.batch.transaction import INTERVALS_MAX, Interval
from txbatch.core.errors import WindowsGone
from txbatch.launch.job_file import LAST_LINES
from txbatch.orchestration import grid
from txbatch.orchestration.schedules import newest, of_airflow

DAILY = sdk.CronDataIntervalTimetable("0 0 * * *", "UTC")
NEW_YORK = sdk.CronDataIntervalTimetable("0 0 * * *", "America/New_York")
HOURLY = sdk.CronDataIntervalTimetable("0 * * * *", "UTC")
WEEKLY = sdk.CronDataIntervalTimetable("0 0 * * 1", "UTC")
MONTHLY = sdk.CronDataIntervalTimetable("0 0 1 * *", "UTC")
QUARTERLY = sdk.CronDataIntervalTimetable("0 0 1 */3 *", "UTC")
YEARLY = sdk.CronDataIntervalTimetable("0 0 1 1 *", "UTC")
STARTED = datetime(2026, 1, 9, 7, 30, tzinfo=UTC)
JOB = """
from txbatch import *
topology = Topology("days")
spout = {spout}
topology.new_stream("in", spout).group_by("word").persistent_aggregate(OpaqueState("days"), count=Count())
"""
BY_TIME = 'IntervalSpout("/in", "word string, at timestamp", time="at")'
FILE = """'An Airflow DAG.'
from txbatch.orchestration import topology_dag

def made(**more):
    return topology_dag("job.py", **more)
"""


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def between(start: str, end: str) -> Interval:
    return Interval(moment(start), moment(end))


def dag_of(intervals: Any, **more: Any) -> DAG:
    """A DAG with a grid, as topology_dag leaves one."""
    with DAG("days", schedule=[Asset("orders")], **more) as dag:
        BaseOperator(task_id="initialize_transaction").intervals = intervals  # type: ignore[attr-defined]
    return dag


def run_of(kind: str = "asset_triggered", **more: Any) -> Any:
    """A run as a task is told of it."""
    none = dict.fromkeys(
        ("logical_date", "data_interval_start", "data_interval_end", "partition_key", "partition_date")
    )
    return SimpleNamespace(
        **{"run_id": "r", "run_type": SimpleNamespace(value=kind), "start_date": STARTED, **none, **more}
    )


@pytest.fixture
def made(tmp_path: Path) -> Any:
    """What calls topology_dag from a DAG file, for a topology that reads by time."""
    (tmp_path / "dags").mkdir()
    (tmp_path / "job.py").write_text(JOB.format(spout=BY_TIME) + LAST_LINES + "\n")
    (tmp_path / "dags" / "days.py").write_text(FILE)
    return runpy.run_path(str(tmp_path / "dags" / "days.py"))["made"]


@pytest.mark.parametrize("schedule", [*WITHOUT.values(), None], ids=[*WITHOUT, "none"])
def test_beside_a_grid_each_schedule_is_taken(made: Any, schedule: Any) -> None:
    dag = made(schedule=schedule, intervals=DAILY, max_active_runs=1)
    assert grid.is_given(dag)
    assert of_airflow(dag).summary == "0 0 * * *"
    assert "**What a run counts.**" in dag.doc_md
    assert "the zone UTC" in dag.doc_md


def test_without_a_grid_the_refusal_names_it(made: Any) -> None:
    with refused("TX118", "days", 'intervals=CronDataIntervalTimetable("0 0 * * *", timezone="UTC")'):
        made(schedule=[Asset("orders")])


@pytest.mark.parametrize(
    "given",
    [
        *("0 0 * * *", "@daily", ..., timedelta(days=1), sdk.CronTriggerTimetable("0 0 * * *", timezone="UTC")),
        sdk.CronTriggerTimetable("0 0 * * *", timezone="UTC", interval=timedelta(days=1)),
        *(
            sdk.DeltaDataIntervalTimetable(timedelta(days=1)),
            sdk.MultipleCronTriggerTimetable("0 0 * * *", timezone="UTC"),
        ),
        *(WITHOUT["asset or time"], WITHOUT["once of airflow"], WITHOUT["events"], Asset("orders")),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_does_not_fix_each_interval_is_no_grid(made: Any, given: Any) -> None:
    """The intervals of a delta begin where the last run ended, or at any time."""
    with refused("TX105", "intervals", 'CronDataIntervalTimetable("0 0 * * *", timezone="UTC")'):
        made(schedule=[Asset("orders")], intervals=given)


def test_a_grid_is_for_a_topology_by_time_and_to_catch_up_needs_a_start(made: Any, tmp_path: Path) -> None:
    with refused("TX105", "days", "catchup=True", "start_date"):
        made(intervals=DAILY, catchup=True)
    made(intervals=DAILY, catchup=True, default_args={"start_date": STARTED})
    (tmp_path / "job.py").write_text(JOB.format(spout='FixedBatchSpout("word string", 1, "a")') + LAST_LINES + "\n")
    with refused("TX105", "days", "intervals"):
        made(intervals=DAILY)


@pytest.mark.parametrize(
    ("dag_run", "found"),
    [
        (run_of(), None),
        (run_of("manual"), None),
        (run_of("operator_triggered"), None),
        (run_of("scheduled", logical_date=STARTED, data_interval_start=STARTED, data_interval_end=STARTED), None),
        (
            run_of(
                "scheduled",
                logical_date=STARTED,
                data_interval_start=moment("2026-01-08"),
                data_interval_end=moment("2026-01-09"),
            ),
            None,
        ),
        (run_of("manual", logical_date=STARTED, data_interval_start=STARTED, data_interval_end=STARTED), None),
        (run_of("manual", logical_date=moment("2026-01-05")), None),
        (
            run_of("manual", data_interval_start=moment("2026-01-04"), data_interval_end=moment("2026-01-05")),
            between("2026-01-04", "2026-01-05"),
        ),
        (
            run_of("backfill", logical_date=STARTED, data_interval_start=STARTED, data_interval_end=STARTED),
            between("2026-01-08", "2026-01-09"),
        ),
        (
            run_of(
                "backfill",
                logical_date=moment("2026-01-05"),
                data_interval_start=moment("2026-01-05"),
                data_interval_end=moment("2026-01-06"),
            ),
            between("2026-01-05", "2026-01-06"),
        ),
        (run_of(partition_key="2026-01-05"), between("2026-01-05", "2026-01-06")),
    ],
)
def test_a_run_with_an_interval_or_a_partition_of_its_own_counts_that_and_all_others_catch_up(
    dag_run: Any, found: Interval | None
) -> None:
    dag = dag_of(DAILY)
    assert grid.interval_of(dag_run, dag) == found
    context: Any = {"dag": dag, "dag_run": dag_run}
    assert grid.catches_up(context) is (found is None)


@pytest.mark.parametrize(
    ("key", "date", "timetable", "found"),
    [
        ("2026", "2026-01-01", YEARLY, between("2026-01-01", "2027-01-01")),
        ("2026-Q4", None, QUARTERLY, between("2026-10-01", "2027-01-01")),
        ("2026-12", None, MONTHLY, between("2026-12-01", "2027-01-01")),
        ("2026-01-05 (W02)", "2026-01-05", WEEKLY, between("2026-01-05", "2026-01-12")),
        ("2026-01-05", "2026-01-05", DAILY, between("2026-01-05", "2026-01-06")),
        ("2026-01-05", None, NEW_YORK, between("2026-01-05T05:00", "2026-01-06T05:00")),
        ("2026-03-08", None, NEW_YORK, between("2026-03-08T05:00", "2026-03-09T04:00")),  # 23 hours
        ("2026-01-05T07", None, HOURLY, between("2026-01-05T07:00", "2026-01-05T08:00")),
        ("2026-01-05T07:00:00", "2026-01-05T07:00", HOURLY, between("2026-01-05T07:00", "2026-01-05T08:00")),
        ("2026-01-05T00:00:00", None, DAILY, between("2026-01-05", "2026-01-06")),
        ("05.01.2026", "2026-01-05", DAILY, between("2026-01-05", "2026-01-06")),
        ("2026-01-05/2026-01-06", None, DAILY, between("2026-01-05", "2026-01-06")),
    ],
)
def test_a_partition_key_that_is_an_interval_of_the_grid_is_the_interval(
    key: str, date: str | None, timetable: Any, found: Interval
) -> None:
    assert grid.interval_of(run_of(partition_key=key, partition_date=date and moment(date)), dag_of(timetable)) == found


@pytest.mark.parametrize(
    ("key", "date", "timetable"),
    [
        ("eu", None, DAILY),
        ("eu|2026-01-05", None, DAILY),
        ("2026-13", None, MONTHLY),
        ("9999", None, YEARLY),
        ("2026-01-05", None, HOURLY),  # a day is 24 intervals
        ("2026-01-05T07", None, DAILY),
        ("2026-01-05T07:30:00", None, HOURLY),
        ("2026-01-06 (W02)", None, WEEKLY),  # a Tuesday
        ("2026-01-05", "2026-01-05", NEW_YORK),  # the producer's day is that of UTC
        ("2026-01-05/2026-01-07", None, DAILY),
        ("2026-01-05/", None, DAILY),
        ("\u202e\n", None, DAILY),
    ],
)
def test_a_partition_key_that_is_no_interval_is_refused_by_name(key: str, date: str | None, timetable: Any) -> None:
    with refused("TX415", "days", "intervals") as caught:
        grid.interval_of(run_of(partition_key=key, partition_date=date and moment(date)), dag_of(timetable))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("date", [None, "2026-11-01T05:00", "2026-11-01T06:00"])
def test_an_hour_that_the_zone_has_twice_is_refused_with_the_way_to_count_both(date: str | None) -> None:
    dag = dag_of(sdk.CronDataIntervalTimetable("0 * * * *", "America/New_York"))

    def found(key: str, of: str | None = None) -> Interval | None:
        return grid.interval_of(run_of(partition_key=key, partition_date=of and moment(of)), dag)

    with refused("TX415", "2026-11-01T01", "two hours", "'catch_up': 2026-11-01T01:00-04:00/2026-11-01T02:00"):
        found("2026-11-01T01", date)
    assert found("2026-11-01T00") == between("2026-11-01T04:00", "2026-11-01T05:00")
    assert found("2026-11-01T02") == between("2026-11-01T07:00", "2026-11-01T08:00")


class Counted:
    """The ledger's answer: what is covered, by this run and by others."""

    def __init__(self, *rows: tuple[bool, Interval]) -> None:
        self.rows = [{"by_run": mine, "covered_from": each.start, "covered_to": each.end} for mine, each in rows]

    def covered(self, topology: str, prefix: str) -> Sequence[dict[str, Any]]:
        assert (topology, prefix) == ("days", "airflow:days:r+")
        return self.rows


class Ledger:
    """A ledger whose windows have left before a time."""

    def __init__(self, left_before: str) -> None:
        self.left_before = moment(left_before)

    def refused(self, topology: Any, intervals: Sequence[Interval]) -> list[WindowsGone]:
        first = takewhile(lambda each: each.start < self.left_before, intervals)
        return [WindowsGone(f"{topology.name}: interval {each} is gone") for each in first]


def asked(
    monkeypatch: pytest.MonkeyPatch,
    dag: DAG,
    *rows: tuple[bool, Interval],
    left_before: str = "2020-01-01",
    **dag_run: Any,
) -> grid.Over:
    """What a run is to count."""
    topology = SimpleNamespace(name="days")
    steps: Any = SimpleNamespace(job=SimpleNamespace(topology=topology), ledger=Ledger(left_before))
    context: Any = {"dag": dag, "dag_run": run_of(**dag_run)}
    monkeypatch.setattr(wiring, "reader_beside", lambda _: Counted(*rows))
    return grid.over(steps, "airflow:days:r", context)


def over(monkeypatch: pytest.MonkeyPatch, dag: DAG, *rows: tuple[bool, Interval], **dag_run: Any) -> list[str]:
    """The days that a run counts."""
    return days(asked(monkeypatch, dag, *rows, **dag_run))


def days(found: grid.Over) -> list[str]:
    return [f"{each.start:%m-%d}" for each in found.intervals]


def test_a_run_counts_what_is_over_from_the_oldest_counted_interval_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaps too; what this run counted before stays in its list, so that each try finds the same."""
    dag, first, later = dag_of(DAILY), between("2026-01-03", "2026-01-05"), between("2026-01-06", "2026-01-08")
    assert over(monkeypatch, dag) == ["01-08"], "none is counted: the newest alone"
    assert over(monkeypatch, dag, (False, first)) == ["01-05", "01-06", "01-07", "01-08"]
    assert over(monkeypatch, dag, (False, first), (False, later)) == ["01-05", "01-08"]
    assert over(monkeypatch, dag, (False, first), (True, later)) == ["01-05", "01-06", "01-07", "01-08"]
    assert over(monkeypatch, dag, (True, between("2026-01-08", "2026-01-09"))) == ["01-08"]
    assert over(monkeypatch, dag, (False, between("2026-01-03", "2026-01-09"))) == []
    assert over(monkeypatch, dag, (False, between("2026-01-03T12:00", "2026-01-07T12:00"))) == ["01-08"], "another grid"


def test_a_logical_date_given_by_hand_is_the_moment_by_which_an_interval_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before all that is counted it names one interval."""
    dag, counted, by_hand = dag_of(DAILY), (False, between("2026-01-03", "2026-01-05")), {"kind": "manual"}
    assert over(monkeypatch, dag, counted, **by_hand, logical_date=STARTED) == ["01-05", "01-06", "01-07", "01-08"]
    assert over(monkeypatch, dag, counted, **by_hand, logical_date=moment("2026-01-07T05:00")) == ["01-05", "01-06"]
    assert over(monkeypatch, dag, counted, **by_hand, logical_date=moment("2026-01-01T05:00")) == ["12-31"]
    assert over(monkeypatch, dag, counted, **by_hand, logical_date=moment("2026-01-04T05:00")) == []
    assert over(monkeypatch, dag, **by_hand, logical_date=moment("2027-01-01")) == ["01-08"], "not over before the run"
    scheduled = {"kind": "scheduled", "logical_date": moment("2026-01-01")}  # of @once the start date
    assert over(monkeypatch, dag, counted, **scheduled) == ["01-05", "01-06", "01-07", "01-08"]


def test_the_dates_of_the_dag_bound_it_and_catchup_begins_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    dates: Any = {"start_date": moment("2026-01-04T12:00"), "catchup": True}
    counted = between("2026-01-06", "2026-01-07")
    assert over(monkeypatch, dag_of(DAILY, **dates)) == ["01-05", "01-06", "01-07", "01-08"]
    assert over(monkeypatch, dag_of(DAILY, **dates), (False, counted)) == ["01-05", "01-07", "01-08"]
    assert over(monkeypatch, dag_of(DAILY, **dates), (False, between("2026-01-01", "2026-01-02"))) == [
        *("01-05", "01-06", "01-07", "01-08")
    ], "none before the start date"
    ended = dag_of(DAILY, **dates, end_date=moment("2026-01-06"))
    assert over(monkeypatch, ended) == ["01-05", "01-06"]
    assert over(monkeypatch, dag_of(DAILY, start_date=moment("2026-01-09"))) == []
    assert over(monkeypatch, dag_of(DAILY, start_date=moment("2027-01-01"))) == []


def test_more_than_a_run_may_plan_is_left_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "INTERVALS_MAX", 3)
    assert INTERVALS_MAX > 3
    dag = dag_of(DAILY, start_date=moment("2026-01-01"), catchup=True)
    assert over(monkeypatch, dag) == ["01-01", "01-02", "01-03"]


@pytest.mark.parametrize("together", [1, 2, 1000])
def test_an_interval_whose_windows_have_left_is_passed_by_and_told(
    monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """It blocked each later interval, for good. It is not called counted; what this run has counted before stays."""
    monkeypatch.setattr(grid, "_TOGETHER", together)
    dag, first = dag_of(DAILY), (False, between("2026-01-03", "2026-01-04"))
    found = asked(monkeypatch, dag, first, left_before="2026-01-06")
    assert days(found) == ["01-06", "01-07", "01-08"]
    assert found.told == (
        "2 intervals are passed by and not counted, from 2026-01-04 (UTC) on: "
        "days: interval 2026-01-04T00:00:00+00:00/2026-01-05T00:00:00+00:00 is gone"
    )
    mine = (True, between("2026-01-04", "2026-01-05"))
    again = asked(monkeypatch, dag, first, mine, left_before="2026-01-06")
    assert days(again) == ["01-04", "01-06", "01-07", "01-08"]
    assert (again.told or "").startswith("1 interval is passed by and not counted, from 2026-01-05 (UTC) on: ")
    none = asked(monkeypatch, dag, first, left_before="2026-01-09")
    assert days(none) == []
    assert (none.told or "").startswith("5 intervals are passed by")


def test_a_run_tells_how_many_intervals_fill_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One old interval that somebody counts by hand makes the next run count all between."""
    dag, old, new = dag_of(DAILY), between("2025-12-01", "2025-12-02"), between("2026-01-01", "2026-01-07")
    found = asked(monkeypatch, dag, (False, old), (False, new))
    assert len(found.intervals) == 30 + 2
    assert found.told == "gaps are filled, 30 intervals from 2025-12-02 (UTC) on"
    assert asked(monkeypatch, dag, (False, new)).told is None
    assert asked(monkeypatch, dag, (False, between("2025-12-30", "2025-12-31")), (False, new)).told is None, "one day"


def test_reaches_back_bounds_how_old_an_interval_may_be_and_what_is_left_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dag, old = dag_of(DAILY), (False, between("2025-12-01", "2025-12-02"))
    first: Any = dag.task_dict["initialize_transaction"]
    first.reaches_back = timedelta(days=3)
    found = asked(monkeypatch, dag, old, (False, between("2026-01-07", "2026-01-08")))
    assert days(found) == ["01-08"]
    assert found.told == "what is not counted from 2025-12-02 (UTC) on is older than reaches_back, and left"
    first.reaches_back = timedelta(days=4)
    assert over(monkeypatch, dag, old) == ["01-06", "01-07", "01-08"], "whole intervals"
    near = (False, between("2026-01-06", "2026-01-07"))
    assert asked(monkeypatch, dag, near).told is None, "nothing is older"
    first.reaches_back = timedelta(hours=1)
    assert over(monkeypatch, dag, old) == ["01-08"], "the newest one always"
    by_hand = {"kind": "manual", "logical_date": moment("2026-01-05T05:00")}
    assert over(monkeypatch, dag, old, **by_hand) == ["01-04"], "counted back from a date given by hand"


def test_what_the_run_itself_has_counted_is_not_told_as_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that filled a gap, and is cleared when the gap is older than reaches_back."""
    dag, old = dag_of(DAILY), (False, between("2025-12-01", "2025-12-02"))
    first: Any = dag.task_dict["initialize_transaction"]
    first.reaches_back = timedelta(days=3)
    mine, later = (True, between("2025-12-02", "2026-01-06")), (False, between("2026-01-06", "2026-01-08"))
    found = asked(monkeypatch, dag, mine, old, later)
    assert (days(found), found.told) == (["01-08"], None)
    left = asked(monkeypatch, dag, old, (True, between("2025-12-02", "2025-12-05")), later)
    assert left.told == "what is not counted from 2025-12-05 (UTC) on is older than reaches_back, and left"


@pytest.mark.parametrize("given", [timedelta(), timedelta(days=-1), 7, "7 days"])
def test_a_bound_that_is_no_length_is_refused_and_so_is_one_without_a_grid(made: Any, given: Any) -> None:
    with refused("TX105", "reaches_back"):
        made(schedule=[Asset("orders")], intervals=DAILY, reaches_back=given)
    with refused("TX105", "reaches_back", "intervals="):
        made(schedule=DAILY, reaches_back=timedelta(days=7))


@pytest.mark.parametrize(
    ("key", "waits"),
    [("2026-01-08", True), ("2026-01-09", True), ("2026-01-10", True), ("2026-01-11", False), ("2062-01-09", False)],
)
def test_a_partition_that_comes_early_waits_for_its_end_unless_it_is_far_ahead(
    monkeypatch: pytest.MonkeyPatch, key: str, waits: bool
) -> None:
    class Now(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return STARTED

    monkeypatch.setattr(grid, "datetime", Now)
    dag, dag_run = dag_of(DAILY), run_of(partition_key=key)
    interval = between(key, (moment(key) + timedelta(days=1)).date().isoformat())
    context: Any = {"dag": dag, "dag_run": dag_run}
    assert grid.waits_for_end(interval, context) is waits
    assert not grid.waits_for_end(interval, {**context, "dag_run": run_of("backfill")}), "an interval given by hand"


@pytest.mark.parametrize("started", ["2024-03-10T07:30", "2024-03-11T07:30", "2024-11-03T06:30", "2024-11-04T07:30"])
def test_at_a_change_of_clocks_the_newest_interval_is_one_that_airflow_makes(started: str) -> None:
    """Of a weekly grid too, for which Airflow infers none in the hour after a skipped one."""
    for cron in ("0 2 * * *", "0 2 * * 0", "30 2 * * *"):
        found = newest(moment(started), interval.CronDataIntervalTimetable(cron, "America/New_York"))
        assert found.start < found.end <= moment(started)
        assert moment(started) - found.end < timedelta(days=8)


def test_the_reason_for_nothing_to_count_names_the_time_in_the_zone_of_the_grid() -> None:
    context: Any = {"dag": dag_of(NEW_YORK), "dag_run": run_of()}
    by = "interval that was over by 2026-01-09T02:30 (America/New_York) is counted"
    assert grid.nothing(context, None).startswith(f"nothing to count: each {by}")
    assert grid.nothing(context, "1 interval is passed by").startswith(f"nothing to count: each other {by}")


def test_the_example_of_the_docs_counts_by_its_grid(tmp_path: Path) -> None:
    documents = Path(__file__).parents[2] / "docs"
    (job, *_), (file,) = (
        re.findall(r"```python\n(.*?)```", (documents / page).read_text(), re.DOTALL)
        for page in ("jobs.md", "run/upstream.md")
    )
    for name, text in (("jobs", job), ("dags", file)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "shop.py").write_text(text)
    dag = runpy.run_path(str(tmp_path / "dags" / "shop.py"))["dag"]
    assert (dag.dag_id, of_airflow(dag).summary) == ("sales", "0 0 * * *")
    assert grid.interval_of(run_of(), dag) is None
