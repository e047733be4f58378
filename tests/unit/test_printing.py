"""Rows before and after, as the command line tells them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from txbatch.cli.differences import sides_told, values_told
from txbatch.cli.printing import _vanished, show_changed


def test_of_two_rows_the_values_that_differ_are_told() -> None:
    hashes = str(list(range(5_000)))
    example = {"stored": {"n": "1", "hashes": hashes}, "recomputed": {"n": "2", "hashes": hashes}}
    assert sides_told(example) == ("n=1", "n=2")


def test_a_row_that_only_one_side_has_is_told_in_whole() -> None:
    assert sides_told({"stored": {"n": "1", "best": None}, "recomputed": None}) == ("n=1, best=null", "nothing")


def test_a_long_value_is_cut_and_hides_no_other_one() -> None:
    told = values_told({"hashes": "7" * 30_000, "n": "1"})
    assert told.endswith("... (30,000 characters), n=1")
    assert len(told) < 300


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["a"], "partition a is listed no more"),
        ([*"ab"], "partitions a, b are listed no more"),
        ([*"abcdefg"], "partitions a, b, c, d, e and 2 more are listed no more"),
    ],
)
def test_partitions_that_are_listed_no_more_are_named(names: list[str], told: str) -> None:
    of = {"stream": "in", "partitions": names, "since": datetime(2026, 1, 2, tzinfo=UTC)}
    assert _vanished(of).startswith(f"of stream in, {told} since 2026-01-02")


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"change": "gone", "txid": None, "seen_by": None}, "  2.csv: gone\n"),
        (
            {"change": "gone", "txid": 4, "seen_by": None},
            "  2.csv: gone; txid 4 was the last batch to look at the file\n",
        ),
        ({"change": "appeared after txid 1 was planned", "txid": 1}, "  2.csv: appeared after txid 1 was planned\n"),
    ],
    ids=["read once", "by time", "new"],
)
def test_the_txid_beside_a_file_is_told_as_the_last_look(
    row: dict[str, object], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By time each batch looks at all files: the newest one is not the batch that counts the file's records."""
    show_changed("t", [{"topology": "t", "stream": "in", "file": "2.csv", **row}])
    assert capsys.readouterr().out.endswith(told)
