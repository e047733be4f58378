"""docs/run/buttons.md: each row names a test that is collected, and each test of buttons has a row."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "run" / "buttons.md"
BUTTONS = ("test_buttons.py", "test_killed_processes.py", "test_more_buttons.py")
NAMED = re.compile(r"\[`(test_\w+)`\]\(([^)]+)\)")


def rows() -> list[list[str]]:
    """The cells of each row, without the two lines of the heading."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines[1:]]


def named(row: list[str]) -> tuple[str, Path]:
    """The test that holds a row, and its module."""
    found = NAMED.fullmatch(row[-1])
    assert found, row[0]
    return found[1], (PAGE.parent / found[2]).resolve()


def collected_of(module: Path) -> set[str]:
    """The tests of a module that pytest collects."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    assert module.match("tests/*/test_*.py")
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_row_says_all_and_names_a_test_that_is_collected(row: list[str]) -> None:
    assert len(row) == 6
    assert all(row)
    test, module = named(row)
    assert test in collected_of(module)


@pytest.mark.parametrize("module", BUTTONS)
def test_each_test_of_buttons_has_a_row(module: str) -> None:
    file = ROOT / "tests" / "airflow" / module
    assert collected_of(file) - {test for test, of in map(named, rows()) if of == file} == set()
