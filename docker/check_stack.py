"""The stack of docker-compose.yml, run for real: counts agree with independent ones, though the Spark worker is killed.

Called by bin/test-compose. Uses a project name, ports and input of its own, and takes everything down at the end.
"""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx
from sqlalchemy import URL, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

from txbatch.local import count_words
from txbatch.local.airflow_api import AirflowApi
from txbatch.local.corpus import ensure_corpus
from txbatch.local.flights import ensure_flights

ROOT = Path(__file__).resolve().parents[1]
SECRETS = ROOT / ".txbatch" / "compose" / "secrets"
PROJECT = f"txbatch-test-{os.getpid()}"
LABEL = f"label=com.docker.compose.project={PROJECT}"
HEALTHY_SECONDS, RUN_SECONDS = 600, 600
NEW_YORK = ZoneInfo("America/New_York")
DAYS = (1, 2, 3)
FLIGHTS = """SELECT carrier, origin, flights, departures, cancellations, dep_delay_total, dep_delay_max, dep_delay_mean
               FROM report.flights"""
began = time.monotonic()


class CheckFailed(Exception):
    """The stack did not do what it promises."""


def main() -> int:
    """Exit code 0 when all checks hold, and nothing is left running."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("test-compose: stopped by a signal, or by the time limit"))
    failed = False
    with tempfile.TemporaryDirectory(prefix="test-", dir=ROOT / ".txbatch" / "compose") as scratch:
        try:
            with stack(Path(scratch)) as ports:
                check(Path(scratch), ports)
        except (CheckFailed, TimeoutError, subprocess.CalledProcessError, httpx.HTTPError) as failure:
            print(f"\ntest-compose: FAILED: {failure}", file=sys.stderr)
            failed = True
    left = [*docker("ps", "-aq", "--filter", LABEL).split(), *docker("volume", "ls", "-q", "--filter", LABEL).split()]
    if left:
        print(f"test-compose: FAILED: left behind {' '.join(left)}", file=sys.stderr)
    elif not failed:
        say("everything is taken down; test-compose passed")
    return int(failed or bool(left))


@contextmanager
def stack(scratch: Path) -> Iterator[dict[str, int]]:
    """Up, and down again whatever happens; yields the ports on this machine."""
    ports = free_ports("TXBATCH_AIRFLOW_PORT", "TXBATCH_POSTGRES_PORT", "TXBATCH_SPARK_PORT")
    make_input(scratch / "data")
    environment = {name: str(port) for name, port in ports.items()}
    os.environ |= {"COMPOSE_PROJECT_NAME": PROJECT, "TXBATCH_DATA": str(scratch / "data"), **environment}
    try:
        say("building the images; the first time this takes minutes")
        compose("build")
        say("starting the stack")
        compose("up", "-d")
        wait_until_healthy()
        yield ports
    except BaseException:
        show_logs()
        raise
    finally:
        say("taking everything down")
        compose("down", "-v", "--remove-orphans", "-t", "5")


def check(scratch: Path, ports: dict[str, int]) -> None:
    """All that the stack promises."""
    expect(published() == {"127.0.0.1"}, f"ports are open on {published()}, not on loopback alone")
    words, flights = scratch / "data" / "corpus", scratch / "data" / "flights" / "flights.csv"
    report, writer = database(ports, "report", "REPORT_PASSWORD"), database(ports, "txbatch", "TXBATCH_PASSWORD")
    passwords = scratch / "passwords.json"
    passwords.write_text(json.dumps({"admin": secrets("admin.env")["AIRFLOW_ADMIN_PASSWORD"]}))
    with AirflowApi(f"http://127.0.0.1:{ports['TXBATCH_AIRFLOW_PORT']}", "admin", passwords) as api:
        for topology in ("word_count", "flights"):
            api.wait_for_dag(topology, timeout=120)
        count_words_through_a_kill(api, writer, ports)
        count_flights(api, ports)
        expect(not staged(), f"staging is not empty: {staged()}")
    compare_words(report, words)
    compare_flights(report, flights)
    check_rights(report, writer, ports)
    check_confinement()
    show_figures(report)


def count_words_through_a_kill(api: AirflowApi, ledger: Engine, ports: dict[str, int]) -> None:
    """Runs until there is nothing new; the Spark worker is killed while the first batch is emitted."""
    api.unpause("word_count")
    first = api.trigger("word_count", run_id="killed")
    say("word_count: waiting for an executor at work, to kill its container")
    wait_for(lambda: worker("grep", "-qs", "Finished task", *executor_logs()).returncode == 0, "no executor at work")
    no_secret_in(spark_environments())
    docker("kill", container("spark-worker"))
    status = value(ledger, "SELECT status FROM report.attempts WHERE topology = 'word_count' AND attempt = '1:1'")
    expect(status == "emitting", f"the worker was killed too late: attempt 1:1 is {status}")
    say("SIGKILL to the Spark worker's container while attempt 1:1 was emitting")
    wait_for(lambda: spark(ports)["aliveworkers"] == 0, "the master still counts on the killed worker")
    compose("start", "spark-worker")
    wait_for(lambda: spark(ports)["aliveworkers"] == 1, "the worker has not come back")
    say("the worker is back")
    succeed(api, "word_count", first)
    executors = {log.split("/")[-2] for log in executor_logs()}
    expect(executors >= {"0", "1"}, f"the killed executor was not replaced; there were {sorted(executors)}")
    for number, state in ((2, "success"), (3, "skipped")):
        next_one = api.trigger("word_count", run_id=f"number-{number}")
        succeed(api, "word_count", next_one)
        found = {task["task_id"]: task["state"] for task in api.task_instances("word_count", next_one)}
        expect(found["initialize_transaction"] == state, f"run number {number}: {found}, not {state}")


def count_flights(api: AirflowApi, ports: dict[str, int]) -> None:
    """Backfills three days of New York."""
    first, last = (datetime(2013, 1, day, tzinfo=NEW_YORK) for day in (DAYS[0], DAYS[-1]))
    api.create_backfill("flights", first, last, max_active_runs=len(DAYS))
    api.unpause("flights")
    runs = [run for run in api.dag_runs("flights") if run["run_type"] == "backfill"]
    expect(len(runs) == len(DAYS), f"the backfill made {len(runs)} runs")
    wait_for(lambda: spark(ports)["coresused"] > 0, "no executor for flights")
    show_memory()
    for run in runs:
        succeed(api, "flights", run["dag_run_id"])


def compare_words(report: Engine, folder: Path) -> None:
    counted = run([sys.executable, "-I", count_words.__file__, str(folder), "*.py"]).stdout
    found = dict(rows(report, "SELECT word, count FROM report.word_count"))
    expect(found == json.loads(counted), "report.word_count differs from the independent count")
    say(f"equal: {len(found):,} counts of word_count, {sum(found.values()):,} words")


def compare_flights(report: Engine, file: Path) -> None:
    """With a count by the columns year, month and day, which txbatch does not look at."""
    expected = {key: summary(flights) for key, flights in flights_of(file).items()}
    found = {(row[0], row[1]): row[2:] for row in rows(report, FLIGHTS)}
    expect(found.keys() == expected.keys(), f"report.flights has the keys {sorted(found)}, not {sorted(expected)}")
    for key, (*exact, mean) in expected.items():
        expect(list(found[key][:5]) == exact, f"{key}: {found[key][:5]} instead of {exact}")
        expect(math.isclose(found[key][5], mean, rel_tol=1e-9), f"{key}: mean {found[key][5]} instead of {mean}")
    say(f"equal: {len(found)} rows of flights, {sum(row[0] for row in found.values()):,} flights of {len(DAYS)} days")


def flights_of(file: Path) -> dict[tuple[str, str], list[dict[str, str]]]:
    days, found = {("2013", "1", str(day)) for day in DAYS}, defaultdict(list)
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            if (row["year"], row["month"], row["day"]) in days:
                found[row["carrier"], row["origin"]].append(row)
    return found


def summary(flights: list[dict[str, str]]) -> list[float]:
    delays = [int(row["dep_delay"]) for row in flights if row["dep_time"] != "NA"]
    cancelled = len(flights) - len(delays)
    return [len(flights), len(delays), cancelled, sum(delays), max(delays), sum(delays) / len(delays)]


def check_rights(report: Engine, writer: Engine, ports: dict[str, int]) -> None:
    """What the roles must not do is refused."""
    refused(report, "SET TRANSACTION READ WRITE; DELETE FROM report.word_count")
    refused(report, "SELECT FROM txbatch.batch")
    refused(report, "SELECT FROM state.word_count")
    refused(writer, "DELETE FROM txbatch.migration")
    refused(writer, "CREATE TABLE txbatch.mine ()")
    refused(report, "SET TRANSACTION READ WRITE; SELECT lo_create(7)")
    refused(report, "SET TRANSACTION READ WRITE; CREATE TEMP TABLE mine ()")
    refused(database(ports, "txbatch", "TXBATCH_PASSWORD", "airflow"), "SELECT", "permission denied for database")
    say(
        "rights: report reads its views and nothing else; txbatch alters no table of the ledger, nor reaches Airflow's database"
    )


WRITES_CODE = (
    "touch /opt/airflow/plugins/txbatch/mine.py || touch /opt/airflow/jobs/mine.py || touch /usr/local/bin/mine"
)
REACHES = "python3 -c 'import socket; socket.create_connection((\"{}\", {}), 5)'"
SUBMITS = """printf '%s' 'from pyspark.sql import SparkSession as s; s.builder.getOrCreate().range(3).count()' >/tmp/count.py
{} timeout 120 spark-submit --master spark://spark-master:7077 --conf spark.cores.max=1 /tmp/count.py"""


