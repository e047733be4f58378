"""What `txbatch why` shows of a key's versions, and how much work that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, overload

import pytest

from txbatch.cli.reading.why import show_why

AT = datetime(2026, 1, 1, tzinfo=UTC)


class Versions(Sequence[dict[str, Any]]):
    """Versions of a key that count how often one of them is looked at."""

    def __init__(self, versions: Sequence[dict[str, Any]]) -> None:
        self.versions, self.looks = versions, 0

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[dict[str, Any]]: ...
    def __getitem__(self, at: int | slice) -> Any:
        found = self.versions[at]
        self.looks += len(found) if isinstance(at, slice) else 1
        return found

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for version in self.versions:
            self.looks += 1
            yield version

    def __len__(self) -> int:
        return len(self.versions)


def version(position: int, txid: int, replaced_by: int | None = None) -> dict[str, Any]:
    of = {
        "position": position,
        "txid": txid,
        "replaced_by": replaced_by,
        "values": {"count": 1},
        "counts": not replaced_by,
    }
    by = {"attempt": f"{txid}:1", "dag_id": None, "run_id": None, "run": "r", "committed_at": AT, "reads": ["a.txt"]}
    return of | by | {"interval_start": None, "interval_end": None, "reason": None, "requested_by": None}


def told(versions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    values = {"count": sum(each["counts"] for each in versions)}
    return [{"state": "s", "key": {"k": "a"}, "values": values, "txid": 9, "versions": versions, "equal": True}]


def test_why_looks_at_each_version_a_few_times_however_many_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    versions = Versions([version(number, number) for number in range(1, 1_001)])
    show_why(told(versions))
    assert capsys.readouterr().out.count("position") == 1_000
    assert versions.looks <= 4 * len(versions)


def test_why_shows_the_newest_positions_and_says_how_many_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show_why(told([version(1, 1, 4), version(1, 4), version(2, 2), version(3, 3)]), limit=2)
    head, earlier, second, _, _, third, *_, last = capsys.readouterr().out.splitlines()
    assert head == "s a: count 3, changed last by txid 9"
    assert earlier == "  1 earlier position is not shown: --limit, --json, or report.why_<state> in SQL"
    assert (second, third) == ("  position 2: count 1", "  position 3: count 1")
    assert last == "  3 contributions amount to the value"
