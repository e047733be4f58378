"""Backfill, triggers by date, gaps and bad intervals, on days of New York; every number is compared with pandas."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pytest
from airflow_support import TASKS, Stack
from support import until

from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.schema import state_tables

pytestmark = pytest.mark.timeout(900)
NEW_YORK = ZoneInfo("America/New_York")
# Tomorrow is not over, even if midnight passes while the tests run.
TOMORROW = datetime.now(NEW_YORK).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
FINISHED = {"success", "failed"}
PER_DAY = {1: 842, 2: 943, 3: 914, 4: 915}


def day(number: int, hour: int = 0) -> datetime:
    """A moment of January 2013 in New York."""
    return datetime(2013, 1, number, hour, tzinfo=NEW_YORK)


@pytest.fixture(scope="module")
def flights(flights_folder: Path) -> pd.DataFrame:
    frame = pd.read_csv(
        flights_folder / "flights.csv", usecols=["time_hour", "carrier", "origin", "dep_time", "dep_delay"]
    )
    frame["day"] = pd.to_datetime(frame["time_hour"]).dt.tz_convert("America/New_York").dt.date
    return frame


def by_pandas(flights: pd.DataFrame, days: set[int]) -> dict[tuple[str, str], tuple[Any, ...]]:
    """What the report must show for these days of January."""
    chosen = flights[flights["day"].isin({day(number).date() for number in days})]
    expected = {}
    for key, group in chosen.groupby(["carrier", "origin"]):
        delays = [int(delay) for delay in group["dep_delay"].dropna()]
        departures = int(group["dep_time"].notna().sum())
        mean = round(Decimal(sum(delays)) / len(delays), 9) if delays else None
        values = (sum(delays), mean, max(delays)) if delays else (None, None, None)
        expected[key] = (len(group), departures, len(group) - departures, *values)
    return expected


def assert_days(stack: Stack, flights: pd.DataFrame, *days: int) -> None:
    """The report is what pandas counts for these days, and the contributions sum up to the state."""
    rows = stack.sql(
        "SELECT carrier, origin, flights, departures, cancellations, dep_delay_total, round(dep_delay_mean, 9), dep_delay_max "
        "FROM report.flights"
    )
    assert {row[:2]: row[2:] for row in rows} == by_pandas(flights, set(days))
    values = (
        "carrier, origin, flights, departures, cancellations, dep_delay_total, dep_delay_mean_sum, dep_delay_mean_count"
    )
    folded = (
        "carrier, origin, sum(flights), sum(departures), sum(cancellations), sum(dep_delay_total), "
        "sum(dep_delay_mean_sum), sum(dep_delay_mean_count), max(dep_delay_max)"
    )
    state = stack.sql(f"SELECT {values}, dep_delay_max FROM state.flights")
    assert sorted(stack.sql(f"SELECT {folded} FROM contribution.flights GROUP BY 1, 2")) == sorted(state)


def batches(stack: Stack) -> list[tuple[Any, ...]]:
    """Txid, day of January and number of flights of each batch."""
    return [
        (txid, start.astimezone(NEW_YORK).day, records)
        for txid, start, records in stack.sql(
            "SELECT txid, interval_start, records FROM report.batches "
            "WHERE topology = 'flights' AND status = 'committed' ORDER BY txid"
        )
    ]


def backfill(
    stack: Stack, first: int, last: int, *, complete: bool = False, kills: list[str] | None = None, **options: Any
) -> dict[int, str]:
    """Backfill these days; each day's run, all of which succeeded. Of the tasks in `kills` the last is killed, and so on.

    Airflow calls it `complete` up to 30 s after the last run. Cancelling saves that, but its runs never start again.
    """
    began = datetime.now(UTC)
    made = stack.api.create_backfill("flights", day(first), day(last), **options)
    runs: list[dict[str, Any]] = []

    def over() -> bool:
        if kills and stack.kills_are_over():
            stack.kill_once(kills.pop())
        runs[:] = [run for run in stack.api.dag_runs("flights") if run["run_type"] == "backfill"]
        return bool(runs) and all(run["state"] in FINISHED for run in runs)

    until(over, "the backfill goes on", seconds=800, every=1)
    stack.api.wait_for_backfill(made["id"]) if complete else stack.api.cancel_backfill(made["id"])
    assert {run["state"] for run in runs} == {"success"}
    touched = [run for run in runs if datetime.fromisoformat(run["start_date"]) >= began]
    return {
        datetime.fromisoformat(run["data_interval_start"]).astimezone(NEW_YORK).day: run["dag_run_id"]
        for run in touched
    }


def applications(stack: Stack, run_ids: Iterable[str]) -> int:
    """How many Spark applications the runs' tasks have started to emit."""
    tries = [
        (run_id, each["try_number"]) for run_id in run_ids for each in stack.api.task_tries("flights", run_id, TASKS[1])
    ]
    logs = [stack.api.task_log("flights", run_id, TASKS[1], number) for run_id, number in tries]
    return sum(log.count("starting Spark") for log in logs)


