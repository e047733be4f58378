"""Which files differ from what was counted."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from txbatch.core.batch.planned_files import PlannedFiles, difference
from txbatch.core.batch.transaction import Interval
from txbatch.core.protocol.lookback import LatePosition
from txbatch.formats import changes
from txbatch.formats.changes import Looks, changed, differs_since, look, planned

DAY = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
FILES = {"spout": "FileSpout", "kind": "transactional", "pattern": "*"}
INTERVALS = {"spout": "IntervalSpout", "kind": "transactional", "time": "at"}


@pytest.mark.parametrize(
    ("counted", "now", "says"),
    [
        (5, [5, 1], None),
        ([5, None], [5, 1], None),
        ([5, 1], [5, 1], None),
        ([0, 1], [0, 2], "replaced or touched"),
        ([5, 1], [5, 2], "replaced or touched: as long as before, but changed later"),
        ([5, 1], [1_006, 2], "grown from 5 to 1,006 bytes"),
        (5, [4, 2], "replaced: 5 bytes before, now 4"),
        ([0, 1], [4, 2], "filled: it was empty when it was listed, now 4 bytes"),
        ([5, 1], None, "gone"),
    ],
)
def test_a_file_and_what_a_plan_says_of_it(counted: Any, now: Any, says: str | None) -> None:
    found = difference(counted, now)
    assert found == says or (says and found and found.startswith(says))


def of(root: Path, source: dict[str, str], files: dict[str, Any], **more: Any) -> PlannedFiles:
    return PlannedFiles("t", "in", {**source, "root": str(root)}, files, **more)


def told(*counted: PlannedFiles) -> dict[str, str]:
    return {row["file"]: row["change"].split(":")[0].split(" from")[0] for row in changed(counted)}


def test_files_that_were_read_once(tmp_path: Path) -> None:
    for name in ("same", "grown", "shorter", "touched", "new"):
        (tmp_path / name).write_text("line\n")
    (tmp_path / "empty").touch()
    counted = {name: look(tmp_path / name) for name in ("same", "grown", "shorter", "touched")} | {"gone": [5, 1]}
    (tmp_path / "grown").write_text("line\nmore\n")
    (tmp_path / "shorter").write_text("l\n")
    os.utime(tmp_path / "touched", ns=(1, 1))
    assert told(of(tmp_path, FILES, counted)) == {
        "grown": "grown",
        "shorter": "replaced",
        "touched": "replaced or touched",
        "gone": "gone",
        "empty": "empty",
    }
    assert told(of(tmp_path / "away", FILES, counted)) == {str(tmp_path / "away"): "not there"}


def test_what_a_later_plan_knows_is_told_with_its_txid(tmp_path: Path) -> None:
    """It read the file for another interval: whether the first one has other records now, nobody has looked."""
    (tmp_path / "a").write_text("line\n")
    now = datetime.now(UTC)
    known = {"a": look(tmp_path / "a"), "b": [1, 1]}
    first = of(tmp_path, INTERVALS, known, txid=1, interval=DAY, planned_at=now)
    (tmp_path / "a").write_text("line\nlate\n")
    second = of(tmp_path, INTERVALS, {"a": look(tmp_path / "a")}, txid=2, interval=DAY, planned_at=now)
    rows = [
        {"topology": "t", "stream": "in", "file": "a", "change": "grown from 5 to 10 bytes", "txid": 1},
        {"topology": "t", "stream": "in", "file": "b", "change": "gone", "txid": 1},
    ]
    assert list(changed([second, first])) == [{**row, "seen_by": 2} for row in rows]
    assert list(changed([first])) == [{**row, "seen_by": None} for row in rows]
    (tmp_path / "a").write_text("line\nlate\nlater\n")
    again = list(changed([second, first]))
    assert [(row["file"], row["txid"], row["seen_by"]) for row in again] == [("a", 2, None), ("b", 1, 2)]


def test_what_a_restate_has_read_as_it_is_now_is_told_no_more(tmp_path: Path) -> None:
    """The plans come by position, newest first: what a restate has in the place of an old one is planned after others."""
    for name in "abc":
        (tmp_path / name).write_text("line\n")
    then = {name: look(tmp_path / name) for name in "abc"}
    (tmp_path / "a").write_text("mended\n")
    between = {name: look(tmp_path / name) for name in "abc"}
    (tmp_path / "b").write_text("mended\n")
    (tmp_path / "c").unlink()
    now = {name: look(tmp_path / name) for name in "ab"}
    third = of(tmp_path, INTERVALS, then, txid=3)
    second = of(tmp_path, INTERVALS, between, txid=5, restates=True)
    first = of(tmp_path, INTERVALS, now, txid=6, restates=True)
    assert list(changed([third, second, first])) == []
    assert told(third, second) == {"b": "grown", "c": "gone"}, "what is mended after a restate"
    (tmp_path / "a").write_text("once more\n")
    assert {row["file"]: row["txid"] for row in changed([third, second, first])} == {"a": 6}
    (tmp_path / "a").write_text("line\n")
    os.utime(tmp_path / "a", ns=(1, then["a"][1]))  # type: ignore[index]
    assert [row["txid"] for row in changed([third, second, first])] == [6], "what is older does not know it better"


def test_a_file_that_was_being_written_for_a_later_interval_was_to_grow(tmp_path: Path) -> None:
    """The batch of yesterday, planned on schedule, lists today's file as it was then."""
    (tmp_path / "today").write_text("line\nmore\n")
    written = int((DAY[1] + timedelta(minutes=4)).timestamp() * 1e9)
    on_schedule = of(
        tmp_path, INTERVALS, {"today": [5, written]}, txid=1, interval=DAY, planned_at=DAY[1] + timedelta(minutes=5)
    )
    newest = of(tmp_path, INTERVALS, {"today": look(tmp_path / "today")}, txid=2, interval=DAY)
    assert told(newest, on_schedule) == {}
    assert told(on_schedule) == {"today": "grown"}, "as of now, nobody knows"
    later = of(
        tmp_path, INTERVALS, {"today": [5, written]}, txid=1, interval=DAY, planned_at=DAY[1] + timedelta(days=2)
    )
    assert told(newest, later) == {"today": "grown"}


