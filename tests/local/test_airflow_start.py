"""In which order the local Airflow starts its processes, with a small server in the place of Airflow's API server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refusals import refused

from txbatch.local import airflow as local
from txbatch.local.airflow import HEARTBEATS, LocalAirflow

OTHERS = ["dag-processor", "triggerer"]


@dataclass
class Started:
    """What was started, in order, and how the API server answers the tasks: with these statuses, one after the other."""

    statuses: list[int]
    ends: dict[str, int] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    servers: ExitStack = field(default_factory=ExitStack)

    def spawn(self, airflow: LocalAirflow, component: str, *_: object) -> SimpleNamespace:
        """Take the place of `LocalAirflow._spawn`."""
        self.events.append(component)
        airflow._log(component).write_text(f"the log of {component}\n")
        if component == "api-server" and self.statuses:
            self._serve(int(airflow.url.rpartition(":")[2]))
        code = self.ends.get(component)
        return SimpleNamespace(pid=2**22 + len(self.events), returncode=code, poll=lambda: code, wait=lambda: code)

    def answer(self, path: str) -> tuple[int, Mapping[str, Any]]:
        """Answer a request."""
        if path.startswith("/execution"):
            status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
            self.events.append(str(status))
            return status, {}
        now = datetime.now(UTC).isoformat()
        return 201, {"access_token": "1"} | {name: {f"latest_{name}_heartbeat": now} for name in HEARTBEATS}

    def _serve(self, port: int) -> None:
        class Answers(BaseHTTPRequestHandler):
            def do_GET(handler) -> None:
                status, body = self.answer(handler.path)
                handler.send_response(status)
                handler.end_headers()
                handler.wfile.write(json.dumps(body).encode())

            def do_POST(handler) -> None:
                handler.rfile.read(int(handler.headers["Content-Length"]))
                handler.do_GET()

            def log_message(handler, *_: object) -> None:
                """Keep the test's output clean."""

        server = self.servers.enter_context(ThreadingHTTPServer(("127.0.0.1", port), Answers))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.servers.callback(thread.join)
        self.servers.callback(server.shutdown)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """An API server that answers its tasks by errors first, as while it starts."""
    found = Started([500, 503, 200])
    monkeypatch.setattr(local, "migrate", lambda *_, **__: None)
    monkeypatch.setattr(LocalAirflow, "_spawn", lambda airflow, component, *rest: found.spawn(airflow, component))
    with found.servers:
        yield found


def airflow(home: Path, timeout: float = 30) -> LocalAirflow:
    """The Airflow of this home."""
    return LocalAirflow(home, home / "dags", home / "plugins", database_url="postgresql+psycopg2://", timeout=timeout)


def test_the_scheduler_is_started_once_the_api_server_answers(started: Started, tmp_path: Path) -> None:
    """After a power cut runs are in flight: tasks that are given out before fail, and their tries are used up."""
    with airflow(tmp_path):
        assert started.events[:7] == ["api-server", *OTHERS, "500", "503", "200", "scheduler"]
        assert [*json.loads((tmp_path / "airflow" / "run.json").read_text())["pids"]] == [*local.COMPONENTS]
    assert not (tmp_path / "airflow" / "run.json").exists()


def test_without_an_api_server_no_scheduler_is_started(started: Started, tmp_path: Path) -> None:
    started.statuses = []
    with refused("TX813", "api-server", "is not ready after 0.3 s", "the log of api-server"):
        airflow(tmp_path, timeout=0.3).start()
    assert started.events == ["api-server", *OTHERS]
    assert not (tmp_path / "airflow" / "run.json").exists()


@pytest.mark.parametrize("component", ["api-server", *OTHERS])
def test_without_a_scheduler_the_start_fails_with_the_component_that_ended(
    component: str, started: Started, tmp_path: Path
) -> None:
    started.statuses, started.ends = [503], {component: 3}
    with refused("TX813", component, "has ended with exit code 3", f"the log of {component}"):
        airflow(tmp_path).start()
    assert "scheduler" not in started.events
