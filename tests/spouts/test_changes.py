"""Which files differ from what was counted."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from txbatch.core.changes import Counted, difference
from txbatch.spouts import changes
from txbatch.spouts.changes import changed, look

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


def of(root: Path, source: dict[str, str], files: dict[str, Any], **more: Any) -> Counted:
    return Counted("t", "in", {**source, "root": str(root)}, files, **more)


def told(*counted: Counted) -> dict[str, str]:
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


def test_what_a_later_plan_knows_is_told_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("line\n")
    first = of(
        tmp_path,
        INTERVALS,
        {"a": look(tmp_path / "a"), "b": [1, 1]},
        txid=1,
        interval=DAY,
        planned_at=datetime.now(UTC),
    )
    (tmp_path / "a").write_text("line\nlate\n")
    second = of(tmp_path, INTERVALS, {"a": look(tmp_path / "a")}, txid=2, interval=DAY, planned_at=datetime.now(UTC))
    assert list(changed([second, first])) == [
        {"topology": "t", "stream": "in", "file": "a", "change": "grown from 5 to 10 bytes", "txid": 1},
        {"topology": "t", "stream": "in", "file": "b", "change": "gone", "txid": 1},
    ]


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
