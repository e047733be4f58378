"""Which schedules give each run an interval, and which intervals are those of a schedule, also at a change of clocks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.timetables import interval
from airflow.timetables.base import TimeRestriction
from airflow_schedules import CRON, WITH, WITHOUT
from pendulum import instance

from txbatch import fit
from txbatch.cli.cron import split_by_cron
from txbatch.core.batch.transaction import Interval, Run
from txbatch.core.errors import DefinitionError
from txbatch.launch.job_file import load_job
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.run_locks import MemoryRunLocks
from txbatch.memory.staging import MemoryStaging
from txbatch.orchestration.airflow import run_of
from txbatch.orchestration.operators import InitializeTransactionOperator
from txbatch.orchestration.schedules import check_schedule, check_scheduled
from txbatch.orchestration.waiting import Waiting
from txbatch.run.steps import Steps


def dag_of(schedule: Any) -> DAG:
    dates = {"start_date": datetime(2026, 1, 1, tzinfo=UTC)}
    return DAG("days", schedule=schedule, max_active_runs=1, **(dates if schedule else {}))


@pytest.mark.parametrize("schedule", WITHOUT.values(), ids=WITHOUT)
def test_a_schedule_whose_runs_have_no_interval_is_refused_with_what_to_take(schedule: Any) -> None:
    with pytest.raises(DefinitionError, match=r"days reads by time, and the runs of .* have no interval; write \S+"):
        check_schedule("days", dag_of(schedule))


@pytest.mark.parametrize("schedule", WITH.values(), ids=WITH)
def test_one_whose_runs_have_intervals_is_taken(schedule: Any) -> None:
    check_schedule("days", dag_of(schedule))


def of_airflow(cron: str, zone: str, first: str, last: str) -> Iterator[Interval]:
    """The intervals that Airflow's scheduler makes, run by run."""
    timetable, found = interval.CronDataIntervalTimetable(cron, zone), None
    ends = [instance(datetime.fromisoformat(each).replace(tzinfo=UTC)) for each in (first, last)]
    while info := timetable.next_dagrun_info(
        last_automated_data_interval=found, restriction=TimeRestriction(ends[0], ends[1], catchup=True)
    ):
        found = info.data_interval
        yield Interval(*(datetime.fromtimestamp(each.timestamp(), UTC) for each in (found.start, found.end)))


CHANGES = [
    (cron, zone, *dates)
    for zone, *dates in (
        ("America/New_York", "2024-03-08", "2024-03-12"),
        ("America/New_York", "2024-11-01", "2024-11-05"),
        ("Europe/Zurich", "2024-03-29", "2024-04-02"),
        ("Europe/Zurich", "2024-10-25", "2024-10-29"),
        ("America/Sao_Paulo", "2018-11-02", "2018-11-06"),
        ("Africa/Cairo", "2024-04-24", "2024-04-28"),
        ("Australia/Lord_Howe", "2024-04-05", "2024-04-09"),  # by half an hour
        ("Australia/Lord_Howe", "2024-10-04", "2024-10-08"),
    )
    for cron in (CRON, "30 2 * * *", "0 1-3 * * *", "20 */4 * * *", "0 * * * *", "45 * * * *")
    if (cron, zone) != ("0 * * * *", "Australia/Lord_Howe")
]


@pytest.mark.parametrize(("cron", "zone", "first", "last"), CHANGES)
def test_each_interval_of_the_scheduler_is_one_for_a_run_and_for_the_command_line(
    cron: str, zone: str, first: str, last: str
) -> None:
    dag, made = dag_of(interval.CronDataIntervalTimetable(cron, zone)), list(of_airflow(cron, zone, first, last))
    assert len(made) > 3
    for each in made:
        check_scheduled(each, dag)
        assert split_by_cron(each, cron, zone) == [each]


@pytest.mark.parametrize(("first", "last"), [("2024-04-05", "2024-04-09"), ("2024-10-04", "2024-10-08")])
def test_where_clocks_move_by_half_an_hour_airflow_makes_no_interval_on_the_hour(first: str, last: str) -> None:
    """Its own timetable stands still there, so no run has one; those before it are as everywhere."""
    cron, zone, made = "0 * * * *", "Australia/Lord_Howe", list[Interval]()
    dag = dag_of(interval.CronDataIntervalTimetable(cron, zone))
    with pytest.raises(ValueError, match="timetable did not advance"):
        made.extend(of_airflow(cron, zone, first, last))
    for each in made:
        check_scheduled(each, dag)
        assert split_by_cron(each, cron, zone) == [each]