def check_confinement() -> None:
    """What a job, or somebody on the cluster's network, must not be able to do; each beside what it must."""
    expect(not succeeds("scheduler", WRITES_CODE), "a job may write code")
    expect(
        succeeds("scheduler", "touch /var/lib/txbatch/staging/mine && rm /var/lib/txbatch/staging/mine"), "no staging"
    )
    expect(succeeds("scheduler", REACHES.format("postgres", 5432)), "the scheduler does not reach the database")
    expect(not succeeds("spark-worker", REACHES.format("postgres", 5432)), "the worker reaches the database")
    expect(
        succeeds("scheduler", SUBMITS.format("SPARK_CONF_DIR=/tmp/spark-conf")),
        "a program with the cluster's secret does not run",
    )
    expect(
        not succeeds("scheduler", SUBMITS.format("SPARK_CONF_DIR=/tmp")),
        "a program without the cluster's secret runs",
    )
    for service in ("scheduler", "api-server", "dag-processor", "triggerer", "spark-master", "spark-worker"):
        status = docker("exec", container(service), "cat", "/proc/1/status")
        confined = "CapEff:\t0000000000000000" in status and "NoNewPrivs:\t1" in status
        expect(confined, f"{service} may do more than it needs")
    password = secrets("admin.env")["AIRFLOW_ADMIN_PASSWORD"].encode()
    first = docker_bytes("exec", container("api-server"), "cat", "/proc/1/environ")
    expect(password not in first, "the API server's first process keeps a password")
    say("confinement: code cannot be written, the cluster does not reach the database, and asks for its secret")


