"""What the tutorial does in Airflow, by the commands and the notes of its pages: one Airflow, one project, page after page.

Commands are the pages' own. A switch, a mark and a clear, which the pages do by mouse, are pressed by Airflow's REST API.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow_buttons import AirflowButtons
from airflow_support import QUIET
from doc_pages import TUTORIALS, blocks, commands, shell_lines
from sqlalchemy import Engine, text
from support import until

from txbatch import settings
from txbatch.cli.project.starter import make_project
from txbatch.local.airflow import LocalAirflow
from txbatch.postgres.database.engine import connect

pytestmark = [pytest.mark.whole, pytest.mark.timeout(900)]
ROOT = settings.project_root()
FIRST, BREAK_IT, FIX_IT, YEAR, _ = TUTORIALS
DAG, DAYS = "sales", 3
ALREADY, ATTEMPTS, GO_ON = "already committed as txid", "2 attempts", "clear the run to go on"
# A DAG file that a page changes is parsed again soon.
SOON = {**QUIET, "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5"}
SLOW: dict[str, float] = {"seconds": 300.0, "every": 0.3}
# The command of this checkout, whatever is installed.
TXBATCH = 'txbatch() { "$PYTHON" -m txbatch "$@"; }\n'


def asked(page: Path, *beginnings: str) -> list[str]:
    """The commands of a page that begin so, in order."""
    console = (block.text for block in blocks(page) if block.language == "console")
    return [each for block in console for each in commands(block) if each.startswith(beginnings)]


def typed(page: Path, beginning: str) -> str:
    """The line of a page's blocks for the shell that begins so, behind what these blocks export."""
    lines = shell_lines(page)
    (found,) = (each for each in lines if each.startswith(beginning))
    return "\n".join([*(each for each in lines if each.startswith("export ")), found])


def shown(page: Path, *pieces: str) -> list[str]:
    """What the page shows as code in its part on Airflow, once for each of these pieces."""
    part = page.read_text(encoding="utf-8").partition("Airflow\n\n")[2]
    found = re.findall(r"`([^`\n]+)`", part)
    return [next(each for each in found if piece in each) for piece in pieces]