def trigger(stack: Stack, run_id: str, **when: Any) -> tuple[str, dict[str, str]]:
    return stack.end("flights", stack.api.trigger("flights", run_id, **when))


@pytest.fixture(scope="module")
def with_a_gap(stack: Stack) -> Stack:
    """Day 1 by a run, and day 3 by two, all triggered at once with a logical date of the day after."""
    dates = {"day-1": day(2, 12), "noon-11": day(4, 11), "noon-12": day(4, 12)}
    for run_id, date in dates.items():
        stack.api.trigger("flights", run_id, logical_date=date)
    assert [stack.end("flights", run_id)[0] for run_id in dates] == ["success"] * 3
    return stack


@pytest.fixture(scope="module")
def three_days(with_a_gap: Stack, flights: pd.DataFrame) -> Stack:
    """The same, and a backfill that fills the gap."""
    gaps = with_a_gap.sql("SELECT gap_start, gap_end FROM report.gaps WHERE topology = 'flights'")
    assert gaps == [(day(2), day(3))]
    assert_days(with_a_gap, flights, 1, 3)
    assert sorted(backfill(with_a_gap, 1, 3)) == [1, 2, 3]
    return with_a_gap


@pytest.mark.rule("R2")
def test_two_runs_of_one_day_at_once_are_one_batch(with_a_gap: Stack) -> None:
    assert [with_a_gap.tries("flights", f"noon-{hour}") for hour in (11, 12)] == [dict.fromkeys(TASKS, 1)] * 2
    ((txid, _, records),) = (batch for batch in batches(with_a_gap) if batch[1] == 3)
    assert records == PER_DAY[3]
    attempts = f"SELECT attempts FROM report.batches WHERE topology = 'flights' AND txid = {txid}"
    assert with_a_gap.sql(attempts) == [(1,)]
    assert with_a_gap.announced("flights").count(txid) == 1


@pytest.mark.rule("R2", "R18")
def test_a_missing_day_is_a_gap_that_a_backfill_fills(three_days: Stack, flights: pd.DataFrame) -> None:
    assert three_days.sql("SELECT * FROM report.gaps WHERE topology = 'flights'") == []
    *earlier, newest = batches(three_days)
    assert {records for _, _, records in earlier} == {PER_DAY[1], PER_DAY[3]}
    assert newest == (3, 2, PER_DAY[2])
    assert sorted(three_days.announced("flights")) == [1, 2, 3]
    assert_days(three_days, flights, 1, 2, 3)


