"""DAG runs on the local Airflow, driven over its REST API."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from airflow_buttons import AirflowButtons
from airflow_support import Stack
from support import until

from txbatch.local.airflow_api import AirflowApiError

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def api(stack: Stack) -> AirflowButtons:
    return stack.api


@pytest.fixture(scope="module")
def retried(api: AirflowButtons) -> str:
    """A run whose first task fails once, and whose second waits in the triggerer."""
    run_id = api.trigger("flaky", "retried", note="why")
    with pytest.raises(TimeoutError, match=r"run retried of flaky goes on after 0\.5 s: .*fail_once"):
        api.wait_for_run("flaky", run_id, timeout=0.5)
    api.wait_for_run("flaky", run_id)
    return run_id


def test_failed_try_is_retried_and_both_logs_are_kept(api: AirflowButtons, retried: str) -> None:
    run = api.dag_run("flaky", retried)
    assert (run["state"], run["note"], run["logical_date"]) == ("success", "why", None)
    assert [(task["try_number"], task["state"]) for task in api.task_tries("flaky", retried, "fail_once")] == [
        (1, "failed"),
        (2, "success"),
    ]
    assert "RuntimeError: the first try fails on purpose" in api.task_log("flaky", retried, "fail_once", 1)
    assert "the second try succeeds" in api.task_log("flaky", retried, "fail_once", 2)


def test_deferred_task_waits_in_the_triggerer_and_resumes_in_the_same_try(api: AirflowButtons, retried: str) -> None:
    log = api.task_log("flaky", retried, "deferred", 1)
    assert log.index("Trigger fired event") < log.index("resumed in the same try 1")


def test_refusal_is_an_error_with_airflows_reason(api: AirflowButtons, retried: str) -> None:
    with pytest.raises(AirflowApiError, match="409 ") as refused:
        api.trigger("flaky", retried)
    assert refused.value.status == 409


def test_dag_file_that_does_not_load_is_named_with_its_error(api: AirflowButtons) -> None:
    until(api.import_errors, "no import error", seconds=60)
    with pytest.raises(
        TimeoutError, match=r"(?s)no DAG broken after 0 s; import errors: broken.py: .*broken on purpose"
    ):
        api.wait_for_dag("broken", timeout=0)


@pytest.mark.whole
def test_cleared_run_and_cleared_task_run_again(api: AirflowButtons) -> None:
    run_id = api.trigger("flaky")
    api.wait_for_run("flaky", run_id)
    api.clear_run("flaky", run_id)
    assert api.wait_for_run("flaky", run_id)["state"] == "success"
    api.clear_tasks("flaky", run_id, ["deferred"])
    assert api.wait_for_run("flaky", run_id)["state"] == "success"
    tries = {task["task_id"]: task["try_number"] for task in api.task_instances("flaky", run_id)}
    assert tries == {"fail_once": 3, "deferred": 3}


@pytest.mark.whole
def test_four_tasks_run_at_once(api: AirflowButtons, tmp_path: Path) -> None:
    run_id = api.trigger("side_by_side", conf={"folder": str(tmp_path)})
    assert api.wait_for_run("side_by_side", run_id)["state"] == "success"
    assert [task["try_number"] for task in api.task_instances("side_by_side", run_id)] == [1, 1, 1, 1]


@pytest.mark.whole
def test_backfill_makes_a_run_for_each_day_and_sends_its_asset_events(api: AirflowButtons) -> None:
    api.unpause("daily")
    first, last = datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 1, 7, tzinfo=UTC)
    backfill = api.create_backfill("daily", first, last)
    assert [found["id"] for found in api.backfills("daily")] == [backfill["id"]]
    assert api.wait_for_backfill(backfill["id"])["completed_at"]
    runs = [run for run in api.dag_runs("daily") if run["run_type"] == "backfill"]
    assert [(run["state"], run["data_interval_start"][:10]) for run in runs] == [
        ("success", "2026-01-05"),
        ("success", "2026-01-06"),
        ("success", "2026-01-07"),
    ]
    backfilled = {run["dag_run_id"] for run in runs}
    events = [event for event in api.asset_events(source_dag_id="daily") if event["source_run_id"] in backfilled]
    assert sorted(event["extra"]["day"] for event in events) == ["2026-01-05", "2026-01-06", "2026-01-07"]
