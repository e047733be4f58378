"""The smoke tier of a cell, for the Python of the cell: the buttons of an Airflow that counts the example of `txbatch init`.

`python smoke.py FOLDER [STEP...]` works in a new project in a folder, and prints a line of JSON for each step: its name and
seconds, or its error.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from csv import DictReader
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1]))

import httpx
from airflow_buttons import AirflowButtons
from slowness import Patience, pace
from sqlalchemy import Engine, text

from txbatch import settings
from txbatch.embedded import postgres
from txbatch.fit import installed
from txbatch.local.airflow import LocalAirflow
from txbatch.local.metadata import metadata_database
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import migrate

DAG = '''"""The Airflow DAG of the topology sales: each run is a day, of runs that the smoke tier starts."""

from datetime import UTC, datetime

from airflow.timetables.interval import CronDataIntervalTimetable

from txbatch.orchestration import topology_dag

dag = topology_dag(
    "jobs/sales.py",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    end_date=datetime(2026, 1, 31, tzinfo=UTC),
    catchup=False,
)
'''
NAME, KILL = "sales", "emit.manifest_written"
FIRST_TASK = "initialize_transaction"
# Of an idle machine: on a busy one all takes longer.
START_SECONDS, RUN_SECONDS, SECONDS_MAX = 180, 400, 900
SETTINGS = {
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "60",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
}


def day(number: int) -> datetime:
    """The start of a day of January."""
    return datetime(2026, 1, number, tzinfo=UTC)


@dataclass
class Smoke:
    """A running Airflow with the example, and what its runs left."""

    project: Path
    airflow: LocalAirflow
    api: AirflowButtons
    ledger: Engine
    marker: Path
    runs: dict[str, str] = field(default_factory=dict)

    @property
    def notes_at_once(self) -> bool:
        """Whether this Airflow takes the note of a run while the run works."""
        return str(installed("apache-airflow")).startswith("3.4.")

    def start(self, name: str, **asked: Any) -> str:
        """Trigger a run, of a day or by a form, and keep its name."""
        logical = asked.pop("day", None)
        run = self.api.trigger(NAME, name, conf=asked, logical_date=logical and logical + timedelta(days=1))
        self.runs[name] = run
        return run

    def end(self, run: str) -> dict[str, Any]:
        """Wait for a run that has to succeed; what the API tells of it."""
        found = self.api.wait_for_run(NAME, run, timeout=RUN_SECONDS / pace())
        assert found["state"] == "success", self._why(run)
        return found

    def note(self, run: str) -> str:
        """The note of a run."""
        return str(self.api.dag_run(NAME, run)["note"])

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Rows of the ledger."""
        with self.ledger.connect() as connection:
            return [tuple(row) for row in connection.execute(text(statement))]

    def counted(self, *days: int) -> None:
        """Check the state: each sale of these days is in it, once."""
        lines = [each for one in days for each in _sales(self.project / f"data/sales/2026-01-0{one}.csv")]
        (found,) = self.rows("SELECT sum(sales), sum(turnover) FROM report.sales")
        assert (found[0], f"{found[1]}") == (len(lines), f"{sum(map(_cents, lines)) / 100:.2f}"), found

    def _why(self, run: str) -> str:
        states = {each["task_id"]: (each["state"], each["try_number"]) for each in self.api.task_instances(NAME, run)}
        logs = [
            self.api.task_log(NAME, run, task, tries) for task, (state, tries) in states.items() if state == "failed"
        ]
        return f"{run}: {states}: {''.join(logs)[-2000:]}"


def _sales(file: Path) -> list[dict[str, str]]:
    return list(DictReader(file.read_text().splitlines()))


def _cents(sale: dict[str, str]) -> int:
    return round(float(sale["price"]) * 100)


def parse(smoke: Smoke) -> None:
    """The DAG is there, with its form, and no file has an import error."""
    found = smoke.api.wait_for_dag(NAME, parsed_after=smoke.airflow.started_at, timeout=120 / pace())
    assert not smoke.api.import_errors()
    assert {tag["name"] for tag in found["tags"]} == {"txbatch"}


