"""Sphinx's settings for the site: the Markdown of docs/, strict, and whole without a network. `make docs` builds the site.

The folder that Sphinx reads is the checkout, so that a link leads where the link leads in the repository.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(([^)#\s]+)\)")
_GLOB = re.compile(r"^([\w./-]*\*)\n", re.MULTILINE)
_HEADING = re.compile(r"^(##? )", re.MULTILINE)
_CODE = re.compile(r"^### (TX\d{3}) (\w+).*$", re.MULTILINE)
ORPHAN = "---\norphan: true\n---\n\n"

project = "txbatch"
author = "the txbatch contributors"
project_copyright = f"{author}, Apache License 2.0"
(release,) = _VERSION.findall((ROOT / "plugins" / "txbatch" / "__init__.py").read_text(encoding="utf-8"))
version = release

extensions = ["myst_parser"]
root_doc = "docs/index"
source_suffix = {".md": "markdown"}
include_patterns = ["docs/**", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
exclude_patterns = [".*", "bench", "bin", "dags", "dist", "docker", "jobs", "plugins", "sql", "starter", "tests"]
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
highlight_language = "none"
smartquotes = False
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"txbatch {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_extra"]
html_copy_source = False
html_show_sourcelink = False


def adapt(app: Sphinx, docname: str, source: list[str]) -> None:
    """Change the text of a page where the site differs from the repository; a handler of Sphinx's event `source-read`."""
    folder = (ROOT / docname).parent
    text = without_empty_globs(without_folders(source[0], folder), folder)
    if docname == "README":
        text = ORPHAN + text
    if docname == "docs/errors":
        text = with_codes(text)
    source[0] = text


def without_folders(text: str, folder: Path) -> str:
    """Return a page without its links to folders, of which the site has no page; the words of the links stay."""

    def linked(found: re.Match[str]) -> str:
        return found[1] if "://" not in found[2] and (folder / found[2]).is_dir() else found[0]

    return _LINK.sub(linked, text)


def without_empty_globs(text: str, folder: Path) -> str:
    """Return a page without the globs of its lists that match no page: pages come and go without an edit of the lists."""
    return _GLOB.sub(lambda found: found[0] if any(folder.glob(f"{found[1]}.md")) else "", text)


def with_codes(text: str) -> str:
    """Return the page of errors with the codes below their areas. Each code has an anchor and an entry of the index.

    `errors.html#tx402` is the anchor. The search of the site finds entries of the index, with their anchors.
    """
    title, _, rest = text.partition("\n")
    below = _HEADING.sub(r"#\1", rest)
    return f"{title}\n" + _CODE.sub(
        lambda of: f"({of[1].lower()})=\n{of[0]}\n\n```{{index}} ! {of[1]}, ! {of[2]}\n```", below
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the handler. Sphinx calls this function."""
    app.connect("source-read", adapt)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
