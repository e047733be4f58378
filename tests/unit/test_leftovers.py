"""What killed processes left in the staging area goes; what somebody may still read stays (R22)."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from refusals import refused

from txbatch.core.protocol.ports import REBUILD
from txbatch.memory.run_locks import MemoryRunLocks
from txbatch.storage.leftovers import UNTOUCHED, StagingLeftovers
from txbatch.storage.staging import Staging

pytestmark = pytest.mark.rule("R22")
OLD, YOUNG = "verify-0123abcd", "verify-4567abcd"


@pytest.fixture
def area(tmp_path: Path) -> Path:
    for folder in (
        "1/1-a",
        "3/1-a",
        "4/2-b",
        "12/1-a",
        "rebuild/2-0-a",
        OLD,
        f"{OLD}/1-0-x",
        YOUNG,
        "_probe",
        "01",
        "notes",
    ):
        (tmp_path / "t" / folder).mkdir(parents=True, exist_ok=True)
    for folder in (f"{OLD}/1-0-x", f"{YOUNG}", "4/2-b"):
        (tmp_path / "t" / folder / "fence.json").write_text("{}")
    before = (datetime.now(UTC) - 2 * UNTOUCHED).timestamp()
    os.utime(tmp_path / "t" / OLD / "1-0-x" / "fence.json", (before, before))
    return tmp_path


def left(area: Path) -> set[str]:
    return set(os.listdir(area / "t"))


def test_what_is_final_or_ended_goes(area: Path) -> None:
    leftovers, all_ = StagingLeftovers(Staging(f"file://{area}"), MemoryRunLocks()), left(area)
    assert leftovers.number("t", 4) == 5
    assert left(area) == all_
    assert leftovers.remove("t", 4) == 5
    assert left(area) == {"12", YOUNG, "_probe", "01", "notes"}
    assert (leftovers.number("t", 4), leftovers.remove("t", 4), leftovers.remove("nobody", 9)) == (0, 0, 0)


def test_a_rebuild_that_runs_keeps_what_it_reads(area: Path) -> None:
    locks = MemoryRunLocks()
    leftovers = StagingLeftovers(Staging(f"file://{area}"), locks)
    with locks.hold("t", REBUILD):
        assert (leftovers.number("t", 0), leftovers.remove("t", 0)) == (1, 1)
    assert left(area) >= {"1", "3", "rebuild"}
    assert (leftovers.number("t", 0), leftovers.remove("t", 0)) == (1, 1)
    assert "rebuild" not in left(area)


def test_a_filesystem_that_does_not_say_when_keeps_what_is_verified(
    area: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.modified", silent)
    assert StagingLeftovers(Staging(f"file://{area}"), MemoryRunLocks()).number("t", 0) == 1


def test_a_link_leads_nowhere(area: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "file").write_text("mine")
    (area / "t" / "2").symlink_to(elsewhere)
    with refused("TX815", "symbolic link"):
        StagingLeftovers(Staging(f"file://{area}"), MemoryRunLocks()).remove("t", 4)
    assert (elsewhere / "file").exists()
