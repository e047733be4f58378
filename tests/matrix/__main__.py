"""Runs the cells of the matrix, one after the other, and writes their results: all, or those with versions that are named.

A cell is an empty environment with the wheel, and the smoke tier. A cell that cannot be had reads "not run", with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from matrix.cells import MOVE, MOVED, Cell, chosen
from matrix.environments import ROOT, NotHad, build_wheel, install, server
from matrix.results import FAILED, GREEN, NOT_RUN, Result, store

FOLDER = ROOT / ".cells"
SMOKE = Path(__file__).with_name("smoke.py")


def main(words: list[str]) -> int:
    """Return 1 if a cell fails; one that cannot be had is no failure."""
    cells, wheel = chosen(words), build_wheel(FOLDER / "dist")
    outcomes = [ran(cell, wheel).outcome for cell in cells]
    return int(FAILED in outcomes)


def ran(cell: Cell, wheel: Path) -> Result:
    """Run a cell, and store what came of it."""
    print(cell, flush=True)
    result = Result(cell, why="", day=f"{datetime.now(UTC):%Y-%m-%d}")
    try:
        result = moved(result, wheel) if cell == MOVED else smoked(result, cell, wheel)
    except NotHad as error:
        result = replace(result, outcome=NOT_RUN, why=str(error), steps={}, versions={})
    store(result)
    print(f"{cell}: {result.outcome}{f', {result.why}' if result.why else ''}", flush=True)
    return result


def smoked(result: Result, cell: Cell, wheel: Path) -> Result:
    """Install a cell in an empty environment, and run its smoke tier in an empty folder."""
    folder = FOLDER / cell.folder
    python, smoke = install(cell, wheel, folder / "venv"), _empty(folder / "smoke")
    with server(cell, _empty(folder / "server")) as url:
        return smoke_tier(result, python, smoke, url)


def moved(result: Result, wheel: Path) -> Result:
    """Stop an Airflow with runs in flight, and let the newest go on in the same folder, with the same ledger."""
    folder, pythons = _empty(FOLDER / "moved"), [install(each, wheel, FOLDER / each.folder / "venv") for each in MOVE]
    before = smoke_tier(result, pythons[0], folder, None, "leave")
    if before.outcome != GREEN:
        return before
    after = smoke_tier(replace(before, versions={}), pythons[1], folder, None, "go_on")
    both = {
        axis: ", then ".join(dict.fromkeys((before.versions[axis], version)))
        for axis, version in after.versions.items()
    }
    return replace(after, versions=both)


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def smoke_tier(result: Result, python: Path, folder: Path, url: str | None, *steps: str) -> Result:
    """Run the smoke tier with the Python of a cell; its output is in `smoke.log`, too."""
    outside = {
        name: value for name, value in os.environ.items() if not name.startswith(("TXBATCH", "AIRFLOW", "PYTHON"))
    }
    given = outside | ({"TXBATCH_DATABASE_URL": url} if url else {})
    with (folder / "smoke.log").open("a") as log:
        command = [str(python), str(SMOKE), str(folder), *steps]
        with subprocess.Popen(command, env=given, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(f"  {line}", end="", flush=True)
                result = told(result, line)
    if process.returncode == 0:
        return replace(result, outcome=GREEN, why="")
    return replace(result, outcome=FAILED, why=result.why or f"exit code {process.returncode}, see smoke.log")


def told(result: Result, line: str) -> Result:
    """A result with a line of the smoke tier."""
    try:
        found = json.loads(line)
    except ValueError:
        return result
    if "versions" in found:
        return replace(result, versions=found["versions"])
    if "error" in found:
        return replace(result, why=f"{found['step']}: {found['error']}")
    return replace(result, why="", steps={**result.steps, found["step"]: found["seconds"]})


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