def between(start: str, end: str) -> Interval:
    return Interval(datetime.fromisoformat(start).replace(tzinfo=UTC), datetime.fromisoformat(end).replace(tzinfo=UTC))


@pytest.mark.parametrize("schedule", [WITH["cron"], WITH["trigger"]])
def test_an_interval_that_the_schedule_has_not_is_refused(schedule: Any) -> None:
    """Of one hour; once it is counted the day that it is in cannot be."""
    check_scheduled(between("2025-01-03T02:00", "2025-01-04T02:00"), dag_of(schedule))
    with pytest.raises(
        DefinitionError, match=r"none of the schedule of days, .*; to count 2025-01-03T02:00.* 2025-01-04T02:00"
    ):
        check_scheduled(between("2025-01-03T05:00", "2025-01-03T06:00"), dag_of(schedule))
    with pytest.raises(DefinitionError, match="none of the schedule"):
        check_scheduled(between("2025-01-03T02:00", "2025-01-05T02:00"), dag_of(schedule))


def test_any_interval_may_be_asked_for_where_there_is_no_schedule() -> None:
    check_scheduled(between("2025-01-03T05:00", "2025-01-03T06:17"), dag_of(None))


def test_an_empty_interval_at_a_change_of_clocks_says_which_date_to_take() -> None:
    """Airflow infers it for a run by hand, of a schedule whose other runs have intervals."""
    moment = datetime(2024, 3, 10, 7, 0, tzinfo=UTC)
    run = SimpleNamespace(dag_id="days", run_id="r", data_interval_start=moment, data_interval_end=moment)
    topology: Any = SimpleNamespace(by_interval=True, parameters=())

    def told(schedule: Any) -> str:
        context: Any = {"dag_run": run, "params": {}, "dag": dag_of(schedule)}
        with pytest.raises(DefinitionError, match="data interval is empty") as refused:
            run_of(topology, context)
        return str(refused.value)

    by_hand = told(interval.CronDataIntervalTimetable(CRON, "America/New_York"))
    assert by_hand.endswith(
        "to count 2024-03-10T07:00:00+00:00/2024-03-11T06:00:00+00:00 trigger it with the logical date 2024-03-11T02:00:00-04:00"
    )
    assert "give the DAG schedule=CronDataIntervalTimetable(" in told(CRON)


DAYS = """
from txbatch import *
topology = Topology("days", max_pending=3)
spout = IntervalSpout({folder!r}, "word string, at timestamp", time="at")
topology.new_stream("in", spout).group_by("word").persistent_aggregate(OpaqueState("days"), count=Count())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""


def test_a_new_batch_has_an_interval_of_the_schedule_and_a_planned_one_goes_on(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.csv").write_text("word,at\na,2025-01-03T10:00Z\n")
    (tmp_path / "job.py").write_text(DAYS.format(folder=str(tmp_path / "in")))
    job = load_job(str(tmp_path / "job.py"))
    steps = Steps(job, MemoryLedger(), MemoryStaging(), MemoryRunLocks())
    daily, hourly = dag_of(WITH["cron"]), dag_of(interval.CronDataIntervalTimetable("0 * * * *", "UTC"))
    task = InitializeTransactionOperator(task_id="initialize_transaction", job=job)

    def initialize(run_id: str, of: Interval, dag: DAG) -> Any:
        context: Any = {"dag": dag, "params": {}, "dag_run": SimpleNamespace(dag_id="days", run_id=run_id)}
        run = Run(f"airflow:days:{run_id}", "days", run_id, of)
        return task.step(steps, run, Waiting(job.topology, run, context, {}))

    hour, day = between("2025-01-03T05:00", "2025-01-03T06:00"), between("2025-01-04T02:00", "2025-01-05T02:00")
    with pytest.raises(DefinitionError, match="is none of the schedule of days, 0 2"):
        initialize("by hand", hour, daily)
    assert steps.ledger.last_txid("days") == 0
    assert initialize("planned", day, daily) == {"topology": "days", "txid": 1}
    assert initialize("planned", day, hourly) == {"topology": "days", "txid": 1}, "the schedule was changed since"
    with pytest.raises(DefinitionError, match="is none of the schedule"):
        initialize("another", between("2025-01-05T02:00", "2025-01-06T02:00"), hourly)
    assert initialize("hours", hour, hourly)["txid"] == 2


def test_airflow_3_1_has_timetables_that_compute_and_nothing_that_makes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task of a DAG by time failed with Airflow 3.1: the module of the conversion came with Airflow 3.2."""
    timetable = interval.CronDataIntervalTimetable(CRON, "UTC")
    monkeypatch.setitem(sys.modules, "airflow.serialization.encoders", None)
    assert fit.computing(timetable) is timetable
