"""Airflow's REST API as its tests press it: all that the product itself does not ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Self

import httpx

from txbatch.local.airflow import LocalAirflow
from txbatch.local.airflow_api import AirflowApi, AirflowApiError, Json, part, run_path, wait


class AirflowButtons(AirflowApi):
    """What a person does in the UI of a running Airflow, and what they see there."""

    @classmethod
    def of(cls, airflow: LocalAirflow) -> Self:
        return cls(airflow.url, airflow.username, airflow.password_file)

    def dag(self, dag_id: str) -> Json:
        return self._get(f"dags/{part(dag_id)}")

    def pause(self, dag_id: str) -> Json:
        return self._send("PATCH", f"dags/{part(dag_id)}", {"is_paused": True})

    def trigger(
        self,
        dag_id: str,
        run_id: str | None = None,
        conf: Mapping[str, Any] | None = None,
        logical_date: datetime | None = None,
        note: str | None = None,
        data_interval: tuple[datetime, datetime] | None = None,
    ) -> str:
        """Starts a manual run and returns its run_id.

        Without a data interval it has the one of the schedule that was over at its logical date, without that none.
        """
        body = {"dag_run_id": run_id, "conf": dict(conf or {}), "logical_date": iso(logical_date), "note": note}
        if data_interval:
            body |= {"data_interval_start": iso(data_interval[0]), "data_interval_end": iso(data_interval[1])}
        return str(self._send("POST", f"dags/{part(dag_id)}/dagRuns", body)["dag_run_id"])

    def dag_runs(self, dag_id: str) -> list[Json]:
        """All runs, oldest first."""
        return self._pages(f"dags/{part(dag_id)}/dagRuns", "dag_runs", order_by="id")

    def create_backfill(
        self,
        dag_id: str,
        from_date: datetime,
        to_date: datetime,
        *,
        reprocess: str = "none",
        run_backwards: bool = False,
        max_active_runs: int = 10,
        conf: Mapping[str, Any] | None = None,
    ) -> Json:
        """Starts a backfill, both dates included; `reprocess` is none, failed or completed. One per DAG at a time."""
        body = {
            "dag_id": dag_id,
            "from_date": iso(from_date),
            "to_date": iso(to_date),
            "reprocess_behavior": reprocess,
            "run_backwards": run_backwards,
            "max_active_runs": max_active_runs,
            "dag_run_conf": dict(conf or {}),
        }
        return self._send("POST", "backfills", body)

    def unfinished_runs(self) -> list[Json]:
        """Runs of all DAGs that have not ended."""
        states = ("queued", "running")
        return [run for state in states for run in self._pages("dags/~/dagRuns", "dag_runs", state=state)]

    def fail_run(self, dag_id: str, run_id: str) -> Json:
        """Marks the run as failed, which ends its tasks."""
        return self.mark_run(dag_id, run_id, "failed")

    def mark_run(self, dag_id: str, run_id: str, state: str) -> Json:
        """Marks the run as success or failed, as its menu does."""
        return self._send("PATCH", run_path(dag_id, run_id), {"state": state})

    def mark_task(self, dag_id: str, run_id: str, task_id: str, state: str) -> Json:
        """Marks a task as success or failed; if it is at work, Airflow ends its process within seconds."""
        path = f"{run_path(dag_id, run_id)}/taskInstances/{part(task_id)}"
        return self._send("PATCH", path, {"new_state": state})

    def delete_run(self, dag_id: str, run_id: str) -> None:
        """Makes Airflow forget a run that has ended."""
        self._send("DELETE", run_path(dag_id, run_id), {})

    def task_tries(self, dag_id: str, run_id: str, task_id: str) -> list[Json]:
        """Every try of one task, the first one first."""
        answer = self._get(f"{run_path(dag_id, run_id)}/taskInstances/{part(task_id)}/tries")
        return sorted(answer["task_instances"], key=lambda instance: instance["try_number"])

    def clear_run(self, dag_id: str, run_id: str, *, only_failed: bool = False) -> Json:
        return self._send("POST", f"{run_path(dag_id, run_id)}/clear", {"dry_run": False, "only_failed": only_failed})

    def clear_tasks(
        self, dag_id: str, run_id: str, task_ids: Iterable[str], *, downstream: bool = False, future: bool = False
    ) -> Json:
        """Clears tasks of a run; with `future` also those of each run with a later logical date."""
        body = {"dry_run": False, "dag_run_id": run_id, "task_ids": list(task_ids), "only_failed": False}
        body |= {"include_downstream": downstream, "include_future": future}
        return self._send("POST", f"dags/{part(dag_id)}/clearTaskInstances", body)

    def raised(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> list[Json]:
        """The exceptions that the log of a try shows, one behind the other, each with its frames."""
        path = f"{run_path(dag_id, run_id)}/taskInstances/{part(task_id)}/logs/{try_number}"
        entries = self._get(path, full_content="true")["content"]
        return [each for entry in entries for each in entry.get("error_detail") or ()]

    def backfills(self, dag_id: str) -> list[Json]:
        return self._pages("backfills", "backfills", dag_id=dag_id)

    def wait_for_backfill(self, backfill_id: int, timeout: float = 300) -> Json:
        """Waits until Airflow calls the backfill complete, which it looks for every 30 s."""

        def completed() -> Json | None:
            backfill = self._get(f"backfills/{backfill_id}")
            return backfill if backfill["completed_at"] else None

        return wait(completed, timeout, lambda: f"backfill {backfill_id} goes on after {timeout:g} s")

    def cancel_backfill(self, backfill_id: int) -> None:
        """Ends a backfill, unless Airflow has just done so: queued runs fail, others go on. The next one may begin at once."""
        try:
            self._send("PUT", f"backfills/{backfill_id}/cancel", {})
        except AirflowApiError as error:
            if error.status != HTTPStatus.CONFLICT or "already completed" not in str(error):
                raise

    def create_asset_event(self, asset: str, extra: Mapping[str, Any]) -> Json:
        """Sends an event of an asset, named as DAG files name it."""
        (found,) = (each for each in self._pages("assets", "assets", name_pattern=asset) if each["name"] == asset)
        return self._send("POST", "assets/events", {"asset_id": found["id"], "extra": dict(extra)})

    def rendered_fields(self, dag_id: str, run_id: str, task_id: str) -> Json:
        """The templated arguments of the newest try, as the UI shows them."""
        return dict(self._get(f"{run_path(dag_id, run_id)}/taskInstances/{part(task_id)}")["rendered_fields"])

    def asset_events(self, **filters: str | int) -> list[Json]:
        """Asset events, oldest first; filters are the API's: asset_id, source_dag_id, source_run_id, source_task_id."""

        def shown() -> Json | None:
            try:
                return {"events": self._pages("assets/events", "asset_events", order_by="timestamp", **filters)}
            except AirflowApiError as error:
                # Airflow fails to show an event while a run that it has made is still queued.
                if error.status != httpx.codes.INTERNAL_SERVER_ERROR:
                    raise
                return None

        return list(wait(shown, 60, lambda: "asset events cannot be read for 60 s")["events"])


def iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
