"""The pages for operators, and the explanations: each begins with what it is for, and its tables are short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
# Lists of facts, with a form of their own.
LISTS = {"buttons.md", "upgrade.md", "versions.md"}
PAGES = sorted(page for room in ("run", "explanation") for page in (DOCS / room).glob("*.md") if page.name not in LISTS)
CELL_WORDS_MAX = 12
# Until each button has its own page, its table is as it was.
BUTTONS = re.compile(r"<!-- buttons -->.*?<!-- end of buttons -->", re.DOTALL)
ROW = re.compile(r"^\|(.*)\|$", re.MULTILINE)
# A link, and what is in backquotes, is a word.
LINK, CODE = re.compile(r"\[([^\]]*)\]\([^)]*\)"), re.compile(r"`[^`]*`")


def long_cells(page: str) -> list[str]:
    """Return the cells of tables with too many words."""
    rows = ROW.findall(CODE.sub("code", LINK.sub(r"\1", BUTTONS.sub("", page))))
    return [cell for row in rows for cell in row.split(" | ") if len(re.findall(r"\w[\w'.-]*", cell)) > CELL_WORDS_MAX]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_a_page_begins_with_what_you_can_do_after_it_and_what_you_need(page: Path) -> None:
    title, empty, after, need, *_ = page.read_text(encoding="utf-8").splitlines()
    assert (title[:2], empty) == ("# ", "")
    assert after.startswith("After this page you ")
    assert need.startswith("You need ")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_a_cell_of_a_table_is_no_paragraph(page: Path) -> None:
    assert long_cells(page.read_text(encoding="utf-8")) == []


def test_a_long_cell_is_found() -> None:
    assert long_cells("| a | one two three four five six seven eight nine ten eleven twelve 13 |\n|---|---|") != []
    assert long_cells("| [a b](c d e.md) | `f g h i j k l m n o p q r s` |") == []


def test_the_page_for_nights_fits_a_screen() -> None:
    """The table of symptoms, with the lines above it."""
    page = (DOCS / "run" / "on-call.md").read_text(encoding="utf-8")
    screen, _, _ = page.partition("**Nothing you do here")
    assert 20 < len(screen.splitlines()) <= 40
    anchors = re.findall(r"\]\(#([a-z0-9-]+)\)", page)
    headings = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in re.findall(r"^#+ (.*)$", page, re.M)}
    assert anchors
    assert [each for each in anchors if each not in headings] == []


def test_the_faq_has_twenty_questions() -> None:
    page = (DOCS / "explanation" / "faq.md").read_text(encoding="utf-8")
    questions = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert (len(questions), {question[-1] for question in questions}) == (20, {"?"})
