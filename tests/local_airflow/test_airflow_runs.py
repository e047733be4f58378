"""DAG runs on the local Airflow, driven over its REST API."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from airflow_buttons import AirflowButtons

from txbatch.local.airflow_api import AirflowApiError

pytestmark = pytest.mark.timeout(300)


def test_failed_try_is_retried_and_both_logs_are_kept(api: AirflowButtons) -> None:
    run_id = api.trigger("flaky", "retried", note="why")
    run = api.wait_for_run("flaky", run_id)
    assert (run["state"], run["note"], run["logical_date"]) == ("success", "why", None)
    assert [(task["try_number"], task["state"]) for task in api.task_tries("flaky", run_id, "fail_once")] == [
        (1, "failed"),
        (2, "success"),
    ]
    assert "RuntimeError: the first try fails on purpose" in api.task_log("flaky", run_id, "fail_once", 1)
    assert "the second try succeeds" in api.task_log("flaky", run_id, "fail_once", 2)


def test_deferred_task_waits_in_the_triggerer_and_resumes_in_the_same_try(api: AirflowButtons) -> None:
    run_id = api.trigger("flaky")
    assert api.wait_for_run("flaky", run_id)["state"] == "success"
    log = api.task_log("flaky", run_id, "deferred", 1)
    assert log.index("Trigger fired event") < log.index("resumed in the same try 1")


def test_cleared_run_and_cleared_task_run_again(api: AirflowButtons) -> None:
    run_id = api.trigger("flaky")
    api.wait_for_run("flaky", run_id)
    api.clear_run("flaky", run_id)
    assert api.wait_for_run("flaky", run_id)["state"] == "success"
    api.clear_tasks("flaky", run_id, ["deferred"])
    assert api.wait_for_run("flaky", run_id)["state"] == "success"
    tries = {task["task_id"]: task["try_number"] for task in api.task_instances("flaky", run_id)}
    assert tries == {"fail_once": 3, "deferred": 3}


def test_four_tasks_run_at_once(api: AirflowButtons, tmp_path: Path) -> None:
    run_id = api.trigger("side_by_side", conf={"folder": str(tmp_path)})
    assert api.wait_for_run("side_by_side", run_id)["state"] == "success"
    assert [task["try_number"] for task in api.task_instances("side_by_side", run_id)] == [1, 1, 1, 1]


def test_backfill_makes_a_run_for_each_day_and_sends_its_asset_events(api: AirflowButtons) -> None:
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


def test_dag_file_that_does_not_load_is_named_with_its_error(api: AirflowButtons, dags_folder: Path) -> None:
    broken = dags_folder / "broken.py"
    broken.write_text('"""An Airflow DAG."""\nraise ValueError("broken on purpose")\n')
    deadline = time.monotonic() + 60
    while not api.import_errors() and time.monotonic() < deadline:
        time.sleep(0.1)
    with pytest.raises(
        TimeoutError, match=r"(?s)no DAG broken after 0 s; import errors: broken.py: .*broken on purpose"
    ):
        api.wait_for_dag("broken", timeout=0)
    broken.unlink()


def test_refusal_is_an_error_with_airflows_reason(api: AirflowButtons) -> None:
    api.trigger("daily", "once")
    with pytest.raises(AirflowApiError, match="409 ") as refused:
        api.trigger("daily", "once")
    assert refused.value.status == 409


def test_run_that_goes_on_times_out_with_the_states_of_its_tasks(api: AirflowButtons, tmp_path: Path) -> None:
    run_id = api.trigger("stubborn", conf={"pid_file": str(tmp_path / "pid")})
    with pytest.raises(TimeoutError, match="start_child"):
        api.wait_for_run("stubborn", run_id, timeout=0.5)
