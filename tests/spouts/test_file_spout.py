"""FileSpout's listing and planning, without Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from txbatch import FileSpout, TransactionAttempt
from txbatch.core.coordinator import PartitionedCoordinator
from txbatch.core.errors import DefinitionError, PartitionUnreadable, TransientError
from txbatch.spouts import listing

FIRST = TransactionAttempt(1, 0)


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("line\n")


def plan(spout: FileSpout, read: dict[str, object]) -> list[str]:
    planner = PartitionedCoordinator(spout)
    planner.offsets = read
    metadata = planner.initialize_transaction(1, None, None)
    return list(metadata["partitions"]) if metadata else []


def test_lists_nested_folders_in_the_order_of_bytes(tmp_path: Path) -> None:
    touch(tmp_path, "b", "a/z", "a/b/c", "Z", "ü", "a.txt", "_x", ".x", "_d/x", ".d/x", "x._COPYING_")
    assert FileSpout(tmp_path).partitions() == ["Z", "a.txt", "a/b/c", "a/z", "b", "ü"]


def test_pattern_is_of_the_name_and_minds_case(tmp_path: Path) -> None:
    touch(tmp_path, "a.py", "d.py/a.txt", "A.PY", "sub/b.py")
    assert FileSpout(tmp_path, "*.py").partitions() == ["a.py", "sub/b.py"]


def test_only_files_count_also_through_links(tmp_path: Path) -> None:
    touch(tmp_path, "target")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "broken").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    assert FileSpout(tmp_path).partitions() == ["link", "target"]


def test_a_late_file_that_sorts_first_is_read_once(tmp_path: Path) -> None:
    touch(tmp_path, "m", "n")
    spout = FileSpout(tmp_path)
    read: dict[str, object] = {name: {"start": 0, "end": 5} for name in plan(spout, {})}
    touch(tmp_path, "a")
    assert plan(spout, read) == ["a"]
    assert plan(spout, read | {"a": {"start": 0, "end": 5}}) == []


def test_a_batch_has_at_most_files_per_batch(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{n:02}" for n in range(25)))
    spout = FileSpout(tmp_path, files_per_batch=10)
    assert plan(spout, {}) == [f"{n:02}" for n in range(10)]
    assert plan(spout, {f"{n:02}": {"start": 0, "end": 5} for n in range(20)}) == ["20", "21", "22", "23", "24"]


def test_a_root_that_is_no_folder(tmp_path: Path) -> None:
    touch(tmp_path, "file")
    for root in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(TransientError, match="is not a folder that can be read; create it or mend the path"):
            FileSpout(root).partitions()


def test_a_folder_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object, onerror: object) -> object:
        assert callable(onerror)
        onerror(PermissionError(13, "Permission denied", str(tmp_path / "locked")))
        return iter(())

    monkeypatch.setattr(listing.os, "walk", refuse)
    with pytest.raises(PartitionUnreadable, match="locked cannot be listed: Permission denied"):
        FileSpout(tmp_path).partitions()


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/caf\xe9", "wb"):
        pass
    with pytest.raises(TransientError, match=r"name b'caf\\xe9' is not UTF-8; rename the file"):
        FileSpout(tmp_path).partitions()


def test_a_name_with_a_colon(tmp_path: Path) -> None:
    """Hadoop takes what stands before it for a scheme."""
    touch(tmp_path, "08:00.txt")
    with pytest.raises(
        TransientError, match=r"Spark cannot read '08:00.txt', for the colon in its name; rename the file"
    ):
        FileSpout(tmp_path).partitions()


def test_files_per_batch_is_checked(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="files_per_batch must be at least 1"):
        FileSpout(tmp_path, files_per_batch=0)
