"""Where a project begins, and what is said where packages are missing."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from txbatch.cli.main import main
from txbatch.cli.project import starter
from txbatch.core.errors import DefinitionError, PackageMissing
from txbatch.places import is_project


def test_a_folder_that_may_not_be_entered_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr("os.stat", refuse)
        found = is_project(tmp_path)
    assert not found


@pytest.mark.parametrize("command", ["up", "down"])
def test_a_package_that_is_missing_is_told_with_one_way_out(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txbatch.cli.project.project.check_fit", lambda extra: "")
    monkeypatch.setitem(sys.modules, "txbatch.local", None)
    called = CliRunner().invoke(main, [command])
    assert (called.exit_code, called.stdout) == (1, "")
    error, *advice = called.stderr.splitlines()
    assert error == "txbatch: TX808 (try again): txbatch.local is not installed beside txbatch; run `make setup`"
    assert advice == ["  Is any number wrong? No: nothing was read or changed.", "  More: txbatch explain TX808"]


def test_up_needs_airflow_however_it_is_called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from txbatch.local import up

    def refuse(extra: str) -> str:
        raise PackageMissing(f"{extra} is not installed")

    monkeypatch.setattr(up, "check_fit", refuse, raising=False)
    monkeypatch.setattr(up.settings, "home", lambda: pytest.fail("went on"))
    assert up.main() == 1
    assert capsys.readouterr().err == "make up: TX808 (try again): airflow is not installed\n"


def test_a_copy_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise shutil.Error([("from", "to", "disk is full")])

    monkeypatch.setattr("shutil.copytree", refuse)
    with pytest.raises(DefinitionError, match="disk is full"):
        starter.make_project(tmp_path / "shop")
