"""FileSpout's listing and planning, without Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from txbatch import (
    FileSpout,
    IntervalSpout,
    OpaquePartitionedLogSpout,
    PartitionedLogSpout,
    TransactionAttempt,
)
from txbatch.core.errors import DefinitionError, PartitionUnreadable, TransientError
from txbatch.core.sources.spout import PartitionedCoordinator
from txbatch.formats import listing

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


def test_only_files_count(tmp_path: Path) -> None:
    touch(tmp_path, "file")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "linked pipe").symlink_to("pipe")
    assert FileSpout(tmp_path).partitions() == ["file"]


@pytest.mark.parametrize(
    ("target", "pattern", "expected"),
    [
        ("b.csv", "*.csv", ["b.csv", "deep/c.csv"]),  # listed where it is, wherever the link stands
        ("deep/c.csv", "*.csv", ["b.csv", "deep/c.csv"]),
        ("../out/d.csv", "*.csv", ["b.csv", "deep/c.csv", "latest.csv"]),
        ("_store/e.csv", "*.csv", ["b.csv", "deep/c.csv", "latest.csv"]),  # which is not listed where it is
        ("b.csv", "latest*", ["latest.csv"]),
        ("deep", "*.csv", ["b.csv", "deep/c.csv"]),
        ("_store", "*.csv", ["b.csv", "deep/c.csv", "latest.csv/e.csv", "latest.csv/more/f.csv"]),
        ("_store/more", "*.csv", ["b.csv", "deep/c.csv", "latest.csv/f.csv"]),
    ],
)
def test_a_file_is_listed_once_through_links(tmp_path: Path, target: str, pattern: str, expected: list[str]) -> None:
    touch(tmp_path, "out/d.csv", *(f"in/{n}" for n in ("b.csv", "deep/c.csv", "_store/e.csv", "_store/more/f.csv")))
    root = tmp_path / "in"
    (root / "latest.csv").symlink_to(target)
    assert FileSpout(root, pattern).partitions() == expected
    root.rename(tmp_path / "moved")
    root.symlink_to("moved")
    assert FileSpout(root, pattern).partitions() == expected


@pytest.mark.parametrize("target", ["../out/d.csv", "_store/e.csv"])
def test_two_links_to_one_file_are_named(tmp_path: Path, target: str) -> None:
    touch(tmp_path, "out/d.csv", "in/_store/e.csv", "in/b.csv")
    for name in ("x.csv", "y.csv"):
        (tmp_path / "in" / name).symlink_to(target)
    says = r"the link .*/in/y\.csv leads to the file that .*/in/x\.csv leads to as well; remove one of them"
    with pytest.raises(TransientError, match=says):
        FileSpout(tmp_path / "in").partitions()


@pytest.mark.parametrize(("link", "target"), [("x.csv", "/mnt/away/x.csv"), ("away", "nowhere"), ("x.csv", "x.csv")])
def test_a_link_that_leads_nowhere_is_no_file_less(tmp_path: Path, link: str, target: str) -> None:
    """It may be a folder that is not mounted, whatever its name."""
    touch(tmp_path, "b.csv")
    (tmp_path / "_hidden").symlink_to("nowhere")
    assert FileSpout(tmp_path, "*.csv").partitions() == ["b.csv"]
    (tmp_path / link).symlink_to(target)
    with pytest.raises(PartitionUnreadable, match=f"the link .*/{link} leads to nothing that can be read .*; restore"):
        FileSpout(tmp_path, "*.csv").partitions()


@pytest.mark.parametrize("link", ["today.txt", "deep"])
def test_a_link_of_another_user_out_of_the_source_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    root = tmp_path / "uploads"
    touch(tmp_path, "secrets/airflow.cfg", "uploads/own/x")
    (root / link).symlink_to("../secrets" if link == "deep" else "../secrets/airflow.cfg")
    named = FileSpout(root).partitions()
    assert len(named) == 2
    monkeypatch.setattr(listing, "_owners", lambda link: (4711, 4712))
    with pytest.raises(
        TransientError, match=rf"the link .*/{link} leads out of .*/uploads to .*, which another user owns"
    ):
        FileSpout(root).partitions()
    assert FileSpout(root, foreign_links=True).partitions() == named
    (root / link).unlink()
    (root / "again").symlink_to("own/x")
    assert FileSpout(root).partitions() == ["own/x"]


@pytest.mark.parametrize("link", ["linked", "deep"])
def test_a_planned_file_that_became_such_a_link_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    """Of the size that was planned, so that nothing else is wrong with it."""
    root, name = tmp_path / "uploads", "linked" if link == "linked" else "deep/airflow.cfg"
    touch(tmp_path, "secrets/airflow.cfg", f"uploads/{name}")
    size = (root / name).stat().st_size
    plan: Any = {"partitions": {name: {"start": 0, "end": size}}}
    (root / name).unlink()
    if link == "deep":
        (root / link).rmdir()
    (root / link).symlink_to("../secrets" if link == "deep" else "../secrets/airflow.cfg")
    monkeypatch.setattr(listing, "_owners", lambda link: (4711, 4712))
    spark: Any = None
    told = rf"the link .*/{link} leads out of .*/uploads to .*, which another user owns"
    with pytest.raises(TransientError, match=told):
        FileSpout(root).emit_batch(spark, TransactionAttempt(1, 1), plan)
    with pytest.raises(TransientError, match=told):
        FileSpout(root).emit_partition_batch(spark, TransactionAttempt(1, 1), name, plan["partitions"][name])
    interval: Any = IntervalSpout(root, "at timestamp", time="at", format="json")
    with pytest.raises(TransientError, match=told):
        interval.emit_batch(spark, TransactionAttempt(1, 1), {"interval": [], "files": {name: {}}})


def test_linked_folders_are_entered_once(tmp_path: Path) -> None:
    touch(tmp_path, "out/1/x", "out/2/y", "out/_hidden/z", "root/day/a", "root/b")
    root = tmp_path / "root"
    (root / "latest").symlink_to("day")
    (root / "linked").symlink_to(tmp_path / "out")
    (tmp_path / "out" / "1" / "back").symlink_to(tmp_path / "out")
    (tmp_path / "out" / "2" / "home").symlink_to(root)
    (root / "_hidden").symlink_to(tmp_path)
    assert FileSpout(root).partitions() == ["b", "day/a", "linked/1/x", "linked/2/y"]


@pytest.mark.parametrize("target", ["out", "out/1", ".", "root"])
def test_links_that_lead_to_files_twice_are_named(tmp_path: Path, target: str) -> None:
    touch(tmp_path, "out/1/x", "root/b")
    root = tmp_path / "root"
    (root / "linked").symlink_to(tmp_path / "out")
    (root / "other").symlink_to(tmp_path / target)
    if target == "root":
        assert FileSpout(root).partitions() == ["b", "linked/1/x"]
        return
    with pytest.raises(
        TransientError, match=r"the link .* leads to files that .* leads to as well; remove one of them"
    ):
        FileSpout(root).partitions()


def test_a_late_file_that_sorts_first_is_read_once(tmp_path: Path) -> None:
    touch(tmp_path, "m", "n")
    spout = FileSpout(tmp_path)
    read: dict[str, object] = {name: {"start": 0, "end": 5} for name in plan(spout, {})}
    touch(tmp_path, "a")
    assert plan(spout, read) == ["a"]
    assert plan(spout, read | {"a": {"start": 0, "end": 5}}) == []


def test_files_that_are_read_are_not_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle look costs by their names alone."""
    touch(tmp_path, *(f"{n}/{n}" for n in range(5)))
    read: dict[str, object] = {f"{n}/{n}": {"start": 0, "end": 5} for n in range(4)}
    looked, stat = list[str](), os.stat
    monkeypatch.setattr(os, "stat", lambda path, **given: [looked.append(Path(path).name), stat(path, **given)][1])
    monkeypatch.setattr(listing, "_check_name", looked.append)
    assert plan(FileSpout(tmp_path), read) == ["4/4"]
    assert sorted(set(looked) - {tmp_path.name}) == ["4", "4/4"]


