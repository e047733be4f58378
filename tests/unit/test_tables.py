"""Tables for people, made once for every command and both demos."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from txbatch.tables import lines_of, plain

ROWS: list[dict[str, Any]] = [
    {"txid": 7, "run": "airflow:words:a", "began": None, "took": timedelta(seconds=3.4)},
    {"txid": 12, "run": "cli:b", "began": None, "took": None},
]


def test_columns_without_a_value_are_left_out_and_numbers_stand_to_the_right() -> None:
    assert lines_of(ROWS) == ["txid  run              took", "   7  airflow:words:a  0:00:03", "  12  cli:b"]


def test_the_head_stands_out() -> None:
    assert lines_of(ROWS, ["txid"], head=str.upper) == ["TXID", "   7", "  12"]


def test_where_nothing_fits_a_row_is_a_block_of_lines() -> None:
    assert lines_of(ROWS, width=8)[:4] == ["txid  7", "run   airflow:words:a", "took  0:00:03", ""]


def test_a_cell_is_one_line_without_what_moves_a_terminal() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
    assert [plain(each) for each in (None, moment, ["a", 1], {"k": True}, [{"a": 1, "b": "x"}, {"a": None}])] == [
        "",
        "2026-01-02 03:04:05",
        "a, 1",
        "k True",
        "(a 1, b x), (a )",
    ]
    assert "\n" not in plain("a\nb")
    assert "\x1b" not in plain("\x1b[2J")