def test_looks_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "LOOKS_MAX", 2)
    rows = list(changed([of(tmp_path, INTERVALS, {name: [1, 1] for name in "abc"})]))
    assert [row["change"] for row in rows] == ["gone", "gone", "has more than 2 files: the others were not looked at"]


def test_each_file_is_read_once_for_all_late_positions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plan by time names each file: a history of ten thousand files and a hundred late days."""
    files, days = [f"{number}.csv" for number in range(20)], [DAY[0] + timedelta(days=number) for number in range(11)]
    for name in files:
        (tmp_path / name).write_text("line\n")
    counted = {name: planned(tmp_path / name) for name in files}
    spans = list(pairwise(days))
    plans = [of(tmp_path, INTERVALS, counted, txid=at, interval=span) for at, span in enumerate(spans, 1)]
    late = [
        LatePosition(at, Interval(*span), frozenset({"in"}), {files[-1]: 1}, 99) for at, span in enumerate(spans, 1)
    ]
    (tmp_path / files[0]).write_text("line\nmore\n")
    (tmp_path / files[1]).write_text("l\n")
    read, ending = list[Path](), changes._ending

    def noted(file: Path, size: int) -> int | None:
        read.append(file)
        return ending(file, size)

    monkeypatch.setattr(changes, "_ending", noted)
    looks = Looks(by=planned)
    told = [differs_since(plans, each, looks) for each in late]
    assert [each and each.split(";")[0] for each in told] == [f"{files[1]} is shorter since"] * 10
    assert len(read) <= 20 + 10, "the end of each file, and of one that grew as of each plan"
