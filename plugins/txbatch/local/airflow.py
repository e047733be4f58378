"""A real Airflow on one machine: API server, scheduler with LocalExecutor, DAG processor and triggerer."""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

from txbatch.core.errors import TerminalError
from txbatch.embedded.locks import lock
from txbatch.local.airflow_api import AirflowApi, AirflowApiError
from txbatch.local.airflow_config import USERNAME, write_config
from txbatch.local.looking import looks
from txbatch.local.metadata import migrate
from txbatch.local.ports import LOOPBACK, reserve_port
from txbatch.local.processes import MARK, boot, marked, new_mark, stop_marked
from txbatch.local.signals import ignore_signals, unwinding
from txbatch.places import command

DEFAULT_PORT = 8080
COMPONENTS = {
    "api-server": ["api-server"],  # first: the slowest to start
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
    "scheduler": ["scheduler", "--skip-serve-logs"],  # last: see `_start_components`
}
HEARTBEATS = ("scheduler", "dag_processor", "triggerer")
GRACE_SECONDS = 2.0  # for an idle scheduler to sign off; the other components have nothing to save, and some hang
POLL_SECONDS = 0.1
LOG_LINES = 15


class LocalAirflowError(TerminalError, code="TX813"):
    """Airflow does not start, or has stopped. The message has the reason and the next step."""

    has_lines = True


class LocalAirflow:
    """Airflow for one home folder, on loopback. Use LocalAirflow in a `with` block.

    Inside the block, SIGTERM and SIGHUP end the program just like Ctrl-C. At the end of the block every process is stopped.
    If the program is killed with SIGKILL, the function `stop` of this module ends the remaining processes. Tables, password
    and keys of an earlier run are used again.

    `environment` is added to the environment of every process; variables of the caller named AIRFLOW* are left out.
    `unpaused`: whether new DAGs are active at once. `timeout`: the maximum seconds for `start`. `database_url`: a
    PostgreSQL database for Airflow's metadata, of this home alone (see `local.metadata`).
    """

    def __init__(
        self,
        home: Path,
        dags_folder: Path,
        plugins_folder: Path,
        *,
        database_url: str,
        environment: Mapping[str, str] | None = None,
        unpaused: bool = False,
        timeout: float = 180,
    ) -> None:
        self.username = USERNAME
        self.password_file = home.resolve() / "airflow" / "passwords.json"
        self.url = ""
        self.started_at = datetime.now(UTC)
        self._home, self._folder, self._logs = home, home.resolve() / "airflow", home.resolve() / "logs"
        self._dags_folder, self._plugins_folder = dags_folder.resolve(), plugins_folder.resolve()
        self._environment, self._unpaused, self._timeout = dict(environment or {}), unpaused, timeout
        self._database_url = database_url
        self._mark = new_mark()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(unwinding())
            stack.callback(self.stop)
            self.start()
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def start(self) -> None:
        """Start all processes, the scheduler last. Wait until the API answers and the other components send heartbeats.

        Raise `LocalAirflowError` if Airflow already runs in this home, a process ended (with the end of its log) or the
        time is over. After an error no process is left running.
        """
        for folder in (self._folder, self._logs, _scratch(self._home)):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _only_start(self._folder), contextlib.ExitStack() as undo:
            refuse_second(self._home)
            undo.callback(self.stop)
            with reserve_port(DEFAULT_PORT) as port:
                self._start(f"http://{LOOPBACK}:{port}")
            undo.pop_all()

    def stop(self) -> None:
        """End every process started here, and all descendants in any session. Ctrl-C waits until all have ended."""
        with ignore_signals():
            _end(self._home, self._mark)
            for process in self._processes.values():
                process.wait()
            self._processes.clear()

    def wait(self) -> None:
        """Return once Airflow is stopped from elsewhere. Raise `LocalAirflowError` if a process ends by itself."""
        while _run_of(self._home).get("mark") == self._mark:
            self._check_processes()
            time.sleep(POLL_SECONDS)

    def api(self) -> AirflowApi:
        """Return a new client, logged in as the only user, an administrator."""
        return AirflowApi(self.url, self.username, self.password_file)

    def processes(self) -> list[psutil.Process]:
        """Return all live processes started here, with descendants."""
        return marked(self._mark, [process.pid for process in self._processes.values()])

    def _start(self, url: str) -> None:
        self.url, deadline = url, time.monotonic() + self._timeout
        _write_run(self._home, mark=self._mark, url=url, pids={})
        folders = (self._dags_folder, self._plugins_folder)
        write_config(self._folder, url, *folders, unpaused=self._unpaused, database_url=self._database_url)
        environment = self._process_environment()
        try:
            migrate(self._database_url, environment, self._log("migrate"), timeout=self._timeout)
        except subprocess.TimeoutExpired:
            raise self._failure("migrate", f"has made no database after {self._timeout:g} s") from None
        except subprocess.CalledProcessError:
            raise self._failure("migrate", "cannot make its database") from None
        self.started_at = datetime.now(UTC)
        self._start_components(COMPONENTS, deadline)
        self._wait_until_healthy(deadline)

    def _start_components(self, components: Iterable[str], deadline: float) -> None:
        """Start components in the given order. Start the scheduler only once the API server answers.

        The scheduler gives out tasks at once if runs are in flight, as after a power cut. A task asks the API server before
        anything else, gives up after half a minute without an answer, and has then used up its try.
        """
        environment = self._process_environment()
        for component in components:
            if component == "scheduler":
                self._wait_until_healthy(deadline, beating=())
            self._processes[component] = self._spawn(component, COMPONENTS[component], environment)
            pids = {name: process.pid for name, process in self._processes.items()}
            _write_run(self._home, mark=self._mark, url=self.url, pids=pids, boot=boot())

    def _spawn(self, component: str, arguments: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with self._log(component).open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "airflow", *arguments],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _process_environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "_AIRFLOW"))}
        given = _spark_scratch(_scratch(self._home)) | inherited | self._environment
        no_proxy = ",".join(filter(None, [given.get("no_proxy", given.get("NO_PROXY")), LOOPBACK, "localhost"]))
        return given | {
            "AIRFLOW_HOME": str(self._folder),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), given.get("PATH", os.defpath)]),
            "no_proxy": no_proxy,
            "NO_PROXY": no_proxy,
            "SPT_NOENV": "1",  # process titles must not overwrite the environment with the mark
            MARK: self._mark,
        }

    def _wait_until_healthy(self, deadline: float, beating: Collection[str] = HEARTBEATS) -> None:
        """Wait until the API server answers and the components send heartbeats. Raise LocalAirflowError at the deadline."""
        with self.api() as api:
            for _ in looks(deadline - time.monotonic(), POLL_SECONDS):
                if not (missing := self._missing(api, beating)):
                    return
                self._check_processes()
            raise self._failure(missing[0].replace("_", "-"), f"is not ready after {self._timeout:g} s")

    def _missing(self, api: AirflowApi, beating: Collection[str]) -> list[str]:
        """Return the components not ready yet. Heartbeats older than the start belong to an earlier run."""
        try:
            health = api.health()
            # On the first request, Airflow builds the API of its tasks, for seconds: request now, before the first task.
            httpx.get(f"{self.url}/execution/health", timeout=self._timeout, trust_env=False).raise_for_status()
        except (httpx.HTTPError, AirflowApiError, ValueError):
            return ["api-server"]
        beats = {name: health[name][f"latest_{name}_heartbeat"] for name in beating}
        return [name for name, beat in beats.items() if not beat or datetime.fromisoformat(beat) < self.started_at]

    def _check_processes(self) -> None:
        for component, process in self._processes.items():
            if process.poll() is not None and not _run_of(self._home).get("stopping"):
                raise self._failure(component, f"has ended with exit code {process.returncode}")

    def _failure(self, component: str, what: str) -> LocalAirflowError:
        log = self._log(component)
        lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return LocalAirflowError("\n".join([f"Airflow's {component} {what}; the end of {log}:", *lines]))

    def _log(self, component: str) -> Path:
        return self._logs / f"airflow-{component}.log"


