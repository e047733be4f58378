"""Pages that are open in a real API server: what a poll takes, and what Airflow's own requests take while the ledger is away.

Three API servers share a database of Airflow. One has no plugin; one has the pages on a ledger of 100,000 txids; one has the
pages on a server that takes connections and says nothing, while open pages go on asking.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from threading import Event, Thread

import httpx

from bench import corrections, pages
from bench.database import LOCALHOST, Server, server
from bench.measure import Contestant, Figure, Stopwatch, interleaved
from bench.results import Results
from txbatch import settings
from txbatch.local import metadata
from txbatch.local.airflow_config import USERNAME, write_config
from txbatch.local.ports import reserve_port

# Five rounds of forty are two hundred.
REQUESTS, OPEN_PAGES, POLL_SECONDS = 40, 5, 3.0
STARTED_SECONDS, ENDED_SECONDS = 180.0, 20.0
METADATA = "airflow_of_pages"
AIRFLOWS = "/api/v2/dags"
TURN = f"/txbatch/api/topologies/{pages.TOPOLOGY}/turn?limit={pages.WINDOW}"
WITHOUT, AWAY, POLL = "without the plugin", "with the pages, whose ledger is away", "a poll"
FIGURES = [
    Figure("Airflow's requests beside open pages whose ledger is away / without the plugin", AWAY, WITHOUT, 1.1, 1.05),
    Figure("a poll of an open page, the whole request, 100,000 txids, ms", POLL, None, 30, 20),
]


def open_pages(section: str, results: Results) -> None:
    """The median of 40 requests one after the other, in each round."""
    with server() as running, ExitStack() as stack:
        corrections.fill(running, pages.DATABASE, pages.TXIDS, pages.SPREAD, 2)
        running.run(f"CREATE DATABASE {METADATA}")
        silent = stack.enter_context(socket.create_server((LOCALHOST, 0), backlog=1_000))
        none = running.home / "no_plugins"
        none.mkdir()
        ours = settings.project_root() / "plugins"
        begin = partial(_api_server, running)
        without = stack.enter_context(begin("without", none, {}))
        away = stack.enter_context(begin("away", ours, _connection(LOCALHOST, silent.getsockname()[1], "nobody", "x")))
        there = stack.enter_context(begin("there", ours, _of(running)))
        contestants: dict[str, Contestant] = {
            WITHOUT: partial(_asked, without, AIRFLOWS),
            AWAY: partial(_asked, away, AIRFLOWS),
            POLL: partial(_asked, there, TURN),
        }
        for contestant in contestants.values():
            contestant(Stopwatch())
        with _polled(away):
            runs = interleaved(contestants)
        results.add(section, runs, FIGURES, requests=REQUESTS, open_pages=OPEN_PAGES, txids=pages.TXIDS)


@dataclass(frozen=True)
class ApiServer:
    """An API server of Airflow at work, asked by its administrator."""

    url: str
    token: str

    def client(self) -> httpx.Client:
        """A client of its own."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)


def _asked(asked: ApiServer, path: str, watch: Stopwatch) -> None:
    """Ask for a path, time and again; the seconds are the median's."""
    took = []
    with asked.client() as client:
        for _ in range(REQUESTS):
            began = time.perf_counter()
            answer = client.get(path)
            took.append(time.perf_counter() - began)
            answer.raise_for_status()
    watch.seconds = median(took)


@contextmanager
def _polled(away: ApiServer) -> Iterator[None]:
    """Context manager. Ask as pages do that are open; each is told that the ledger does not answer."""
    over = Event()

    def poll() -> None:
        with away.client() as client:
            while not over.wait(POLL_SECONDS):
                answer = client.get(TURN)
                if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    raise RuntimeError(f"the ledger is not away: {answer.status_code} {answer.text[:300]}")

    threads = [Thread(target=poll, daemon=True) for _ in range(OPEN_PAGES)]
    for thread in threads:
        thread.start()
    time.sleep(POLL_SECONDS)
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@contextmanager
def _api_server(running: Server, name: str, plugins: Path, environment: Mapping[str, str]) -> Iterator[ApiServer]:
    """Context manager. Start an API server with a folder of plugins and more variables, and give it once it answers."""
    home, url = running.home / f"api_{name}", running.url_of(METADATA)
    (dags := home / "dags").mkdir(parents=True)
    with reserve_port(8080) as port, (running.home / f"{name}.log").open("wb") as log:
        base = f"http://{LOCALHOST}:{port}"
        passwords = write_config(home, base, dags, plugins, unpaused=True, database_url=url)
        inherited = {
            each: value for each, value in os.environ.items() if not each.startswith(("AIRFLOW", "TXBATCH_DATABASE"))
        }
        told = {**inherited, "AIRFLOW_HOME": str(home), "no_proxy": LOCALHOST, **environment}
        metadata.migrate(url, told, running.home / "migrate.log", timeout=STARTED_SECONDS)
        command = [sys.executable, "-m", "airflow", "api-server"]
        process = subprocess.Popen(command, env=told, cwd=home, stdout=log, stderr=log, start_new_session=True)
        try:
            yield ApiServer(base, _logged_in(process, base, passwords))
        finally:
            _end(process)


def _logged_in(process: subprocess.Popen[bytes], base: str, passwords: Path) -> str:
    """Return a token of the administrator, once the server answers."""
    asked = {"username": USERNAME, "password": json.loads(passwords.read_text())[USERNAME]}
    ends = time.monotonic() + STARTED_SECONDS
    while process.poll() is None and time.monotonic() < ends:
        try:
            answer = httpx.post(f"{base}/auth/token", json=asked, timeout=60, trust_env=False)
        except httpx.TransportError:
            time.sleep(0.5)
            continue
        return str(answer.raise_for_status().json()["access_token"])
    raise RuntimeError(f"the API server at {base} does not answer; its log is beside its home")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server and what it has started."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(ENDED_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _of(running: Server) -> dict[str, str]:
    """The ledger with 100,000 txids, as the pages' connection."""
    told = running.tcp_of(pages.DATABASE)
    return _connection(told["host"], int(told["port"]), told["user"], told["password"], told["database"])


def _connection(host: str, port: int, login: str, password: str, schema: str = "ledger") -> dict[str, str]:
    told = {"host": host, "port": port, "login": login, "password": password, "schema": schema}
    return {"AIRFLOW_CONN_TXBATCH_REPORT": json.dumps({"conn_type": "postgres", **told})}


SECTIONS = {"open pages": open_pages}
