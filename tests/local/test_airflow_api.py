"""The REST client against a server that gives out tokens of one use."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from airflow_buttons import AirflowButtons

from txbatch.local.airflow_api import AirflowApiError


class OneUseTokens(ThreadingHTTPServer):
    logins = 0
    valid = ""


class Answers(BaseHTTPRequestHandler):
    server: OneUseTokens

    def do_POST(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if given != {"username": "admin", "password": "right"}:
            return self._answer(401, {"detail": "Invalid credentials"})
        self.server.logins += 1
        self.server.valid = f"Bearer {self.server.logins}"
        return self._answer(201, {"access_token": str(self.server.logins)})

    def do_GET(self) -> None:
        valid, self.server.valid = self.server.valid, ""
        self._answer(200, {"ok": True}) if self.headers["Authorization"] == valid else self._answer(
            401, {"detail": "Token Expired"}
        )

    def _answer(self, status: int, body: dict[str, object]) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Keeps the test's output clean."""


@pytest.fixture
def server() -> Iterator[OneUseTokens]:
    with OneUseTokens(("127.0.0.1", 0), Answers) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def client(server: OneUseTokens, passwords: Path, password: str) -> AirflowButtons:
    passwords.write_text(json.dumps({"admin": password}))
    return AirflowButtons(f"http://127.0.0.1:{server.server_port}", "admin", passwords)


def test_expired_token_is_replaced_by_a_new_login(server: OneUseTokens, tmp_path: Path) -> None:
    with client(server, tmp_path / "passwords", "right") as api:
        assert [api.health(), api.health(), api.health()] == [{"ok": True}] * 3
    assert server.logins == 3


def test_wrong_password_is_refused_and_not_shown(server: OneUseTokens, tmp_path: Path) -> None:
    with (
        client(server, tmp_path / "passwords", "wrong") as api,
        pytest.raises(AirflowApiError, match="401 Invalid") as refused,
    ):
        api.health()
    assert "wrong" not in str(refused.value)
