"""A client of Airflow's REST API, for the demo and `make up`."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import httpx

from txbatch.core.errors import TerminalError
from txbatch.local.looking import looks

Json = dict[str, Any]
FINAL_RUN_STATES = frozenset({"success", "failed"})
POLL_SECONDS = 0.5
PAGE = 100


class AirflowApiError(TerminalError, code="TX814"):
    """Airflow rejected a request; `status` is the HTTP status code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class AirflowApi:
    """Sends requests to Airflow as one user of the simple auth manager. Logs in by itself, and again when the token expires.

    Every method raises `AirflowApiError` if Airflow rejects the request, and `httpx.TransportError` if Airflow does not
    answer. The `wait_` methods raise `TimeoutError` with the last observed state. Timeouts are in seconds.
    """

    def __init__(self, url: str, username: str, passwords: Path, *, timeout: float = 60) -> None:
        self.username, self._passwords = username, passwords
        self._client = httpx.Client(base_url=url, timeout=timeout, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def health(self) -> Json:
        """Return state and newest heartbeat of each component. Log in first, to accept an answer only from this home's
        Airflow.
        """
        return self._get("monitor/health")

    def wait_for_dag(self, dag_id: str, *, parsed_after: datetime | None = None, timeout: float = 60) -> Json:
        """Wait until the DAG's file is parsed. `parsed_after` ignores DAGs parsed by an earlier Airflow of this home."""

        def parsed() -> Json | None:
            dag = self._found(f"dags/{part(dag_id)}")
            last = dag and dag["last_parsed_time"]
            if not last or (parsed_after and datetime.fromisoformat(last) <= parsed_after):
                return None
            return dag

        return wait(parsed, timeout, lambda: f"no DAG {dag_id} after {timeout:g} s; import errors: {self._errors()}")

    def import_errors(self) -> list[Json]:
        """Return the import errors of DAG files: `filename` and `stack_trace` of each."""
        return self._pages("importErrors", "import_errors")

    def unpause(self, dag_id: str) -> Json:
        return self._send("PATCH", f"dags/{part(dag_id)}", {"is_paused": False})

    def trigger(self, dag_id: str, run_id: str | None = None, conf: Mapping[str, Any] | None = None) -> str:
        """Start a manual run without a logical date, and return the run_id."""
        body = {"dag_run_id": run_id, "conf": dict(conf or {}), "logical_date": None}
        return str(self._send("POST", f"dags/{part(dag_id)}/dagRuns", body)["dag_run_id"])

    def dag_run(self, dag_id: str, run_id: str) -> Json:
        return self._get(run_path(dag_id, run_id))

    def wait_for_run(self, dag_id: str, run_id: str, timeout: float = 300) -> Json:
        """Wait until the run has succeeded or failed, and return the run with its `["state"]`."""

        def finished() -> Json | None:
            run = self.dag_run(dag_id, run_id)
            return run if run["state"] in FINAL_RUN_STATES else None

        return wait(
            finished,
            timeout,
            lambda: f"run {run_id} of {dag_id} goes on after {timeout:g} s: {self._states(dag_id, run_id)}",
        )

    def task_instances(self, dag_id: str, run_id: str) -> list[Json]:
        """Return the newest try of each task."""
        return self._pages(f"{run_path(dag_id, run_id)}/taskInstances", "task_instances")

    def task_log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> str:
        """Return the messages of a try's log, one per line; for a failure also its exceptions, without tracebacks."""
        path = f"{run_path(dag_id, run_id)}/taskInstances/{part(task_id)}/logs/{try_number}"
        return "\n".join(_log_line(entry) for entry in self._get(path, full_content="true")["content"])

    def _states(self, dag_id: str, run_id: str) -> str:
        return ", ".join(f"{task['task_id']} {task['state']}" for task in self.task_instances(dag_id, run_id))

    def _errors(self) -> str:
        return "\n".join(f"{error['filename']}: {error['stack_trace']}" for error in self.import_errors()) or "none"

    def _pages(self, path: str, items: str, **params: str | int) -> list[Json]:
        found: list[Json] = []
        while True:
            page = self._get(path, limit=PAGE, offset=len(found), **params)
            found += page[items]
            if not page[items] or len(found) >= page["total_entries"]:
                return found

    def _found(self, path: str) -> Json | None:
        try:
            return self._get(path)
        except AirflowApiError as error:
            if error.status != httpx.codes.NOT_FOUND:
                raise
            return None

    def _get(self, path: str, **params: str | int) -> Json:
        return self._answer("GET", path, params=params)

    def _send(self, method: str, path: str, body: Mapping[str, Any]) -> Json:
        return self._answer(method, path, json=body)

    def _answer(self, method: str, path: str, **request: Any) -> Json:
        if "Authorization" not in self._client.headers:
            self._log_in()
        response = self._client.request(method, f"/api/v2/{path}", **request)
        if response.status_code == httpx.codes.UNAUTHORIZED:
            self._log_in()
            response = self._client.request(method, f"/api/v2/{path}", **request)
        return _json(response)

    def _log_in(self) -> None:
        password = json.loads(self._passwords.read_text())[self.username]
        self._client.headers.pop("Authorization", None)
        response = self._client.post("/auth/token", json={"username": self.username, "password": password})
        self._client.headers["Authorization"] = f"Bearer {_json(response)['access_token']}"


def _json(response: httpx.Response) -> Json:
    if response.is_error:
        request = response.request
        raise AirflowApiError(
            response.status_code, f"{request.method} {request.url}: {response.status_code} {_detail(response)}"
        )
    return dict(response.json()) if response.content else {}


def _detail(response: httpx.Response) -> str:
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return response.text[:500]


def wait(seen: Callable[[], Json | None], timeout: float, complaint: Callable[[], str]) -> Json:
    for _ in looks(timeout, POLL_SECONDS):
        if (result := seen()) is not None:
            return result
    raise TimeoutError(complaint())


def _log_line(entry: str | Json) -> str:
    if isinstance(entry, str):
        return entry
    causes = [f": {cause['exc_type']}: {cause['exc_value']}" for cause in entry.get("error_detail") or ()]
    return str(entry["event"]) + "".join(causes)


def run_path(dag_id: str, run_id: str) -> str:
    return f"dags/{part(dag_id)}/dagRuns/{part(run_id)}"


def part(name: str) -> str:
    return quote(name, safe="")
