"""`make up` and `make demo` without Airflow: who may run beside whom, and what is left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from txbatch import settings
from txbatch.embedded import postgres
from txbatch.local import demo, down, up
from txbatch.local.down import only_up
from txbatch.postgres.database.engine import connect


@pytest.mark.parametrize("module", ["demo", "up"])
def test_a_second_one_is_refused_before_it_touches_anything(module: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TXBATCH")}
    environment |= {"TXBATCH_HOME": str(tmp_path), "PYTHONPATH": str(settings.project_root() / "plugins")}
    with only_up(tmp_path):
        done = subprocess.run(
            [sys.executable, "-m", f"txbatch.local.{module}"], env=environment, capture_output=True, text=True
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert "runs already in" in done.stderr
    assert done.stderr.startswith(f"make {module}: ")
    assert done.stderr.endswith(", or stop it with `make down`\n")
    assert done.stderr.count("\n") == 1
    assert not postgres.is_running(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["up.lock"]


class Api:
    """Knows some DAGs; others do not load."""

    def __init__(self, *known: str) -> None:
        self.known, self.unpaused = known, list[str]()

    def wait_for_dag(self, dag_id: str, **_: Any) -> None:
        if dag_id not in self.known:
            raise TimeoutError(
                f"no DAG {dag_id} after 60 s; import errors: {dag_id}.py: Traceback\n  line 1\nKeyError: 1"
            )

    def unpause(self, dag_id: str) -> None:
        self.unpaused.append(dag_id)


def test_up_goes_without_examples_that_are_gone_or_do_not_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dags").mkdir()
    for name in ("flights", "sentences", "mine"):
        (tmp_path / "dags" / f"{name}.py").touch()
    monkeypatch.setattr(settings, "project_root", lambda: tmp_path)
    api, airflow = Api("sentences", "mine"), SimpleNamespace(started_at=None)
    up._unpause(airflow, api)  # type: ignore[arg-type]
    assert api.unpaused == ["sentences"]
    told = "make up: no DAG flights after 60 s; import errors: flights.py: Traceback KeyError: 1\n"
    assert capsys.readouterr().err == told
    for file in (tmp_path / "dags").iterdir():
        file.unlink()
    up._unpause(airflow, Api())  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("airflow", "postgres", "said"),
    [
        (0, False, "0 processes of Airflow"),
        (0, True, "PostgreSQL"),
        (3, False, "3 processes of Airflow"),
        (3, True, "3 processes of Airflow and PostgreSQL"),
    ],
)
def test_down_says_what_it_stopped(airflow: int, postgres: bool, said: str) -> None:
    assert down._said(airflow, postgres) == said


def test_a_postgres_that_somebody_uses_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(up, "_SESSIONS_SECONDS", 0)
    engine = connect(postgres.start(tmp_path), application_name="txbatch sales")
    try:
        with engine.connect(), up._postgres_stopped_after(tmp_path):
            pass
        assert capsys.readouterr().out == "PostgreSQL goes on, in use by txbatch sales; `make down` stops it\n"
        assert postgres.is_running(tmp_path)
        engine.dispose()
        monkeypatch.setattr(up, "_SESSIONS_SECONDS", 10)
        with up._postgres_stopped_after(tmp_path):
            pass
        assert not postgres.is_running(tmp_path)
    finally:
        postgres.stop(tmp_path)


def test_the_demos_table_fits_80_columns_and_shows_what_was_killed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"topology": "word_count", "attempt": "1:1", "status": "superseded", "records": 184_222}
    row |= {
        "started_at": datetime(2026, 11, 22, 10, 45, 12, tzinfo=UTC),
        "duration": None,
        "run_id": "demo-1122-104512",
    }
    killed = {"word_count 1:1": demo.KILLS["emit.manifest_written"]}
    monkeypatch.setattr(demo.console, "_width", 80)
    monkeypatch.setattr(demo.console, "file", sys.stdout)
    demo._print_table("Attempts", [demo._told(row, killed), demo._told({**row, "attempt": "1:2"}, killed)])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-2].split() == ["word_count", "1:1", "superseded", "emit", "10:45:12", "184222", "demo-1122-104512"]
    assert lines[-1].split()[2:] == ["superseded", "10:45:12", "184222", "demo-1122-104512"]
