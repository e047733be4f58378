"""The Airflow that tests/airflow/ runs, as its tests see it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from airflow_buttons import AirflowButtons
from outages import Outage
from sqlalchemy import Engine, text

from txbatch.local.airflow import LocalAirflow

PASSWORD = "pw-7c1f0e-never-to-be-seen"
TASKS = ("initialize_transaction", "emit_batch", "commit", "success")
KILLS = {
    "initialize_transaction": "initialize.planned",
    "emit_batch": "emit.manifest_written",
    "commit": "commit.before_commit",
    "success": "success.cleaned",
}
# What Airflow does all the time, less often: DAG files that do not change are parsed once. A deferred task is back after 4 s.
QUIET = {
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "60",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1",
}
States = dict[str, str]


@dataclass(frozen=True)
class Stack:
    """The running Airflow, its ledger, and where its tasks are killed."""

    airflow: LocalAirflow
    api: AirflowButtons
    engine: Engine
    home: Path
    markers: Path
    outage: Outage

    def rest(self) -> None:
        """End what tests have left running, and kill nothing any more."""
        self.outage.end()
        for point in KILLS.values():
            (self.markers / point).touch()
        for run in self.api.unfinished_runs():
            self.api.fail_run(run["dag_id"], run["dag_run_id"])

    def kill_once(self, *tasks: str) -> None:
        """Let each of these tasks be killed once, in the middle of its work."""
        for task in tasks:
            (self.markers / KILLS[task]).unlink()

    def kills_are_over(self) -> bool:
        """Whether every task that was to be killed has been."""
        return all((self.markers / point).exists() for point in KILLS.values())

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Rows of a query of the ledger."""
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(statement))]

    def end(self, dag_id: str, run_id: str) -> tuple[str, States]:
        """Wait for the run; its state and those of its tasks."""
        state = self.api.wait_for_run(dag_id, run_id, timeout=400)["state"]
        return state, {task["task_id"]: task["state"] for task in self.api.task_instances(dag_id, run_id)}

    def log(self, dag_id: str, run_id: str, task_id: str) -> str:
        """The log of a task's newest try."""
        tries = self.api.task_tries(dag_id, run_id, task_id)
        return self.api.task_log(dag_id, run_id, task_id, tries[-1]["try_number"])

    def task_state(self, dag_id: str, run_id: str, task_id: str) -> str | None:
        """The state of a task now."""
        return {task["task_id"]: task["state"] for task in self.api.task_instances(dag_id, run_id)}[task_id]

    def tries(self, dag_id: str, run_id: str) -> dict[str, int]:
        """How often each task was tried."""
        return {task["task_id"]: task["try_number"] for task in self.api.task_instances(dag_id, run_id)}

    def token(self, user: str) -> str:
        """What Airflow gives a user who logs in."""
        asked = {"username": user, "password": json.loads(self.airflow.password_file.read_text())[user]}
        answer = httpx.post(f"{self.airflow.url}/auth/token", json=asked, trust_env=False)
        return str(answer.json()["access_token"])

    def announced(self, dag_id: str) -> list[int]:
        """The txids of the topology's asset events, in order."""
        return [event["extra"]["txid"] for event in self.api.asset_events(source_dag_id=dag_id)]

    def snapshot(self, topology: str) -> tuple[Any, ...]:
        """All that must not change when nothing is to be done: the ledger, the state, the events sent."""
        tables = ("txbatch.batch", "txbatch.attempt", f"state.{topology}", f"contribution.{topology}")
        where = ("WHERE topology = :t", "WHERE topology = :t", "", "")
        with self.engine.connect() as connection:
            found = [
                sorted(
                    map(
                        repr,
                        connection.execute(text(f"SELECT * FROM {table} {clause}"), {"t": topology} if clause else {}),
                    )
                )
                for table, clause in zip(tables, where, strict=True)
            ]
        return (*found, self.announced(topology))


@dataclass(frozen=True)
class Shown:
    """What the demo has printed, and the runs of its topologies that have counted something, by name."""

    stack: Stack
    printed: str
    counted: dict[str, list[str]]
