"""Docstrings name things again instead of pointing at them: design of the words, CONTRIBUTING, *Plain English*.

A word that points (it, that, those, what, ...) makes a reader look for what it points at. The share of such words is
held against two figures: no sentence has more than a quarter, and all sentences together have no more than MEAN_MAX.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PLUGINS = Path(__file__).parents[2] / "plugins"
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
# It only falls: PyIceberg has 0.039, procrastinate 0.054, SQLMesh 0.060 by the same count.
MEAN_MAX = 0.08
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n|(?<=:)\n")


@dataclass(frozen=True)
class Sentence:
    """A sentence of a docstring, with its place, its number of words and how many of the words point."""

    place: str
    text: str
    words: int
    pointing: int

    @property
    def share(self) -> float:
        return self.pointing / self.words


def sentences(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of all docstrings of a module, without examples."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            prose = "\n".join(
                line
                for line in (ast.get_docstring(node) or "").splitlines()
                if not line.startswith((">>>", "...", "    "))
            )
            for sentence in _SENTENCE_END.split(prose):
                words = re.findall(r"[A-Za-z']+", re.sub(r"`[^`]*`", "", sentence.lower()))
                if len(words) >= WORDS_MIN:
                    place = f"{path.relative_to(PLUGINS)}:{getattr(node, 'lineno', 1)}"
                    yield Sentence(
                        place, " ".join(sentence.split()), len(words), sum(word in POINTING for word in words)
                    )


def found(root: Path = PLUGINS) -> list[Sentence]:
    """Return the sentences of all modules below a folder, or of one module."""
    paths = [root] if root.is_file() else sorted(root.rglob("*.py"))
    return [sentence for path in paths for sentence in sentences(path)]


def mean(of: list[Sentence]) -> float:
    """Return the share of pointing words in all sentences together."""
    return sum(each.pointing for each in of) / max(sum(each.words for each in of), 1)


def test_no_sentence_has_more_than_a_quarter_of_words_that_point() -> None:
    assert [f"{each.place}: {each.text}" for each in found() if each.share > SENTENCE_MAX] == []


def test_few_words_of_docstrings_point() -> None:
    assert mean(found()) <= MEAN_MAX
