"""What a cell needs: an empty environment with the wheel and its versions, and a PostgreSQL. What cannot be had has a reason."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from matrix.cells import NEWEST, Cell
from txbatch.embedded import postgres

ROOT = Path(__file__).parents[2]
EMBEDDED = "18"
OF_DEBIAN = Path("/usr/lib/postgresql")
EXTRAS = "airflow,spark,embedded"
# `make lock` makes it, too.
UV = ROOT / ".txbatch" / "lock"


class NotHad(Exception):
    """A version cannot be had here; the text is the reason."""


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout."""
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)])
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(cell: Cell, wheel: Path, folder: Path) -> Path:
    """Return the Python of a new environment with the wheel, its extras and the versions of a cell."""
    python, uv = _find_python(cell.python), _uv()
    shutil.rmtree(folder, ignore_errors=True)
    _had([uv, "venv", "--quiet", "--python", python, str(folder)])
    made = folder / "bin" / "python"
    _had([uv, "pip", "install", "--quiet", "--python", str(made), *requirements(cell, wheel)])
    return made


def requirements(cell: Cell, wheel: Path) -> list[str]:
    """What a cell installs. A preview of Airflow is named with its parts, for a resolver takes previews that are named alone."""
    wanted = [f"{wheel}[{EXTRAS}]", f"apache-airflow=={cell.airflow}", f"pyspark~={cell.pyspark}.0"]
    if not cell.airflow.replace(".", "").isdecimal():
        wanted += [f"apache-airflow-core=={cell.airflow}", "apache-airflow-task-sdk>=1.4.0a0"]
    return wanted


@contextmanager
def server(cell: Cell, home: Path) -> Iterator[str | None]:
    """Context manager. Run the PostgreSQL of a cell; its URL, or None where the embedded one is the cell's."""
    if cell.postgres == EMBEDDED:
        yield None
        return
    programs = OF_DEBIAN / cell.postgres / "bin"
    if not (programs / "postgres").exists():
        raise NotHad(f"there is no PostgreSQL {cell.postgres} in {programs}")
    home.mkdir(parents=True, exist_ok=True)
    with mock.patch.object(postgres, "bin_dir", return_value=programs):
        try:
            yield postgres.start(home)
        finally:
            postgres.stop(home)


def _find_python(wanted: str) -> str:
    """The Python that `make setup` would take, or one of a version."""
    named = {} if wanted == NEWEST else {"PYTHON": f"python{wanted}"}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    done = subprocess.run([ROOT / "bin" / "setup", "--python"], env=kept | named, capture_output=True, text=True)
    if done.returncode:
        raise NotHad(f"there is no Python {wanted} with the module venv")
    found = done.stdout.strip()
    if wanted == NEWEST and version_of(found) == "3.11":
        raise NotHad("there is no Python newer than 3.11")
    return found


def version_of(python: str) -> str:
    """The minor version of a Python."""
    return _run([python, "-c", "import sys; print('{}.{}'.format(*sys.version_info))"]).strip()


def _uv() -> str:
    if not (UV / "bin" / "uv").exists():
        _run([sys.executable, "-m", "venv", str(UV)])
        _run([str(UV / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "uv"])
    return str(UV / "bin" / "uv")


def _had(command: Sequence[str]) -> None:
    try:
        _run(command)
    except subprocess.CalledProcessError as error:
        told = " ".join(error.stderr.split()) or f"exit code {error.returncode}"
        raise NotHad(re.sub(r"[^ -~]+ ?", "", told)) from None


def _run(command: Sequence[str]) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
