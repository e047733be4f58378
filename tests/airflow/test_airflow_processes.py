"""The processes of the local Airflow: what they show, and that none outlives its stop."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from airflow_buttons import AirflowButtons
from airflow_support import QUIET, Stack
from support import until

from txbatch.local import airflow as local
from txbatch.local.airflow import LocalAirflow, LocalAirflowError
from txbatch.local.metadata import migrated_version
from txbatch.local.ports import is_free
from txbatch.local.processes import marked

pytestmark = pytest.mark.timeout(300)
T = TypeVar("T")

PROGRAM = """
import sys
from pathlib import Path
from typing import Any
from txbatch.local.airflow import LocalAirflow

with LocalAirflow(*map(Path, sys.argv[1:4]), database_url=sys.argv[4], unpaused=True) as airflow:
    print(airflow.url, flush=True)
    airflow.wait()
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "home"
    local.stop(tmp_path / "home")


@pytest.fixture
def database(new_database: Callable[[str], str], airflow_template: str) -> str:
    """A migrated database of this home's Airflow."""
    return new_database(airflow_template)


@pytest.fixture(scope="module")
def dags_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an Airflow of its own."""
    folder = tmp_path_factory.mktemp("dags")
    shutil.copy(Path(__file__).parent / "dags" / "trivial.py", folder)
    return folder


@contextlib.contextmanager
def program(home: Path, dags_folder: Path, database: str) -> Iterator[subprocess.Popen[str]]:
    """A program that holds an Airflow as `make up` does, and prints its URL when it is usable."""
    command = [sys.executable, "-c", PROGRAM, str(home), str(dags_folder), str(home / "plugins"), database]
    plugins = str(Path(local.__file__).parents[2])
    with subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": plugins}, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def url_of(running: subprocess.Popen[str]) -> str:
    assert running.stdout
    return running.stdout.readline().strip()


def run_of(home: Path) -> dict[str, Any]:
    file = home / "airflow" / "run.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def mark_of(home: Path) -> str:
    return str(run_of(home)["mark"])


def client(home: Path, url: str) -> AirflowButtons:
    return AirflowButtons(url, "admin", home / "airflow" / "passwords.json")


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def start_stubborn_task(api: AirflowButtons, pid_file: Path) -> psutil.Process:
    api.wait_for_dag("stubborn")
    api.trigger("stubborn", "left", conf={"pid_file": str(pid_file)})
    return psutil.Process(int(until(lambda: pid_file.exists() and pid_file.read_text())))


@pytest.mark.whole
def test_sigkill_of_the_program_leaves_all_to_stop_and_the_home_to_the_next_start(
    home: Path,
    dags_folder: Path,
    database: str,
    stack: Stack,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The next start is the one of which a component ends later: with it the program ends, and all the rest."""
    with program(home, dags_folder, database) as running:
        url = url_of(running)
        assert port_of(url) != port_of(stack.airflow.url)
        mark = mark_of(home)
        with client(home, url) as own:
            child = start_stubborn_task(own, tmp_path / "pid")
        assert child in marked(mark)
    second = rf"runs already in .* \(pid \d+, {url}\): stop it with `make down`"
    with pytest.raises(LocalAirflowError, match=second):
        LocalAirflow(home, dags_folder, dags_folder, database_url=database).start()

    assert local.stop(home) > len(local.COMPONENTS)
    assert marked(mark) == []
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert is_free(port_of(url))
    assert local.stop(home) == 0
    assert stack.api.health()["scheduler"]["status"] == "healthy"

    password = (home / "airflow" / "passwords.json").read_text()
    with program(home, dags_folder, database) as running:
        with client(home, url_of(running)) as own:
            assert [run["dag_run_id"] for run in own.dag_runs("stubborn")] == ["left"]
        assert (home / "airflow" / "passwords.json").read_text() == password
        mark = mark_of(home)
        os.kill(run_of(home)["pids"]["triggerer"], signal.SIGKILL)
        assert running.wait(timeout=60) == 1
        assert "Airflow's triggerer has ended with exit code -9" in capfd.readouterr().err
    assert marked(mark) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_during_the_start_stops_what_was_started(
    number: signal.Signals, home: Path, dags_folder: Path, database: str
) -> None:
    with program(home, dags_folder, database) as running:
        until(lambda: run_of(home).get("pids"))
        mark = mark_of(home)
        # A process shows its environment a moment after it has begun.
        until(lambda: len(marked(mark)) >= len(run_of(home)["pids"]))
        running.send_signal(number)
        assert running.wait(timeout=60) in (-signal.SIGINT, 128 + number)
    assert marked(mark) == []
    assert run_of(home) == {}


