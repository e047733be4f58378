"""Docstrings, messages and comments name things again instead of pointing at them: CONTRIBUTING, *Plain English*.

A word that points (it, that, those, what, ...) makes a reader look for what it points at. The share of such words is
held against two figures: no sentence has more than a quarter, and all sentences together have no more than a mean that
only falls.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "plugins"
MODULES = sorted(PLUGINS.rglob("*.py"))
POINTING = frozenset(
    [
        "it",
        "its",
        "they",
        "them",
        "that",
        "those",
        "these",
        "this",
        "one",
        "ones",
        "other",
        "others",
        "what",
        "which",
        "who",
        "whose",
        "so",
        "such",
        "as",
        "there",
        "else",
        "otherwise",
    ]
)
# Shorter sentences have too few words for a share.
WORDS_MIN = 9
SENTENCE_MAX = 0.25
# These only fall: PyIceberg's docstrings have 0.039, procrastinate 0.054, SQLMesh 0.060 by the same count.
MEAN_MAX = {"docstrings": 0.04, "texts": 0.086, "comments": 0.07}
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n|(?<=:)\n")
# The parts of a message are separate thoughts.
_PART_END = re.compile(r"(?<=[.!?;])\s+|\n\s*\n|(?<=:)\n")
_CODE = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|MERGE|DROP|GRANT|FROM|WHERE|JOIN|RETURNS|BEGIN|AS)\b|::"
)
_COMMENT = re.compile(r"COMMENT ON ([^';]+?) IS\s+'((?:[^']|'')*)'")
# What a checkout has and an installed package has not.
_OF_A_CHECKOUT = re.compile(r"\b(?:docs|sql|tests|bench)/")
Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Sentence:
    """A sentence with its place, its number of words and how many of the words point."""

    place: str
    text: str
    words: int
    pointing: int

    @property
    def share(self) -> float:
        return self.pointing / self.words


def measured(place: str, prose: str, end: re.Pattern[str] = _PART_END) -> Iterator[Sentence]:
    """Yield the sentences of a text that are long enough for a share."""
    for sentence in end.split(prose):
        words = re.findall(r"[A-Za-z']+", re.sub(r"`[^`]*`", "", sentence.lower()))
        if len(words) >= WORDS_MIN:
            yield Sentence(place, " ".join(sentence.split()), len(words), sum(word in POINTING for word in words))


def docstrings(path: Path = PLUGINS) -> list[Sentence]:
    """Return the sentences of the docstrings of all modules below a folder, or of one module, without examples."""
    return [each for module in ([path] if path.is_file() else MODULES) for each in _docstrings(module)]


def _docstrings(path: Path) -> Iterator[Sentence]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, Definition):
            lines = (ast.get_docstring(node) or "").splitlines()
            prose = "\n".join(line for line in lines if not line.startswith((">>>", "...", "    ")))
            place = f"{path.relative_to(PLUGINS)}:{getattr(node, 'lineno', 1)}"
            yield from measured(place, prose, _SENTENCE_END)


def text_of(node: ast.AST) -> str | None:
    """Return the text of an expression, each value in a text as the word `name`; None for an expression without text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join((text_of(each) or "") if isinstance(each, ast.Constant) else "name" for each in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = text_of(left), text_of(right)
            return None if parts == (None, None) else "".join("name" if part is None else part for part in parts)
    return None


def literals(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of all texts in code that are no docstrings: messages, help, pages of DAGs, forms, notes."""
    text = text_of(node)
    if text is not None:
        yield getattr(node, "lineno", 1), text
    for child in ast.iter_child_nodes(node):
        docstring = isinstance(node, Definition) and isinstance(child, ast.Expr) and text_of(child.value) is not None
        if not docstring and (text is None or isinstance(child, ast.FormattedValue)):
            yield from literals(child)


def texts() -> list[tuple[str, str]]:
    """Return place and text of each message, help text, page, form and note; SQL is none."""
    return [
        (f"{path.relative_to(PLUGINS)}:{line}", text)
        for path in MODULES
        for line, text in literals(ast.parse(path.read_text(encoding="utf-8")))
        if not _CODE.search(text)
    ]


def comments() -> list[tuple[str, str]]:
    """Return name and text of each comment in the schema of the ledger and in the migrations of warehouses."""
    files = [ROOT / "sql" / "schema.sql", *sorted((ROOT / "sql" / "warehouse").glob("*.sql"))]
    found: dict[str, tuple[str, str]] = {}
    for path in files:
        for name, text in _COMMENT.findall(path.read_text(encoding="utf-8")):
            found[f"{path.parent.name} {name}"] = (f"{path.name}, {name}", text.replace("''", "'"))
    return list(found.values())


FOUND = {
    "docstrings": docstrings(),
    "texts": [each for place, text in texts() for each in measured(place, text)],
    "comments": [each for place, text in comments() for each in measured(place, text)],
}


def mean(of: list[Sentence]) -> float:
    """Return the share of pointing words in all sentences together."""
    return sum(each.pointing for each in of) / max(sum(each.words for each in of), 1)


@pytest.mark.parametrize("kind", FOUND)
def test_no_sentence_has_more_than_a_quarter_of_words_that_point(kind: str) -> None:
    assert [f"{each.place}: {each.text}" for each in FOUND[kind] if each.share > SENTENCE_MAX] == []


@pytest.mark.parametrize("kind", FOUND)
def test_few_words_point(kind: str) -> None:
    assert mean(FOUND[kind]) <= MEAN_MAX[kind]


def test_no_text_names_a_file_that_an_installed_package_lacks() -> None:
    """`txbatch explain CODE` prints the page of an error, offline."""
    assert [f"{place}: {text}" for place, text in texts() if _OF_A_CHECKOUT.search(text)] == []