def succeeds(service: str, command: str) -> bool:
    """Whether a shell command does in a service's container."""
    inside = ["docker", "exec", container(service), "sh", "-c", command]
    return subprocess.run(inside, capture_output=True, check=False).returncode == 0


def refused(role: Engine, statement: str, why: str = "permission denied") -> None:
    try:
        with role.begin() as connection:
            connection.exec_driver_sql(statement)
    except DBAPIError as error:
        expect(why in str(error.orig), f"{statement}: {error.orig}")
    else:
        raise CheckFailed(f"{role.url.username} may {statement}")


def spark_environments() -> bytes:
    """The environment of the Spark driver, its Java, and of everything in the worker's container."""
    show = 'for p in /proc/[0-9]*; do case "$(tr "\\0" " " <$p/cmdline)" in {}) cat $p/environ;; esac; done'
    driver = docker_bytes("exec", container("scheduler"), "sh", "-c", show.format("*attempt-[f]older*"))
    expect(driver.count(b"FLIGHTS_FOLDER=") >= 2, "no Spark driver was found among the scheduler's processes")
    return driver + docker_bytes("exec", container("spark-worker"), "sh", "-c", show.format("*"))


def no_secret_in(environment: bytes) -> None:
    for file in set(SECRETS.glob("*.env")) - {SECRETS / "spark.env"}:
        for name, secret in secrets(file.name).items():
            expect(secret.encode() not in environment, f"Spark knows {name} of {file.name}")
    expect(b"@postgres" not in environment, "Spark knows an address of the database")


