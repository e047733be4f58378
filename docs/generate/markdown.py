"""The parts of a generated page: its head, tables, and docstrings as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from inspect import cleandoc

NOTE = "<!-- written by `make docs-generate`: change the code, not this page -->"
_SPAN = re.compile(r"(`[^`]*`)")
# What would be markup outside of a span of code: a tag, an emphasis.
_SIGNS = re.compile(r"<|\*|(?<!\w)_")


def page(title: str, purpose: str, needs: str, lines: Iterable[str]) -> str:
    """Return a page: its title, two lines on purpose and needs, and the rest."""
    return "\n".join([f"# {title}", "", NOTE, "", purpose, needs, "", *lines]).rstrip("\n") + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield from (_row(head), f"|{'---|' * len(head)}")
    yield from map(_row, rows)
    yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(each.replace('|', chr(92) + '|').replace(chr(10), ' ') for each in cells)} |"


def block(language: str, text: str) -> Iterator[str]:
    """Yield the lines of a block of code."""
    yield from (f"```{language}", *text.splitlines(), "```", "")


def prose(text: str) -> str:
    """Return a docstring as Markdown: an example is a block, and a sign outside of a span of code stands for itself."""
    return "\n\n".join(map(_paragraph, cleandoc(text).split("\n\n")))


def _paragraph(text: str) -> str:
    if text.startswith(">>>"):
        return f"```pycon\n{text}\n```"
    return text if text.startswith("    ") else plain(text)


def plain(text: str) -> str:
    """Return a text in which signs outside of spans of code stand for themselves."""
    return "".join(each if each.startswith("`") else _SIGNS.sub(r"\\\g<0>", each) for each in _SPAN.split(text))
