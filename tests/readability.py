"""How a page reads: lengths of sentences, marks, words to the reader, words that point at no one, examples.

`python tests/readability.py` prints the figures of all pages.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The words of the protocol, decisions and what is generated keep their own voice.
LEFT_OUT = ("docs/rules.md", "docs/errors.md", "docs/adr/", "docs/reference/")
# The most that a page may have; shares in per cent, counts for each thousand words.
MOST = {
    "words a sentence": 15.0,
    "sentences over 25 words": 10.0,
    "sentences over 35 words": 1.0,
    "marks": 75.0,
    "who": 0.5,
    "saying": 3.0,
    "words": 2500.0,
}
# The least, of pages that lead a reader through a task.
LEAST = {"you": 10.0, "code blocks": 10.0}
TASKS = ("README.md", "docs/tutorial/", "docs/build/", "docs/run/")

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}.*\n)(?: {4}.*\n|\n(?= {4}))*", re.MULTILINE)
_NO_PROSE = re.compile(r"<!--[\s\S]*?-->|^\|.*$|^#.*$|!\[[^\]]*\]\([^)]*\)", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`[^`]*`")
_PARAGRAPH = re.compile(r"\n\s*\n|^\s*(?:[-*]|\d+\.)\s+", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])[\"')*]*\s+")
_WORD = re.compile(r"[^\W_][\w'.-]*")
_YOU = re.compile(r"\b(?:you|your|yours|yourself)\b", re.IGNORECASE)
_WHO = re.compile(r"\b(?:who|whoever|whatever|whose|whom)\b", re.IGNORECASE)
_SAYING = re.compile(
    r"\b(?:say|says|said|saying|tell|tells|told|know|knows|known|ask|asks|asked|guess|guesses|hear|hears|heard)\b",
    re.IGNORECASE,
)


def sentences(text: str) -> list[str]:
    """Return the sentences of a page, without code, tables, headings and pictures. Code within a sentence is one word."""
    bare = _INDENTED.sub("\n", _FENCED.sub("\n", text))
    bare = _CODE.sub(" x ", _LINK.sub(r"\1", _NO_PROSE.sub("", bare)))
    paragraphs = [each for each in _PARAGRAPH.split(bare) if set(_WORD.findall(each)) - {"x"}]
    split = (each for paragraph in paragraphs for each in _SENTENCE.split(paragraph))
    return [" ".join(each.split()) for each in split if _WORD.search(each)]


def code_blocks(text: str) -> int:
    """Return how many blocks of code a page has."""
    return len(_FENCED.findall(text)) + len(_INDENTED.findall(_FENCED.sub("\n", text)))


def measure(text: str) -> dict[str, float]:
    """Return the figures of a page, by the names of `MOST` and `LEAST`."""
    found = sentences(text)
    lengths = [len(_WORD.findall(each)) for each in found]
    words, prose = max(sum(lengths), 1), " ".join(found)
    counts = {
        "marks": len(re.findall("[,;:]", prose)),
        "who": len(_WHO.findall(prose)),
        "saying": len(_SAYING.findall(prose)),
        "you": len(_YOU.findall(prose)),
        "code blocks": code_blocks(text),
    }
    return {
        "words a sentence": round(words / max(len(lengths), 1), 1),
        "sentences over 25 words": share(lengths, 25),
        "sentences over 35 words": share(lengths, 35),
        **{name: round(1000 * count / words, 1) for name, count in counts.items()},
        "words": float(words),
    }


def share(lengths: list[int], limit: int) -> float:
    """Return the per cent of lengths above a limit."""
    return round(100 * sum(each > limit for each in lengths) / max(len(lengths), 1), 1)


def missed(page: str, figures: dict[str, float]) -> dict[str, float]:
    """Return the figures of a page that miss their targets."""
    over = {name: figures[name] for name, most in MOST.items() if figures[name] > most}
    if not page.startswith(TASKS):
        return over
    return over | {name: figures[name] for name, least in LEAST.items() if figures[name] < least}


def pages() -> dict[str, str]:
    """Return the pages that are written by hand, by path."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    named = {file.relative_to(ROOT).as_posix(): file for file in found}
    return {page: file.read_text(encoding="utf-8") for page, file in named.items() if not page.startswith(LEFT_OUT)}


def main() -> None:
    """Print the figures."""
    figures = {page: measure(text) for page, text in pages().items()}
    names = (*MOST, *LEAST)
    print("".join(f"{name:>25}" for name in names))
    for page, found in figures.items():
        print("".join(f"{found[name]:>25}" for name in names), page)


if __name__ == "__main__":
    main()
