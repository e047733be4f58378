"""The static files: no framework, no build, nothing that turns a text into markup, nothing from another host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[2] / "plugins" / "txbatch" / "ui" / "static"
FILES = sorted(path for path in STATIC.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
BYTES_MAX = 120_000
LINES_MAX = 250
# What makes markup, a style or code of a text.
MAKING = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc"
    r"|\beval\b|new Function|\bstyle=|\.style\b|cssText|\bon[a-z]+\s*=|javascript:|setTimeout\(['\"]"
)
HOST = re.compile(r"(?:[a-z]+:)?//[a-z0-9-]+\.[a-z]", re.IGNORECASE)
# The name of a language is no host that is asked.
NAMESPACE = "http://www.w3.org/2000/svg"
IMPORT = re.compile(r'^import .* from "(?P<name>[^"]+)";$', re.MULTILINE)


def name(path: Path) -> str:
    return path.relative_to(STATIC).as_posix()


def test_all_files_together_are_small() -> None:
    assert 0 < sum(path.stat().st_size for path in FILES) <= BYTES_MAX


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_text_becomes_markup_style_or_code(path: Path) -> None:
    assert MAKING.findall(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        'node.innerHTML = "x"',
        "<p onclick=go()>",
        '<p style="color: red">',
        "node.style.color = red",
        "eval(text)",
        "node.setAttribute('style=')",
        'location = "javascript:go()"',
    ],
)
def test_such_a_source_is_found(source: str) -> None:
    assert MAKING.search(source)


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_file_names_a_host(path: Path) -> None:
    assert HOST.findall(path.read_text(encoding="utf-8").replace(NAMESPACE, "")) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_a_script_has_one_idea_and_imports_what_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("// ")
    assert len(text.splitlines()) <= LINES_MAX
    for imported in IMPORT.findall(text):
        assert (path.parent / imported).resolve() in FILES


def test_every_script_is_reached_from_the_page() -> None:
    page = (STATIC / "page.html").read_text(encoding="utf-8")
    asked = [STATIC / each for each in re.findall(r'(?:src|href)="static/([^"]+)"', page)]
    found: set[Path] = set()
    while asked:
        path = asked.pop()
        if path not in found:
            found.add(path)
            asked += [(path.parent / each).resolve() for each in IMPORT.findall(path.read_text(encoding="utf-8"))]
    assert found == set(FILES) - {STATIC / "page.html"}


def test_the_page_holds_no_script_and_no_style_of_its_own() -> None:
    page = (STATIC / "page.html").read_text(encoding="utf-8")
    assert re.findall(r"<script[^>]*>([^<]*)</script>", page) == [""]
    assert "<style" not in page
