"""The set-up of a fresh machine: what it says where something is missing, and once for real, with few packages.

That all of requirements.txt can be installed is seen by whoever runs these tests; Spark's class archive has its own.
"""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from txbatch import __version__

ROOT = Path(__file__).parents[2]
TOOLS = ("bash", "basename", "cat", "dirname", "df", "head", "mkdir", "readlink", "sha256sum", "tail", "uname")
COPIED = ("Makefile", "bin", "plugins")
# What the command imports.
FEW = (
    "click",
    "croniter",
    "fsspec",
    "greenlet",
    "psycopg2-binary",
    "python-dateutil",
    "rich",
    "sqlalchemy",
    "six",
    "typing-extensions",
)
ARCHIVE = (
    "import sys; from pathlib import Path; from txbatch.embedded import java; home = Path(sys.argv[1]);"
    "print(java._archive(home, java.java_home(home)))"
)


def checkout(folder: Path, *parts: str) -> Path:
    folder.mkdir()
    for part in parts:
        source, target = ROOT / part, folder / part
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    return folder


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with little more than coreutils: no Python, no Java."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(str(shutil.which(tool)))
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("PYTHON", raising=False)
    return folder


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    return checkout(tmp_path / "checkout", "bin", "requirements.txt")


def refusal(folder: Path, **environment: str) -> str:
    """What a failing set-up says; it must be one line, and leave no half .venv behind."""
    command = [str(folder / "bin" / "setup")]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert not (folder / ".venv").exists()
    [line] = done.stderr.splitlines()
    return line


def told(*command: Path | str) -> str:
    return subprocess.run(command, cwd="/", capture_output=True, text=True, check=True).stdout.strip()


def fake_python(folder: Path, name: str, *, version: tuple[int, int], venv: bool = True) -> None:
    """Answers the questions that bin/setup asks a Python before it makes an environment."""
    fits = (3, 11) <= version <= (3, 14)
    answers = f"*version_info*) exit {int(not fits)} ;; *ensurepip*) exit {int(not venv)} ;; *) exit 9 ;;"
    program(folder, name, f'case "$*" in {answers} esac')


@pytest.mark.usefixtures("programs")
def test_no_python(bare: Path) -> None:
    assert refusal(bare).startswith("setup: no Python 3.11 to 3.14 among python3.14 ")


def test_a_python_that_does_not_fit(bare: Path, programs: Path) -> None:
    fake_python(programs, "python3", version=(3, 10))
    assert "install one, or name one: make PYTHON=" in refusal(bare)
    fake_python(programs, "python9", version=(3, 15))
    assert "no Python 3.11 to 3.14 among python9:" in refusal(bare, PYTHON="python9")


def test_no_venv_module(bare: Path, programs: Path) -> None:
    fake_python(programs, "python3.12", version=(3, 12), venv=False)
    assert "python3.12 has no venv module: install it (Debian, Ubuntu: apt install python3.12-venv)" in refusal(bare)


def test_the_newest_python_that_can_make_an_environment_is_taken(bare: Path, programs: Path) -> None:
    fake_python(programs, "python3.13", version=(3, 13), venv=False)
    fake_python(programs, "python3.12", version=(3, 12))
    fake_python(programs, "python3.11", version=(3, 11))
    assert told(bare / "bin" / "setup", "--python") == str(programs / "python3.12")


def test_a_python_that_may_not_be_executed(bare: Path, programs: Path) -> None:
    fake_python(programs, "python3.13", version=(3, 13))
    (programs / "python3.13").chmod(0o644)
    assert f"{programs}/python3.13 is there, but you may not execute it: have that mended" in refusal(bare)
    named = str(programs / "python3.13")
    assert f"{named} is there, but you may not execute it" in refusal(bare, PYTHON=named)


def test_a_checkout_that_cannot_be_written_to(bare: Path, programs: Path) -> None:
    (bare / ".txbatch").touch()  # as root may write everywhere
    told = f"setup: {bare} cannot be written to, and has no .venv that was made for this place: copy it"
    assert refusal(bare).startswith(told)


def test_another_machine(bare: Path, programs: Path) -> None:
    fake_python(programs, "python3", version=(3, 12))
    program(programs, "uname", "echo Darwin arm64")
    assert "this is Darwin arm64" in refusal(bare)


def test_a_full_disk(bare: Path, programs: Path) -> None:
    fake_python(programs, "python3", version=(3, 12))
    program(programs, "df", "echo Avail; echo $((700 * 1024))")
    assert f"700 MB are free in {bare}, about 3000 are needed" in refusal(bare)


def few_requirements() -> str:
    """The pins of FEW, with their digests."""
    pins = re.split(r"(?m)^(?=[a-z])", (ROOT / "requirements.txt").read_text())
    return "".join(pin for pin in pins if pin.partition("==")[0] in FEW)


@pytest.mark.timeout(300)
def test_a_fresh_checkout_is_set_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a path with a space, below a private folder; the second time needs no network and says nothing."""
    for name in ("PYTHON", "PYTHONPATH", "TXBATCH_HOME", "MAKEFLAGS", "MAKELEVEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "private").mkdir(mode=0o700)
    folder = checkout(tmp_path / "private" / "my checkout", *COPIED)
    (folder / "requirements.txt").write_text(few_requirements())
    subprocess.run(["make", "setup"], cwd=folder, check=True)
    packages = next(folder.glob(".venv/lib/python3.*/site-packages"))
    assert {path.stem.partition("-")[0].lower() for path in packages.glob("*.dist-info")} >= {"click", "sqlalchemy"}

    python = folder / ".venv" / "bin" / "python"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with monkeypatch.context() as patch:  # as if Spark were installed and the archive of its classes made
        patch.setenv("PYTHONPATH", str(Path(str(find_spec("pyspark").origin)).parents[1]))
        archive = Path(told(python, "-c", ARCHIVE, folder / ".txbatch"))
        archive.parent.mkdir(exist_ok=True)
        archive.touch()
        again = subprocess.run(["make", "setup"], cwd=folder, capture_output=True, text=True)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert told(python, "-c", "import txbatch; print(txbatch.__file__)") == str(folder / "plugins/txbatch/__init__.py")
    assert __version__ in told(folder / ".venv" / "bin" / "txbatch", "-v", "--version")
    assert list(packages.glob("click/__pycache__/core.*.pyc"))
    assert list(folder.glob("plugins/txbatch/core/errors/__pycache__/base.*.pyc"))


def test_one_pyspark_is_installed() -> None:
    """The package pyspark-client has files of the same names, and no Java."""
    pins = (ROOT / "requirements.txt").read_text()
    assert re.findall(r"(?m)^pyspark\S*==", pins) == re.findall(r"(?m)^pyspark==", pins)