@pytest.mark.whole
def test_component_that_ends_fails_the_start_with_the_end_of_its_log(
    home: Path, dags_folder: Path, database: str
) -> None:
    wrong = LocalAirflow(
        home,
        dags_folder,
        dags_folder,
        database_url=database,
        environment={"AIRFLOW__CORE__EXECUTOR": "NoSuchExecutor"},
    )
    with pytest.raises(
        LocalAirflowError, match=r"(?s)Airflow's scheduler has ended with exit code 1; the end of .*NoSuchExecutor"
    ):
        wrong.start()
    assert run_of(home) == {}
    assert is_free(port_of(wrong.url))


def test_failing_migration_shows_the_end_of_its_log(
    home: Path, dags_folder: Path, new_database: Callable[[str], str]
) -> None:
    broken = {"AIRFLOW__DATABASE__EXTERNAL_DB_MANAGERS": "no.such.Manager"}
    empty = new_database("template1")
    wrong = LocalAirflow(home, dags_folder, dags_folder, database_url=empty, environment=broken)
    with pytest.raises(
        LocalAirflowError, match=r"(?s)Airflow's migrate cannot make its database; the end of .*No module named 'no'"
    ):
        wrong.start()
    assert migrated_version(empty) is None
    assert run_of(home) == {}


def test_start_that_takes_too_long_names_what_is_missing(
    home: Path, dags_folder: Path, database: str, new_database: Callable[[str], str]
) -> None:
    empty = new_database("template1")
    with pytest.raises(LocalAirflowError, match=r"Airflow's migrate has made no database after 0.1 s"):
        LocalAirflow(home, dags_folder, dags_folder, database_url=empty, timeout=0.1).start()
    with pytest.raises(LocalAirflowError, match=r"Airflow's api-server is not ready after 0.1 s"):
        LocalAirflow(home, dags_folder, dags_folder, database_url=database, timeout=0.1).start()
    assert run_of(home) == {}


def test_two_starts_at_once_in_one_home(home: Path, dags_folder: Path, database: str) -> None:
    with program(home, dags_folder, database) as running:
        until(lambda: run_of(home))
        with pytest.raises(LocalAirflowError, match="just being started"):
            LocalAirflow(home, dags_folder, dags_folder, database_url=database).start()
        running.terminate()
        running.wait(timeout=60)


def of_the_living(processes: Iterable[psutil.Process], read: Callable[[psutil.Process], T]) -> list[T]:
    """What is read of each process that has not ended meanwhile, as one that parses a DAG file does at any moment."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(read(process))
    return found


def test_processes_listen_on_loopback_alone_and_show_no_password(stack: Stack) -> None:
    processes = marked(mark_of(stack.home))
    connections = of_the_living(processes, lambda process: process.net_connections("inet"))
    listening = [found.laddr for each in connections for found in each if found.status == psutil.CONN_LISTEN]
    assert listening == [("127.0.0.1", port_of(stack.airflow.url))]
    password = json.loads(stack.airflow.password_file.read_text())["admin"]
    shown = of_the_living(processes, lambda process: " ".join(process.cmdline()) + str(process.environ()))
    assert len(shown) >= 4, "the API server, the scheduler, the DAG processor and the triggerer are at work"
    shown += [log.read_text() for log in (stack.home / "logs").glob("*.log")]
    assert not any(password in text for text in shown)


def test_files_with_secrets_are_the_owners_alone(stack: Stack) -> None:
    folder = stack.home / "airflow"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (stack.airflow.password_file, folder / "airflow.cfg")} == {0o600}


def test_variables_of_another_airflow_are_left_out_and_given_ones_are_there(
    stack: Stack,
) -> None:
    environments = of_the_living(marked(mark_of(stack.home)), psutil.Process.environ)
    assert {environment["TXBATCH_EXAMPLE"] for environment in environments} == {"given"}
    assert {environment["AIRFLOW_HOME"] for environment in environments} == {str(stack.home / "airflow")}
    left = {name for environment in environments for name in environment if name.startswith("AIRFLOW__")}
    given = {*QUIET, "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"}
    assert left == given, "AIRFLOW__OF_ANOTHER is not among them"
