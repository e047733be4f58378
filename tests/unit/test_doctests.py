"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[2] / "plugins"
MODULES = sorted(
    ".".join(path.relative_to(PLUGINS).with_suffix("").parts)
    for path in PLUGINS.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


def test_there_are_some() -> None:
    assert len(MODULES) >= 3


@pytest.mark.parametrize("name", MODULES)
def test_doctest(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted
    assert not found.failed
