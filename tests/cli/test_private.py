"""What lies on the disk is its owner's alone; and the command works where its surroundings are odd."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from txbatch import settings
from txbatch.launch.application import _folder, _local_dirs

Txbatch = Callable[..., Result]


def mode(path: Path | str) -> str:
    return oct(stat.S_IMODE(os.stat(path).st_mode))


@pytest.fixture(autouse=True)
def umask() -> Callable[[], None]:
    before = os.umask(0o022)
    yield  # type: ignore[misc]
    os.umask(before)


def loaded(monkeypatch: pytest.MonkeyPatch, home: Path) -> str:
    monkeypatch.setenv("TXBATCH_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    monkeypatch.setenv("TXBATCH_HOME", str(home))
    settings.ensure_database(settings.resolve())
    return mode(home)


def test_a_home_is_made_for_its_owner_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert loaded(monkeypatch, tmp_path / "new" / "home") == "0o700"


@pytest.mark.parametrize("holds", ["postgres.lock", "staging", "airflow", "dist", None])
def test_a_home_that_is_there_becomes_its_owners_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, holds: str | None
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    if holds:
        (home / holds).mkdir()
    assert loaded(monkeypatch, home) == "0o700"


def test_staging_is_below_the_home_as_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TXBATCH_STAGING", raising=False)
    monkeypatch.setenv("TXBATCH_DATABASE_URL", "postgresql+psycopg2://nobody@/none")
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "ä b#%20"))
    assert settings.resolve().staging == f"file://{tmp_path}/ä b#%20/staging"


def test_a_folder_that_is_none_of_ours_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o755)
    (tmp_path / "theirs" / "index.html").touch()
    assert loaded(monkeypatch, tmp_path / "theirs") == "0o755"
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "staging").mkdir()
    assert loaded(monkeypatch, shared) == "0o1777"


def test_what_spark_keeps_while_it_runs_is_its_owners_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    with _folder("spark-") as folder:
        assert mode(folder) == "0o700"
        assert _local_dirs(folder) == {"SPARK_LOCAL_DIRS": folder}
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/fast")
    assert _local_dirs(folder) == {}


def test_a_long_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A socket's path has at most 107 bytes."""
    long = tmp_path / ("x" * 150)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with _folder("txbatch-") as folder:
        assert len(f"{folder}/socket") < 107


@pytest.mark.parametrize("path", ["", "/nosuch"])
def test_a_path_without_programs(path: str) -> None:
    root = settings.project_root()
    done = subprocess.run(
        [str(root / "bin" / "txbatch"), "--version"], env={"PATH": path}, capture_output=True, text=True
    )
    assert "txbatch, version" in done.stdout or "No such file" in done.stderr, done.stderr
    assert "there is no .venv" not in done.stderr