def test_a_link_to_a_file_that_is_read_is_no_other_file(tmp_path: Path) -> None:
    touch(tmp_path, "a")
    (tmp_path / "link").symlink_to("a")
    assert plan(FileSpout(tmp_path), {"a": {"start": 0, "end": 5}}) == []


def test_a_spout_that_plans_otherwise_is_asked_for_every_file(tmp_path: Path) -> None:
    class Growing(FileSpout):
        def emit_partition_batch_new(self, attempt: Any, partition: str, last_metadata: Any) -> Any:
            return {"start": last_metadata["end"] if last_metadata else 0, "end": 9}

    class Chosen(FileSpout):
        def partitions(self) -> Any:
            return ["b"]

    touch(tmp_path, "a", "b")
    read: dict[str, object] = {"a": {"start": 0, "end": 5}}
    assert plan(Growing(tmp_path), read) == ["a", "b"]
    assert plan(Chosen(tmp_path), read) == ["b"]
    assert plan(Chosen(tmp_path), {"b": {"start": 0, "end": 5}}) == []


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
    touch(tmp_path, "locked/a")
    scandir = os.scandir

    def refuse(folder: str) -> Any:
        if folder.endswith("locked"):
            raise PermissionError(13, "Permission denied", folder)
        return scandir(folder)

    monkeypatch.setattr(listing.os, "scandir", refuse)
    with pytest.raises(PartitionUnreadable, match="locked cannot be listed: Permission denied"):
        FileSpout(tmp_path).partitions()


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/caf\xe9", "wb"):
        pass
    with refused("TX207", "b'caf\\xe9'", "UTF-8"):
        FileSpout(tmp_path).partitions()


