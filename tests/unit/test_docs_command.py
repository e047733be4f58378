"""`txbatch docs`: where the documentation is, of a checkout and of an installed package."""

from __future__ import annotations

from email.message import Message
from pathlib import Path

import pytest
from click.testing import CliRunner

from txbatch.cli import docs
from txbatch.cli.main import main


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a browser was told to open."""
    found: list[str] = []
    monkeypatch.setattr("click.launch", found.append)
    return found


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Message:
    """The metadata of an installed package."""
    metadata = Message()
    monkeypatch.setattr(docs, "in_checkout", lambda: False)
    monkeypatch.setattr(docs, "metadata", lambda name: metadata)
    return metadata


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first page of a site that was built."""
    page = tmp_path / "si te" / "index.html"
    page.parent.mkdir()
    page.touch()
    monkeypatch.setattr(docs, "site", lambda: page)
    return page


def told() -> str:
    result = CliRunner().invoke(main, ["docs"])
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.rstrip("\n")


def test_a_checkout_names_the_copy_that_it_built(built: Path, opened: list[str]) -> None:
    assert told() == built.as_uri()
    assert opened == [], "no person reads the output"


def test_a_checkout_without_a_copy_says_how_to_build_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "site", lambda: tmp_path / "index.html")
    said = told()
    assert "run `make docs`" in said
    assert Path(said.rpartition(" ")[2]).is_file()


def test_on_a_desktop_the_copy_is_opened(built: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "on_desktop", lambda: True)
    assert opened == [told()]


@pytest.mark.parametrize(
    ("terminal", "display", "opens"), [(True, ":0", True), (True, "", False), (False, ":0", False)]
)
def test_a_desktop_has_a_person_and_a_display(
    terminal: bool, display: str, opens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal, raising=False)
    assert docs.on_desktop() is opens


def test_an_installed_package_names_the_address_of_its_metadata(installed: Message) -> None:
    installed["Project-URL"] = "Changelog, https://docs.example.org/changelog.html"
    installed["Project-URL"] = "Documentation, https://docs.example.org/"
    assert told() == "https://docs.example.org/"


def test_an_installed_package_without_an_address_names_the_commands_with_help(installed: Message) -> None:
    said = told()
    assert "`txbatch explain TX402`" in said
    assert "make" not in said


def test_a_package_without_metadata_has_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Message:
        raise docs.PackageNotFoundError(name)

    monkeypatch.setattr(docs, "metadata", missing)
    assert docs.published() is None