def run(smoke: Smoke) -> None:
    """A run counts its day."""
    smoke.end(smoke.start("first", day=day(1)))
    smoke.counted(1)


def clear(smoke: Smoke) -> None:
    """A run that is cleared changes no number, and says so."""
    cleared = smoke.runs["first"]
    smoke.api.clear_run(NAME, cleared)
    _until(lambda: smoke.api.dag_run(NAME, cleared)["state"] != "success", "the run does not begin again")
    smoke.end(cleared)
    assert "already committed as txid 1" in smoke.note(cleared)
    smoke.counted(1)


def retry(smoke: Smoke) -> None:
    """A task that was killed is tried again, and the run goes on. The next run is started beside it."""
    smoke.marker.unlink()
    killed = smoke.start("killed", day=day(2))
    _until(lambda: len(smoke.rows("SELECT 1 FROM report.batches")) == 2, "the run has planned no batch")
    waits = smoke.start("waiting", day=day(3))
    if smoke.notes_at_once:
        _until(lambda: "waits for txid 2 " in smoke.note(waits), "no note says that the run waits")
    smoke.end(killed)
    tries = {each["task_id"]: each["try_number"] for each in smoke.api.task_instances(NAME, killed)}
    assert tries["emit_batch"] == 2, tries
    assert smoke.marker.exists()


def deferral(smoke: Smoke) -> None:
    """The run beside it has waited without a worker, and went on."""
    waited = smoke.runs["waiting"]
    smoke.end(waited)
    tries = smoke.api.task_tries(NAME, waited, FIRST_TASK)
    log = smoke.api.task_log(NAME, waited, FIRST_TASK, tries[-1]["try_number"])
    assert "txid 2 is waited for" in log, log
    smoke.counted(1, 2, 3)


def note(smoke: Smoke) -> None:
    """The run's note says what came of it."""
    told = smoke.note(smoke.runs["waiting"])
    assert told.startswith("txbatch: txid 3, 2026-01-03 (UTC): "), told


def form(smoke: Smoke) -> None:
    """A range in the form is counted by one run."""
    found = smoke.start("form", catch_up="2026-01-04/2026-01-06")
    smoke.end(found)
    assert "2 batches" in smoke.note(found), smoke.note(found)


def restate(smoke: Smoke) -> None:
    """A committed batch is counted again, in its place."""
    found = smoke.start("restate", restate="1", why="smoke")
    smoke.end(found)
    assert "restates txid 1" in smoke.note(found), smoke.note(found)
    smoke.counted(1, 2, 3)


def backfill(smoke: Smoke) -> None:
    """A backfill of three days commits three batches."""
    before = len(smoke.rows("SELECT 1 FROM report.batches"))
    smoke.api.create_backfill(NAME, day(10), day(12))
    _until(lambda: len(_backfilled(smoke)) == 3, "the backfill has no three runs")
    for each in _backfilled(smoke):
        smoke.end(each)
    committed = smoke.rows("SELECT 1 FROM report.batches WHERE status = 'committed'")
    assert len(committed) == before + 3, committed


def _backfilled(smoke: Smoke) -> list[str]:
    return [each["dag_run_id"] for each in smoke.api.dag_runs(NAME) if each["run_type"] == "backfill"]


def pages(smoke: Smoke) -> None:
    """The page is served, its routes answer with the user's rights, and Airflow has its places."""
    for path in ("txbatch/page", f"txbatch/api/topologies/{NAME}", f"txbatch/api/topologies/{NAME}/batches"):
        answer = smoke.api._client.get(f"/{path}")
        assert answer.status_code == httpx.codes.OK, (path, answer.status_code, answer.text[:300])
    (ours,) = (each for each in smoke.api._pages("plugins", "plugins") if each["name"] == "txbatch")
    found = [view["destination"] for view in ours["external_views"]]
    expected = ["nav", "dag", "dag_run", "asset"]
    assert found == expected[: len(found)], found
    assert len(found) >= 3, found