@pytest.mark.whole
@pytest.mark.parametrize(("reprocess", "backwards"), [("none", False), ("failed", True), ("completed", True)])
def test_backfill_of_committed_days_changes_nothing(three_days: Stack, reprocess: str, backwards: bool) -> None:
    before = three_days.snapshot("flights")
    touched = backfill(three_days, 1, 3, reprocess=reprocess, run_backwards=backwards)
    assert sorted(touched) == ([1, 2, 3] if reprocess == "completed" else [])
    for run_id in touched.values():
        assert "already committed as txid" in three_days.log("flights", run_id, TASKS[0])
    assert three_days.snapshot("flights") == before


@pytest.mark.rule("R2")
@pytest.mark.parametrize(
    ("run_id", "when", "complaint", "tries"),
    [
        pytest.param(
            *("no-date", {}, "reads by time, and run .* has no data interval; trigger it with a logical date", 1),
            marks=pytest.mark.whole,
        ),
        (
            "of-no-schedule",
            {"logical_date": day(20), "data_interval": (day(3, 12), day(4))},
            r"is none of the schedule of flights, 0 0 \* \* \*, .*; to count 2013-01-03T05:00:00\+00:00/",
            1,
        ),
        pytest.param(
            "not-over",
            {"logical_date": day(21), "data_interval": (TOMORROW, TOMORROW + timedelta(days=1))},
            "is not over, it is .*; run it after its end",
            4,
            marks=pytest.mark.whole,
        ),
    ],
)
def test_a_bad_interval_fails_with_its_reason(
    three_days: Stack, run_id: str, when: dict[str, Any], complaint: str, tries: int
) -> None:
    before = three_days.snapshot("flights")
    state, states = trigger(three_days, run_id, **when)
    assert (state, states[TASKS[0]]) == ("failed", "failed")
    assert three_days.tries("flights", run_id)[TASKS[0]] == tries
    assert re.search(complaint, three_days.log("flights", run_id, TASKS[0]))
    assert three_days.snapshot("flights") == before


AGAIN = {"restate": "2013-01-02/2013-01-03", "why": "the file was cut off"}


def test_notes_say_why_nothing_came_of_a_run(three_days: Stack) -> None:
    before = three_days.snapshot("flights")
    assert stack_end(three_days, "no-why", conf={"restate": "3"}) == (
        "failed",
        "failed: TX608 (no retry helps): say why it is counted again: trigger another run, and fill in 'why', too",
    )
    (raised,) = three_days.api.raised("flights", "no-why", TASKS[0])
    assert raised["exc_value"].startswith("TX608 (no retry helps): say why it is counted again")
    assert [frame["name"] for frame in raised["frames"]][-2:] == ["execute", "__exit__"], "no other frame of txbatch"
    state, note = stack_end(three_days, "now", logical_date=datetime.now(UTC), conf=AGAIN)
    assert state == "success"
    assert note.startswith("nothing was done: the logical date "), note
    assert note.endswith(
        "; empty the date to catch up or to count batches again, or trigger a run with an earlier one"
    ), note
    assert three_days.snapshot("flights") == before


@pytest.mark.rule("R2", "R6")
def test_a_range_is_brought_to_its_commits_by_one_run(three_days: Stack, flights: pd.DataFrame) -> None:
    assert_range(three_days, flights, "short", 4, 6, applications_of=1)


@pytest.mark.whole
@pytest.mark.rule("R17")
def test_an_interval_of_the_form_is_in_the_zone_of_the_schedule(three_days: Stack) -> None:
    state, note = stack_end(three_days, "form", conf=AGAIN)
    assert state == "success"
    assert (again := re.fullmatch(r"txid (\d+) restates txid 3: 943 records, 31 keys", note)), note
    assert three_days.announced("flights")[-1] == int(again[1])


def stack_end(stack: Stack, run_id: str, **form: Any) -> tuple[str, str]:
    """The run's state and its note."""
    state, _ = trigger(stack, run_id, **form)
    return state, stack.api.dag_run("flights", run_id)["note"].removeprefix("txbatch: ")


