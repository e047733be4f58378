"""Each recipe and each page of the tutorial has its parts; what they say is run by tests/spark/test_pages.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from doc_pages import DOCS, RECIPES, TUTORIALS, blocks, commands

LINES_OF_DATA_MAX = 6


def test_the_index_leads_to_each_of_sixteen_recipes() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / "build" / "index.md").read_text(encoding="utf-8"))
    assert len(RECIPES) == 16
    assert sorted(listed) == [page.name for page in RECIPES]


@pytest.mark.parametrize("page", [*TUTORIALS, *RECIPES], ids=lambda page: page.stem)
def test_a_page_begins_with_what_comes_of_it_and_what_it_needs(page: Path) -> None:
    _, first, *_ = page.read_text(encoding="utf-8").split("\n\n")
    assert first.startswith("After this page ")
    assert "You need " in " ".join(page.read_text(encoding="utf-8").split("\n\n")[1:3]).replace("\n", " ")


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_a_recipe_has_its_parts(page: Path) -> None:
    headings = re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[-2:] == ["When not", "See also"]
    data = [block for block in blocks(page) if block.path and block.path.startswith("data/")]
    assert data
    assert max(len(block.text.splitlines()) for block in data) <= LINES_OF_DATA_MAX


@pytest.mark.parametrize("page", [*TUTORIALS, *RECIPES], ids=lambda page: page.stem)
def test_what_a_command_prints_is_shown(page: Path) -> None:
    """At least behind one command in each page; a command may print nothing."""
    shown = [block.text for block in blocks(page) if block.language == "console"]
    assert any(len(text.splitlines()) > sum(len(each.splitlines()) for each in commands(text)) for text in shown)
