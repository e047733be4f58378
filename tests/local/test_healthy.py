"""docker/healthy.py, by which containers of docker-compose ask for each other's health."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "docker" / "healthy.py"


class Health(ThreadingHTTPServer):
    """Answers with these statuses, one after the other; then with the last one."""

    statuses: list[int]


class Answers(BaseHTTPRequestHandler):
    server: Health

    def do_GET(self) -> None:
        statuses = self.server.statuses
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        self.end_headers()
        self.wfile.write(json.dumps({"scheduler": {"status": "unhealthy"}}).encode())

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def health() -> Iterator[Health]:
    with Health(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def healthy(server: Health, *options: str, component: str = "") -> int:
    """Return the exit code."""
    url = f"http://127.0.0.1:{server.server_port}/health"
    command = [sys.executable, "-IS", str(PROGRAM), *options, url, *filter(None, [component])]
    return subprocess.run(command, capture_output=True).returncode


@pytest.mark.parametrize(
    ("options", "component", "statuses", "code"),
    [
        ((), "", [200], 0),
        ((), "", [503], 1),
        ((), "scheduler", [200], 1),
        (("--within", "30"), "", [503, 200], 0),
        (("--within", "0.1"), "", [503], 1),
    ],
)
def test_the_exit_code_tells_whether_it_is_healthy(
    options: tuple[str, ...], component: str, statuses: list[int], code: int, health: Health
) -> None:
    health.statuses = statuses
    assert healthy(health, *options, component=component) == code


def test_a_server_that_is_gone_is_told_in_one_line() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{server.getsockname()[1]}/health"
    done = subprocess.run([sys.executable, "-IS", str(PROGRAM), url], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith(f"{url}: ")