@pytest.mark.whole
@pytest.mark.timeout(1800)
@pytest.mark.rule("R2", "R10", "R18")
def test_eight_days_in_any_order_and_through_kills_are_what_pandas_counts(stack: Stack, flights: pd.DataFrame) -> None:
    """A backfill runs backwards through all of them while half are triggered in shuffled order, and tasks are killed."""
    with transaction(stack.engine) as connection:
        if stack.sql("SELECT topology FROM txbatch.topology WHERE topology = 'flights'"):
            state_tables.drop(connection, "flights")
    shuffled, days = Random(12), range(1, 9)
    kills = [*TASKS, "emit_batch", "commit"]
    shuffled.shuffle(kills)
    began = time.monotonic()
    runs = [
        stack.api.trigger("flights", f"shuffled-{number}", logical_date=day(number + 1, 15))
        for number in shuffled.sample(days, 4)
    ]
    options = {"reprocess": "completed", "run_backwards": True, "max_active_runs": 3, "complete": True}
    touched = backfill(stack, 1, 8, kills=kills, **options)
    assert [stack.end("flights", run_id)[0] for run_id in runs] == ["success"] * 4
    print(f"eight days took {time.monotonic() - began:.0f} s")
    assert sorted(touched) == list(days)
    assert kills == []
    assert 1 <= applications(stack, [*runs, *touched.values()]) < len(days), "several days in one application"
    assert sorted(number for _, number, _ in batches(stack)) == list(days)
    assert sum(records for _, _, records in batches(stack)) == int(
        flights["day"].isin([day(n).date() for n in days]).sum()
    )
    assert sorted(stack.announced("flights")[-8:]) == list(days)
    assert_days(stack, flights, *days)

    before = stack.snapshot("flights")
    stack.api.clear_run("flights", touched[5])
    assert stack.end("flights", touched[5]) == ("success", dict.fromkeys(TASKS, "skipped"))
    assert trigger(stack, "on-top", logical_date=day(6, 16))[0] == "success"
    assert stack.snapshot("flights") == before


@pytest.mark.whole
@pytest.mark.rule("R2", "R5", "R6")
def test_a_long_range_goes_on_after_a_kill(stack: Stack, flights: pd.DataFrame) -> None:
    stack.kill_once("emit_batch")
    assert_range(stack, flights, "range", 10, 31, applications_of=2)

    unchanged = stack.snapshot("flights")
    again = stack_end(stack, "range-again", conf={"catch_up": "2013-01-10/2013-01-31"})[1]
    assert again.startswith("already committed")
    assert trigger(stack, "in-range", logical_date=day(21, 12))[0] == "success"
    assert stack.snapshot("flights") == unchanged
    assert stack_end(stack, "part", conf={"catch_up": "2013-01-10T12:00/2013-01-12"})[0] == "failed"


def assert_range(
    stack: Stack, flights: pd.DataFrame, run_id: str, first: int, end: int, *, applications_of: int
) -> None:
    """One run commits the days that are missing, in so many applications, one for each try of its emit."""
    before = {number for _, number, _ in batches(stack)}
    state, note = stack_end(stack, run_id, conf={"catch_up": f"2013-01-{first:02}/2013-01-{end:02}"})
    assert state == "success"
    assert stack.tries("flights", run_id) == {**dict.fromkeys(TASKS, 1), "emit_batch": applications_of}
    made = [row for row in batches(stack) if row[1] not in before]
    assert [number for _, number, _ in made] == sorted({*range(first, end)} - before)
    txids, records = [txid for txid, _, _ in made], sum(records for _, _, records in made)
    dates = f"2013-01-{made[0][1]:02} 00:00 to 2013-01-{end:02} 00:00 (America/New_York)"
    assert note == f"txids {txids[0]} to {txids[-1]}, {dates}: {len(made)} batches, {records:,} records"
    assert stack.api.asset_events(source_dag_id="flights")[-1]["extra"]["txids"] == txids
    assert applications(stack, [run_id]) == applications_of
    assert_days(stack, flights, *before, *range(first, end))