def make_input(data: Path) -> None:
    """The demo's corpus, two batches of word_count, and all flights; readable by the containers' user."""
    data.mkdir(parents=True)
    ensure_corpus(data)
    ensure_flights(data)
    for path in (data.parent, data, *data.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def succeed(api: AirflowApi, dag_id: str, run_id: str) -> None:
    if api.wait_for_run(dag_id, run_id, timeout=RUN_SECONDS)["state"] != "success":
        failed = next(task for task in api.task_instances(dag_id, run_id) if task["state"] == "failed")
        log = api.task_log(dag_id, run_id, failed["task_id"], failed["try_number"])
        raise CheckFailed(f"run {run_id} of {dag_id} failed in {failed['task_id']}:\n{log[-3000:]}")
    say(f"{dag_id}: run {run_id} succeeded")


def show_figures(report: Engine) -> None:
    for attempt in rows(report, "SELECT topology, attempt, status, duration FROM report.attempts ORDER BY started_at"):
        print("attempt", *(str(each).split(".")[0] for each in attempt))
    for image in ("txbatch-airflow", "txbatch-spark", "postgres:15-bookworm"):
        print(docker("images", "--format", "image {{.Size}} {{.Repository}}", image), end="")
    say("all checks hold")


def show_memory() -> None:
    """Of every container, while a batch is emitted."""
    print(docker("stats", "--no-stream", "--format", "memory {{.MemUsage}} {{.Name}}", *running()), end="")


# ---- containers


def wait_until_healthy() -> None:
    """Every service healthy, and the one-shot done. CheckFailed as soon as one cannot be any more."""
    form = '{{index .Config.Labels "com.docker.compose.service"}} {{.State.Status}} {{.State.ExitCode}} '
    form += "{{if .State.Health}}{{.State.Health.Status}}{{else}}none{{end}}"
    deadline = time.monotonic() + HEALTHY_SECONDS
    while True:
        states = [line.split() for line in docker("inspect", "-f", form, *containers()).splitlines()]
        pending = [state for state in states if state[1:] != ["exited", "0", "none"] and state[3] != "healthy"]
        dead = [state[0] for state in pending if state[3] == "unhealthy" or state[1] in ("exited", "dead")]
        if dead or time.monotonic() > deadline:
            raise CheckFailed(f"not healthy: {', '.join(dead or [state[0] for state in pending])}; logs above")
        if not pending:
            say(f"{len(states) - 1} services are healthy")
            return
        time.sleep(2)


def containers() -> list[str]:
    return docker("ps", "-aq", "--filter", LABEL).split()


def running() -> list[str]:
    return docker("ps", "-q", "--filter", LABEL).split()


def container(service: str) -> str:
    (found,) = docker("ps", "-aq", "--filter", LABEL, "--filter", f"label=com.docker.compose.service={service}").split()
    return found


def published() -> set[str]:
    form = "{{range .NetworkSettings.Ports}}{{range .}}{{.HostIp}} {{end}}{{end}}"
    return set(docker("inspect", "-f", form, *containers()).split())


def worker(*command: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["docker", "exec", container("spark-worker"), *command], capture_output=True, check=False)


def executor_logs() -> list[str]:
    return worker("find", "/tmp/spark", "-name", "stderr").stdout.decode().split() or ["/dev/null"]  # noqa: S108


def staged() -> str:
    return docker("exec", container("scheduler"), "find", "/var/lib/txbatch/staging", "-type", "f")


def spark(ports: dict[str, int]) -> Any:
    return httpx.get(f"http://127.0.0.1:{ports['TXBATCH_SPARK_PORT']}/json/", trust_env=False).raise_for_status().json()


def show_logs() -> None:
    for each in containers():
        logs = subprocess.run(["docker", "logs", "--tail", "15", each], capture_output=True, text=True, check=False)
        name = docker("inspect", "-f", "{{.Name}}", each).strip()
        print(f"---- {name}\n{logs.stdout[-2000:]}{logs.stderr[-2000:]}", file=sys.stderr)


def compose(*arguments: str) -> None:
    run([str(ROOT / "bin" / "compose"), *arguments])


def docker(*arguments: str) -> str:
    return docker_bytes(*arguments).decode()


def docker_bytes(*arguments: str) -> bytes:
    return run(["docker", *arguments]).stdout


def run(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).decode()[-3000:]
        raise CheckFailed(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
    return done


# ---- small things


def database(ports: dict[str, int], role: str, password: str, name: str = "txbatch") -> Engine:
    given, port = secrets("postgres.env")[password], ports["TXBATCH_POSTGRES_PORT"]
    return create_engine(URL.create("postgresql+psycopg2", role, given, "127.0.0.1", port, name))


def secrets(name: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (SECRETS / name).read_text().splitlines())


def rows(engine: Engine, statement: str) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(text(statement)))


def value(engine: Engine, statement: str) -> Any:
    return rows(engine, statement)[0][0]


def free_ports(*names: str) -> dict[str, int]:
    opened = [socket.create_server(("127.0.0.1", 0)) for _ in names]
    ports = {name: each.getsockname()[1] for name, each in zip(names, opened, strict=True)}
    for each in opened:
        each.close()
    return ports


def wait_for(seen: Callable[[], bool], otherwise: str, seconds: float = RUN_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not seen():
        expect(time.monotonic() < deadline, f"{otherwise}, after {seconds:g} s")
        time.sleep(0.1)


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise CheckFailed(otherwise)


def say(what: str) -> None:
    print(f"{time.monotonic() - began:5.0f} s  {what}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