def leave(smoke: Smoke) -> None:
    """The Airflow is stopped with a run at work and a run that waits."""
    parse(smoke)
    run(smoke)
    smoke.start("at_work", day=day(2))
    _until(lambda: len(smoke.rows("SELECT 1 FROM report.batches")) == 2, "the run has planned no batch")
    waits = smoke.start("waiting", day=day(3))
    _until(lambda: _state(smoke, waits, FIRST_TASK) == "deferred", "the run does not wait")


def go_on(smoke: Smoke) -> None:
    """With another Airflow, both runs go on to their ends, and each record counts once."""
    parse(smoke)
    for each in ("at_work", "waiting"):
        smoke.end(each)
    smoke.counted(1, 2, 3)
    assert [row[0] for row in smoke.rows("SELECT status FROM report.batches ORDER BY txid")] == ["committed"] * 3


def _state(smoke: Smoke, run_id: str, task_id: str) -> str | None:
    states = {each["task_id"]: each["state"] for each in smoke.api.task_instances(NAME, run_id)}
    return states.get(task_id)


STEPS: dict[str, Callable[[Smoke], None]] = {
    each.__name__: each for each in (parse, run, clear, retry, deferral, note, form, restate, backfill, pages)
}
MOVES: dict[str, Callable[[Smoke], None]] = {each.__name__: each for each in (leave, go_on)}


def _until(holds: Callable[[], bool], complaint: str, seconds: float = 120) -> None:
    patience = Patience(seconds)
    while not holds():
        assert patience.lasts(), complaint
        time.sleep(0.5)


def versions(ledger: Engine) -> dict[str, str]:
    """What the cell has, exactly."""
    with ledger.connect() as connection:
        server = str(connection.scalar(text("SHOW server_version"))).split()[0]
    names = {"airflow": "apache-airflow", "pyspark": "pyspark", "provider": "apache-airflow-providers-apache-spark"}
    found = {axis: installed(package) or "" for axis, package in names.items()}
    return found | {"postgres": server, "python": ".".join(map(str, sys.version_info[:3]))}


def main(folder: Path, steps: list[str]) -> int:
    """Run the steps in order; the first that fails is the last."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(round(SECONDS_MAX / pace()))
    home, project, marker = folder / "home", folder / "shop", folder / "killed"
    if not project.exists():
        subprocess.run(
            [Path(sys.executable).with_name("txbatch"), "init", str(project)], check=True, capture_output=True
        )
        (project / "dags" / "sales.py").write_text(DAG)
    marker.touch()
    os.chdir(project)
    os.environ["TXBATCH_HOME"] = str(home)
    try:
        return int(not _all_done(home, project, marker, steps or list(STEPS)))
    finally:
        postgres.stop(home)


def _all_done(home: Path, project: Path, marker: Path, steps: list[str]) -> bool:
    config = settings.ensure_database(settings.resolve())
    ledger = connect(config.database_url)
    migrate(ledger)
    _tell(versions=versions(ledger))
    environment = SETTINGS | {
        "TXBATCH_HOME": str(home),
        "TXBATCH_DATABASE_URL": config.database_url,
        "TXBATCH_STAGING": config.staging,
        "TXBATCH_FAILPOINTS": f"{KILL}=kill:{marker}",
    }
    folders, metadata = (home, project / "dags", project / "plugins"), metadata_database(home)
    airflow = LocalAirflow(
        *folders, database_url=metadata, environment=environment, unpaused=True, timeout=START_SECONDS / pace()
    )
    with airflow, AirflowButtons.of(airflow) as api:
        smoke = Smoke(project, airflow, api, ledger, marker)
        return all(_done(name, smoke) for name in steps)


def _too_long(*_: object) -> None:
    raise TimeoutError(f"the smoke tier takes more than {SECONDS_MAX} s of an idle machine")


def _done(name: str, smoke: Smoke) -> bool:
    began = time.monotonic()
    try:
        {**STEPS, **MOVES}[name](smoke)
    except Exception as error:
        _tell(step=name, error=f"{type(error).__name__}: {error}"[:4000])
        return False
    _tell(step=name, seconds=round(time.monotonic() - began, 1))
    return True


def _tell(**told: object) -> None:
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
