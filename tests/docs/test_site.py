"""The site that `make docs` builds: strict, whole without a network, and searched by code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from docs import conf

from txbatch.error_pages import read_pages

ROOT = Path(__file__).parents[2]
# Attributes by which a page loads something; `href` of an `a` is for the reader to follow.
LOADS = {"src", "srcset", "data", "poster", "href"}
ELSEWHERE = re.compile(r"^\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
STYLED = re.compile(r"""(?:@import\s+|url\()\s*["']?\s*((?:https?:)?//[^"')]+)""")


class Loads(HTMLParser):
    """The addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value for name, value in attrs if value and name in LOADS - ({"href"} if tag == "a" else set())]


def loaded_elsewhere(page: str) -> list[str]:
    """Return what a page loads from another host."""
    found = Loads()
    found.feed(page)
    return [each for each in found.loaded if ELSEWHERE.match(each)] + STYLED.findall(page)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site, as `make docs` builds it."""
    recipe = re.search(r"^docs: .*\n\t(?:\$\(PY\)) (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    folder = tmp_path_factory.mktemp("site")
    words = (
        recipe[1].replace(".txbatch/site-trees", str(folder / "trees")).replace(".txbatch/site", str(folder / "html"))
    )
    done = subprocess.run([sys.executable, *words.split()], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "html"


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://cdn.example.org/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example.org/x.css">',
        '<img alt="" src="HTTP://example.org/x.png">',
        "<style>@import 'https://example.org/x.css';</style>",
        '<p style="background: url(//example.org/x.png)"></p>',
    ],
)
def test_what_is_loaded_from_another_host_is_found(page: str) -> None:
    assert len(loaded_elsewhere(page)) == 1


def test_a_link_to_another_host_loads_nothing() -> None:
    assert loaded_elsewhere('<a href="https://example.org/">x</a><img src="../_images/x.svg">') == []


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    assert {page.name: found for page in pages if (found := loaded_elsewhere(page.read_text(encoding="utf-8")))} == {}


def test_no_style_and_no_picture_of_the_site_loads_anything_from_another_host(site: Path) -> None:
    files = [*site.rglob("*.css"), *site.rglob("*.svg")]
    found = {file.name: STYLED.findall(file.read_text(encoding="utf-8")) for file in files}
    assert {name: addresses for name, addresses in found.items() if addresses} == {}


def test_each_page_of_the_documentation_is_in_the_site_and_in_a_list_of_pages(site: Path) -> None:
    """Sphinx warns of a page that is in no list, and a warning is an error."""
    pages = {file.relative_to(ROOT).with_suffix(".html") for file in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not (site / page).is_file()} == set()
    assert {"toc.not_included", "toc"}.isdisjoint(conf.suppress_warnings)


def test_a_link_to_a_folder_becomes_words_and_other_links_stay(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    text = "[a](folder/) [b](folder) [c](page.md) [d](page.md#x) [e](https://example.org/) ![f](folder)"
    told = "a b [c](page.md) [d](page.md#x) [e](https://example.org/) ![f](folder)"
    assert conf.without_folders(text, tmp_path) == told


def test_a_glob_of_a_list_that_matches_no_page_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "upgrade.md").touch()
    text = "```{toctree}\n:glob:\n\nrun/index*\nrun/*\nbuild/*\njobs\n```\n\n* a list\n"
    told = "```{toctree}\n:glob:\n\nrun/*\njobs\n```\n\n* a list\n"
    assert conf.without_empty_globs(text, tmp_path) == told


def test_each_code_stands_below_its_area_with_an_anchor_and_an_entry_of_the_index() -> None:
    assert conf.with_codes(
        "# Errors\n\n# Kinds\n\n## TX001 TerminalError (no retry helps)\n\nText.\n"
    ).splitlines() == [
        "# Errors",
        "",
        "## Kinds",
        "",
        "(tx001)=",
        "### TX001 TerminalError (no retry helps)",
        "",
        "```{index} ! TX001, ! TerminalError",
        "```",
        "",
        "Text.",
    ]


def test_the_search_finds_each_code_with_its_place(site: Path) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    errors = (site / "docs" / "errors.html").read_text(encoding="utf-8")
    entries = json.loads(index.removeprefix("Search.setIndex(").rstrip().removesuffix(")"))["indexentries"]
    assert [code for code in read_pages() if code.lower() not in {each.lower() for each in entries}] == []
    assert [code for code in read_pages() if f'id="{code.lower()}"' not in errors] == []


def test_a_link_to_a_file_of_the_checkout_leads_to_a_copy(site: Path) -> None:
    page = (site / "docs" / "topology.html").read_text(encoding="utf-8")
    copies = re.findall(r'href="\.\./(_downloads/[^"]+/hourly\.py)"', page)
    assert copies
    assert (site / copies[0]).read_text() == (ROOT / "jobs" / "hourly.py").read_text()


def test_the_site_says_for_which_version_it_is(site: Path) -> None:
    from txbatch import __version__

    assert f"txbatch {__version__}" in (site / "docs" / "index.html").read_text(encoding="utf-8")