def test_a_name_with_a_colon(tmp_path: Path) -> None:
    """Hadoop takes what stands before it for a scheme."""
    touch(tmp_path, "08:00.txt")
    with refused("TX207", "Spark", "'08:00.txt'"):
        FileSpout(tmp_path).partitions()


SPOUTS = {
    "FileSpout": FileSpout,
    "IntervalSpout": lambda root: IntervalSpout(root, "at timestamp", time="at"),
    "PartitionedLogSpout": PartitionedLogSpout,
    "OpaquePartitionedLogSpout": OpaquePartitionedLogSpout,
}


@pytest.mark.parametrize("root", ["", ".", "data", Path("data"), "~/data", "s3://bucket/data", "file:///data", None, 5])
@pytest.mark.parametrize("name", SPOUTS)
def test_a_root_is_one_folder_wherever_a_process_runs(name: str, root: Any) -> None:
    """Else a shell and a worker of Airflow read two folders as one source, and none notices."""
    with pytest.raises(
        DefinitionError,
        match=rf"^TX208 \(no retry helps\): {name}: root .* is no absolute path: .*Path\(__file__\)\.parent / \"data\"",
    ):
        SPOUTS[name](root)


@pytest.mark.parametrize("pattern", ["", "2026/*.csv", None])
def test_a_pattern_is_for_the_name_of_a_file(pattern: Any) -> None:
    for spout in (
        lambda: FileSpout("/data", pattern),
        lambda: IntervalSpout("/d", "t timestamp", time="t", pattern=pattern),
    ):
        with pytest.raises(DefinitionError, match=r"Spout: pattern .* is for a file's name, at any depth"):
            spout()


def test_files_per_batch_is_checked(tmp_path: Path) -> None:
    with refused("TX208", "files_per_batch", "1"):
        FileSpout(tmp_path, files_per_batch=0)


def test_a_file_is_counted_again_whole_as_it_is_now(tmp_path: Path) -> None:
    touch(tmp_path, "a")
    spout = FileSpout(tmp_path)
    planned = spout.emit_partition_batch_new(FIRST, "a", None)
    assert planned is not None
    (tmp_path / "a").write_text("two\nlines\n")
    again = spout.plan_again("a", planned)
    assert again == {"start": 0, "end": 10, "mtime_ns": (tmp_path / "a").stat().st_mtime_ns}
    (tmp_path / "a").unlink()
    with pytest.raises(
        PartitionUnreadable,
        match=rf"^TX201 \(try again\): {tmp_path}/a cannot be read: No such file or directory; restore",
    ):
        spout.plan_again("a", planned)


def test_a_plan_of_files_of_other_sizes_is_refused_before_they_are_read(tmp_path: Path) -> None:
    touch(tmp_path, "a", "b")
    spout = FileSpout(tmp_path)
    metadata = PartitionedCoordinator(spout).initialize_transaction(1, None, None)
    assert metadata is not None
    spout.check_plan(metadata)
    (tmp_path / "a").unlink()
    spout.check_plan(metadata)  # whether it may be left out, its reader says
    (tmp_path / "b").write_text("line\nmore\n")
    with refused("TX204", "5", "planned", "10"):
        spout.check_plan(metadata)
