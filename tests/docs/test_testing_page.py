"""The tests of docs/testing.md pass, as does the one that `txbatch init` copies; what the page names is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from txbatch import testing
from txbatch.testing.local import POINTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
COPIED = ROOT / "starter" / "tests" / "test_job.py"


def found(text: str, path: Path) -> list[tuple[str, Any]]:
    """The tests that a module defines."""
    names: dict[str, Any] = {"__file__": str(path)}
    exec(compile(text, path, "exec"), names)
    return [(name, each) for name, each in names.items() if name.startswith("test_")]


BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TESTS = [test for block in BLOCKS for test in found(block, ROOT / "docs" / "testing.md")]
TESTS += found(COPIED.read_text(encoding="utf-8"), COPIED)


def test_each_block_has_tests() -> None:
    assert len(BLOCKS) >= 3
    assert all("def test_" in block for block in BLOCKS)


@pytest.mark.parametrize(("name", "test"), TESTS, ids=[name for name, _ in TESTS])
def test_it_passes(name: str, test: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    test()


def test_the_page_names_all_of_it() -> None:
    for name in testing.__all__:
        assert f"`{name}" in PAGE or f"`{name}(" in PAGE, name
    named = re.findall(r"`(\w+\.\w+)`", PAGE.partition("A run dies,")[2].partition("Attempt 1")[0])
    assert tuple(named) == POINTS
