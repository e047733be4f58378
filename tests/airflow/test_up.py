"""`make up` and `make down`: what is printed, what it starts by itself (nothing), and what is left (nothing)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from airflow_buttons import AirflowButtons
from support import until

from txbatch import settings
from txbatch.embedded import postgres
from txbatch.local.airflow import stop
from txbatch.local.processes import MARK

pytestmark = pytest.mark.timeout(300)
BYTES_MAX = 1_500_000_000


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("up")
    (folder / "java").symlink_to(settings.project_root() / ".txbatch" / "java")
    yield folder
    stop(folder)
    postgres.stop(folder)


@contextlib.contextmanager
def running(module: str, home: Path) -> Iterator[subprocess.Popen[str]]:
    """A module of txbatch as `make` runs it."""
    environment = {name: value for name, value in os.environ.items() if name != "TXBATCH_DATABASE_URL"}
    environment |= {"TXBATCH_HOME": str(home), "PYTHONPATH": str(settings.project_root() / "plugins")}
    command = [sys.executable, "-m", f"txbatch.local.{module}"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def until_ready(up: subprocess.Popen[str]) -> str:
    """What it prints until it is ready."""
    printed = ""
    while "stops everything" not in printed:
        assert up.stdout
        line = up.stdout.readline()
        assert line, printed
        printed += line
    return printed


def processes_of(home: Path) -> list[psutil.Process]:
    """Every process that was told this home: Airflow's, Spark's and PostgreSQL's."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and (
                process.environ().get("TXBATCH_HOME") == str(home) or Path(process.cwd()).is_relative_to(home)
            ):
                found.append(process)
    return found


def listeners_of(port: int, home: Path) -> list[str]:
    """Who listens on this port; not an Airflow of another home, as of a second run of the tests, which may have it by now."""
    found = []
    for each in psutil.net_connections("inet"):
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port and each.pid:
            with contextlib.suppress(psutil.NoSuchProcess):
                if (process := psutil.Process(each.pid)).environ().get("TXBATCH_HOME") in (None, str(home)):
                    found.append(str(process))
    return found


def outside(process: psutil.Process, home: Path) -> list[str]:
    """Temporary files that the process has open or mapped, other than below the home, and where the checkout is one."""
    expected = (str(home), str(settings.project_root()))
    with contextlib.suppress(psutil.NoSuchProcess):
        files = {each.path for each in process.open_files()} | {each.path for each in process.memory_maps()}
        return [
            file for file in files if file.startswith(("/tmp/", "/var/tmp/")) and not any(e in file for e in expected)
        ]
    return []


def assert_nothing_left(home: Path, url: str) -> None:
    assert processes_of(home) == []
    assert listeners_of(int(url.rpartition(":")[2]), home) == []
    assert not (home / "airflow" / "scratch").exists()
    assert not (home / "airflow" / "run.json").exists()
    assert not postgres.is_running(home)


def test_up_is_ready_quiet_and_small_and_ctrl_c_ends_all_of_it_in_the_middle_of_a_batch(home: Path) -> None:
    with running("up", home) as up:
        printed = until_ready(up)
        (url,) = re.findall(r"http://127\.0\.0\.1:\d+", printed)
        passwords = Path(re.findall(r"password in (\S+)", printed)[0])
        assert json.loads(passwords.read_text())["admin"] not in printed
        (megabytes,) = re.findall(r"takes ([\d,]+) MB with PostgreSQL", printed)
        assert 300e6 < int(megabytes.replace(",", "")) * 1e6 < BYTES_MAX

        with AirflowButtons(url, "admin", passwords) as api:
            dags = ("sentences", "word_count", "flights", "word_count_consumer")
            until(lambda: all(api.wait_for_dag(dag_id) and not api.dag(dag_id)["is_paused"] for dag_id in dags))
            api.trigger("sentences", "cut-off")
            scratch = home / "airflow" / "scratch"
            until(lambda: any(scratch.glob("spark-*")))
            assert {dag_id: len(api.dag_runs(dag_id)) for dag_id in dags} == dict.fromkeys(dags, 0) | {"sentences": 1}
        java = next(process for process in processes_of(home) if process.name() == "java")
        assert java.environ()[MARK]
        assert [file for process in processes_of(home) for file in outside(process, home)] == []

        up.send_signal(signal.SIGINT)
        assert up.wait(timeout=60) == 0
        assert up.stdout
        assert up.stdout.read() == "stopped\n"
    assert_nothing_left(home, url)


@pytest.mark.whole
def test_down_ends_it_and_a_second_up_is_refused(home: Path) -> None:
    with running("up", home) as up:
        (url,) = re.findall(r"http://127\.0\.0\.1:\d+", until_ready(up))
        with running("up", home) as second:
            assert second.wait(timeout=30) == 1
            assert second.stdout
            assert re.search(
                r"make up: TX813 .*: it runs already in .*: use it, or stop it with `make down`", second.stdout.read()
            )
        with running("down", home) as down:
            assert down.wait(timeout=60) == 0
            assert down.stdout
            assert re.fullmatch(r"stopped \d+ processes of Airflow( and PostgreSQL)?\n", down.stdout.read())
        assert up.wait(timeout=10) == 0
    assert_nothing_left(home, url)
    with running("down", home) as again:
        assert again.wait(timeout=30) == 0
        assert again.stdout
        assert again.stdout.read() == "stopped 0 processes of Airflow\n"
