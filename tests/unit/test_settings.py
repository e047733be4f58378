"""Settings say where everything is; only `ensure_database` makes and starts what is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from txbatch import settings
from txbatch.core.errors import DefinitionError
from txbatch.embedded import postgres

URL = "postgresql+psycopg2://nobody@127.0.0.1:1/none"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DATABASE_URL", "STAGING", "FAILPOINTS"):
        monkeypatch.delenv(f"TXBATCH_{name}", raising=False)
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The homes whose server is started."""
    homes: list[Path] = []
    monkeypatch.setattr(postgres, "start", homes.append)
    return homes


def test_to_resolve_makes_and_starts_nothing(home: Path, started: list[Path]) -> None:
    resolved = settings.resolve()
    assert resolved.embedded
    assert resolved.database_url == postgres.url(home)
    assert not home.exists()
    assert started == []


def test_the_embedded_server_is_started_where_it_is_the_one_to_use(home: Path, started: list[Path]) -> None:
    resolved = settings.resolve()
    assert settings.ensure_database(resolved) == resolved
    assert home.is_dir()
    assert started == [home]


def test_another_server_is_left_alone(home: Path, started: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings.resolve(URL)
    monkeypatch.setenv("TXBATCH_DATABASE_URL", f"{URL}_of_environment")
    for each in (given, settings.resolve(URL)):
        settings.ensure_database(each)
        assert not each.embedded
    assert [given.database_url, settings.resolve(URL).database_url] == [URL, f"{URL}_of_environment"]
    assert home.is_dir()
    assert started == []


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("HOME", "~", "only a shell knows what ~ is"),
        ("HOME", "~/x", "only a shell knows what ~ is"),
        ("HOME", "home", "another folder wherever a command runs; write the whole path"),
        ("HOME", "/", "the root of a filesystem"),
        ("HOME", "/tmp/..", "the root of a filesystem"),
        *((name, value, "begins or ends with a blank") for name in ("HOME", "STAGING") for value in (" /x", "/x\n")),
        *(("DATABASE_URL", value, "begins or ends with a blank") for value in (f" {URL}", f"{URL}\n")),
    ],
)
def test_what_nobody_means_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(f"TXBATCH_{name}", value)
    with pytest.raises(DefinitionError, match=rf"^TX\d\d\d \(no retry helps\): TXBATCH_{name} .*{said}"):
        settings.resolve()
    assert not home.exists()
