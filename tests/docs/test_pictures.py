"""The pictures of docs/explanation: as the script draws them, small, with a text alternative, and for light and dark."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pictures import FOLDER, Picture, Said, pictures

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = pictures()
# In Markdown: the text alternative, and the picture.
SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")


def shown(page: Path) -> list[tuple[str, Path]]:
    """Return the pictures of a page, each with its text alternative."""
    return [(text, (page.parent / file).resolve()) for text, file in SHOWN.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda each: each.name)
def test_a_picture_is_as_the_script_draws_it(picture: Picture) -> None:
    file = FOLDER / f"{picture.name}.svg"
    assert file.read_text(encoding="utf-8") == picture.svg(), "run .venv/bin/python tests/pictures.py"


@pytest.mark.parametrize("picture", PICTURES, ids=lambda each: each.name)
def test_a_picture_is_small_and_legible_in_light_and_dark(picture: Picture) -> None:
    drawn = picture.svg()
    assert len(drawn.splitlines()) < 150
    assert "prefers-color-scheme:dark" in drawn
    title = ElementTree.fromstring(drawn).find("{http://www.w3.org/2000/svg}title")
    assert title is not None
    assert title.text == picture.told
    assert [part for part in picture.parts if not part.fits()] == []
    wide = [part for part in picture.parts if isinstance(part, Said) and part.x + 7 * len(part.text) > picture.width]
    assert wide == []


@pytest.mark.parametrize("picture", PICTURES, ids=lambda each: each.name)
def test_a_picture_loads_and_runs_nothing(picture: Picture) -> None:
    drawn = picture.svg().replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|<script|<image|<use|href|@import|\bon\w+=", drawn)


def test_each_picture_is_on_a_page_with_what_it_shows_in_words() -> None:
    found = [each for page in DOCS.rglob("*.md") for each in shown(page)]
    assert [file.name for text, file in found if len(text.split()) < 4] == []
    told = {picture.name: picture.told for picture in PICTURES}
    assert {file.stem: text for text, file in found if file.stem in told} == told