@dataclass(frozen=True)
class Lesson:
    """The project of a reader, and the Airflow that its `make up` has started."""

    folder: Path
    environment: Mapping[str, str]
    api: AirflowButtons
    engine: Engine

    def shell(self, command: str) -> str:
        """Run a command as a page has it, and return what it printed."""
        line = ["bash", "-ec", TXBATCH + command]
        done = subprocess.run(line, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def prints_as_shown(self, page: Path, command: str) -> bool:
        """Whether a command prints what the page shows below it."""
        lines = (each.rstrip() for each in self.shell(command).splitlines())
        return "\n".join([f"$ {command}", *lines]) in page.read_text(encoding="utf-8")

    def switch_on(self) -> None:
        """Unpause the DAG, once Airflow has read its file as it is now."""
        began = datetime.now(UTC)
        os.utime(self.folder / "dags" / "sales.py")
        self.api.wait_for_dag(DAG, parsed_after=began, timeout=180)
        self.api.unpause(DAG)

    def runs(self) -> list[str]:
        """The runs of the three days, in their order, once Airflow has made them."""
        found = until(lambda: len(self.api.dag_runs(DAG)) == DAYS and self.api.dag_runs(DAG), **SLOW)
        return [run["dag_run_id"] for run in sorted(found, key=lambda run: run["data_interval_start"])]

    def ended(self, run_id: str) -> tuple[str, str]:
        """The state of a run that has ended, and its note."""
        run = self.api.wait_for_run(DAG, run_id, timeout=400)
        return run["state"], run["note"] or ""

    def noted(self, run_id: str, words: str) -> None:
        """The note of a run comes to have these words."""
        until(lambda: words in (self.api.dag_run(DAG, run_id)["note"] or ""), f"{words!r} is not noted", **SLOW)

    def emitting(self) -> str | None:
        """A run that has an attempt at work, if there is one."""
        with self.engine.connect() as connection:
            begun = connection.scalars(text("SELECT run FROM report.attempts ORDER BY attempt_id")).all()
        return next(filter(self._emits, (run.removeprefix(f"airflow:{DAG}:") for run in begun)), None)

    def newest(self) -> str:
        """The run that was made last."""
        return str(self.api.dag_runs(DAG)[-1]["dag_run_id"])

    def start_over(self) -> None:
        """Leave the project as `txbatch init` made it, nothing counted, and Airflow without a run."""
        self.api.pause(DAG)
        for run in self.api.unfinished_runs():
            self.api.fail_run(DAG, run["dag_run_id"])
        for run in self.api.dag_runs(DAG):
            self.api.delete_run(DAG, run["dag_run_id"])
        self.shell(typed(BREAK_IT, "txbatch drop"))
        for kind in ("data", "dags"):
            shutil.rmtree(self.folder / kind)
            shutil.copytree(self.folder.with_name("made") / kind, self.folder / kind)

    def _emits(self, run_id: str) -> bool:
        tasks: list[dict[str, Any]] = self.api.task_instances(DAG, run_id)
        return any((task["task_id"], task["state"]) == ("emit_batch", "running") for task in tasks)


@pytest.fixture(scope="module")
def school(
    new_database: Callable[[str], str], airflow_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lesson]:
    """The Airflow of a project that `txbatch init` has made, before any DAG is switched on."""
    folder = tmp_path_factory.mktemp("tutorial")
    for name in ("made", "first"):
        make_project(folder / name)
    shop, home = folder / "first", folder / "first" / ".txbatch"
    home.mkdir()
    (home / "java").symlink_to(ROOT / ".txbatch" / "java")
    given = {"TXBATCH_HOME": str(home), "TXBATCH_DATABASE_URL": new_database("migrated")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ours = {"PATH": path, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "plugins"), "PGCLIENTENCODING": "UTF8"}
    folders, url = (home, shop / "dags", ROOT / "plugins"), new_database(airflow_template)
    with (
        LocalAirflow(*folders, database_url=url, environment={**SOON, **given}) as airflow,
        AirflowButtons.of(airflow) as api,
    ):
        yield Lesson(shop, os.environ | given | ours, api, connect(given["TXBATCH_DATABASE_URL"]))


@pytest.fixture
def lesson(school: Lesson) -> Iterator[Lesson]:
    yield school
    school.start_over()


def test_what_the_command_line_has_counted_is_found_in_airflow(lesson: Lesson) -> None:
    """Minute 8 of the first page."""
    lesson.shell(asked(FIRST, "txbatch run ")[0])
    lesson.switch_on()
    (already,) = shown(FIRST, ALREADY)
    runs = lesson.runs()
    notes = [lesson.ended(run)[1] for run in runs]
    assert [f"{already} {txid}" in note for txid, note in enumerate(notes, 1)] == [True] * DAYS
    lesson.api.clear_run(DAG, runs[0])
    assert f"{already} 1" in lesson.ended(runs[0])[1]


def test_what_is_broken_in_airflow_is_counted_once(lesson: Lesson) -> None:
    """The table of the second page, from its first line to its last."""
    go_on, attempts, already = shown(BREAK_IT, GO_ON, ATTEMPTS, ALREADY)
    lesson.switch_on()
    runs = lesson.runs()
    red = until(lesson.emitting, "no task emits", seconds=300.0, every=0.2)
    lesson.api.mark_task(DAG, red, "emit_batch", "failed")
    assert lesson.ended(red)[0] == "failed"
    lesson.noted(red, go_on)
    lesson.api.clear_run(DAG, red)
    assert {lesson.ended(run)[0] for run in runs} == {"success"}
    lesson.noted(red, attempts)
    green = next(run for run in runs if run != red)
    lesson.api.clear_run(DAG, green)
    lesson.ended(green)
    lesson.noted(green, already)
    lesson.shell(typed(BREAK_IT, "airflow backfill"))
    (backfill,) = lesson.api.backfills(DAG)
    lesson.api.wait_for_backfill(backfill["id"])
    assert [already in lesson.ended(run)[1] for run in runs] == [True] * DAYS
    assert lesson.prints_as_shown(BREAK_IT, typed(BREAK_IT, "txbatch psql").splitlines()[-1])


def test_a_day_is_counted_again_by_a_trigger(lesson: Lesson) -> None:
    """The end of the third page, after all that its reader has done before."""
    for command in asked(FIX_IT, "cp ", "head ", "txbatch run ", "txbatch restate sales 2 --why"):
        lesson.shell(command)
    lesson.switch_on()
    (note,) = shown(FIX_IT, "restates")
    assert [lesson.ended(run)[0] for run in lesson.runs()] == ["success"] * DAYS
    lesson.shell(typed(FIX_IT, "airflow dags trigger"))
    assert note in lesson.ended(lesson.newest())[1]


def test_a_month_is_counted_by_one_run_and_a_backfill_has_each_of_its_days(lesson: Lesson) -> None:
    """The end of the fourth page. Its backfill is only planned here: 31 runs find their days counted."""
    for command in asked(YEAR, "rm ", "for "):
        lesson.shell(command)
    (new,) = (block.text for block in blocks(YEAR) if block.language == "python")
    file = lesson.folder / "dags" / "sales.py"
    file.write_text(file.read_text().partition("dag =")[0] + new)
    lesson.switch_on()
    lesson.shell(typed(YEAR, "airflow dags trigger"))
    state, note = lesson.ended(lesson.newest())
    assert state == "success"
    assert all(piece in note for piece in shown(YEAR, "batches")[0].split("..."))
    planned = lesson.shell(f"{typed(YEAR, 'airflow backfill')} --dry-run")
    assert len(set(re.findall(r"^\| (2026-0[34]-\d\d)", planned, re.MULTILINE))) == 31, planned
    for command in asked(YEAR, "txbatch psql"):
        assert lesson.prints_as_shown(YEAR, command)