def stop(home: Path) -> int:
    """End the Airflow of this home, started by any program, and all processes left running by its tasks.

    Return the number of ended processes. A pid now used by another program is left alone.
    """
    mark = _run_of(home).get("mark")
    return _end(home, mark) if mark else 0


def _end(home: Path, mark: str) -> int:
    run = _run_of(home)
    ours = run.get("mark") == mark
    if ours:
        _write_run(home, **run | {"stopping": True})
    ended = stop_marked(mark, GRACE_SECONDS, _sessions(run) if ours else ())
    if ours:
        shutil.rmtree(_scratch(home), ignore_errors=True)
        _run_file(home).unlink(missing_ok=True)
    return ended


def refuse_second(home: Path) -> None:
    """Raise LocalAirflowError while an Airflow of this home runs."""
    run = _run_of(home)
    if run and (left := marked(run["mark"], _sessions(run))):
        pid = min(process.pid for process in left)
        raise LocalAirflowError(
            f"Airflow runs already in {home} (pid {pid}, {run['url']}): stop it with `{command('down')}`"
        )


def _sessions(run: Mapping[str, Any]) -> list[int]:
    """Return the sessions of the components, one each (see `_spawn`). None are of use after the machine has started anew."""
    return list(run.get("pids", {}).values()) if run.get("boot") == boot() else []


def _scratch(home: Path) -> Path:
    return home.resolve() / "airflow" / "scratch"


def _spark_scratch(folder: Path) -> dict[str, str]:
    """Return the environment to keep Spark's temporary files in this folder: a killed Spark would leave files in /tmp."""
    java = shlex.join(["-XX:-UsePerfData", f"-Djava.io.tmpdir={folder}"])
    return {"SPARK_LOCAL_DIRS": str(folder), "SPARK_SUBMIT_OPTS": java}


def _run_file(home: Path) -> Path:
    return home.resolve() / "airflow" / "run.json"


def _run_of(home: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(_run_file(home).read_text()))
    except FileNotFoundError:
        return {}


def _write_run(home: Path, **run: Any) -> None:
    new = _run_file(home).with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(run, indent=2) + "\n")
    new.replace(_run_file(home))


@contextlib.contextmanager
def _only_start(folder: Path) -> Iterator[None]:
    """Context manager. Prevent a second start until the block ends. Raise LocalAirflowError if a start is under way."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(lock(folder / "start.lock", wait=False))
        except BlockingIOError:
            raise LocalAirflowError(
                f"Airflow is just being started in {folder}: wait for it, or `{command('down')}`"
            ) from None
        yield
