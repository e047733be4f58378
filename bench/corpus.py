"""Text by seed: words of eight characters in lines of twelve, frequent words and rare ones, a million of them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.extras import HOME

WORDS, KNOWN = 1_000_000, 500_000  # distinct words of the text, and how many of them the state has before
LINE, WORD_BYTES = 12, 9
FILES, LINES_PER_FILE = 8, int(os.environ.get("BENCH_LINES", "1165000"))
TOTAL = FILES * LINES_PER_FILE * LINE  # 112 M words
SIZE = f"{WORD_BYTES * TOTAL / 1e9:.2g} GB"  # 1 GB, unless it is a rough try
MIXED = 7919  # coprime to WORDS: frequent words are among those of the state as among the new ones
FOLDER = HOME / f"text-{FILES}x{LINES_PER_FILE}"
BEFORE = "before.txt"


def ensure() -> None:
    """Write the text, and the file whose words are the state before it, unless both are there."""
    if FOLDER.exists():
        return
    new = FOLDER.with_suffix(".new")
    new.mkdir(parents=True, exist_ok=True)
    seen = np.zeros(WORDS, bool)
    for number in range(FILES):
        drawn = (WORDS * np.random.default_rng(number).random(LINES_PER_FILE * LINE) ** 2).astype(np.int64)
        numbers = drawn * MIXED % WORDS
        seen[numbers] = True
        _write(new / f"text-{number}.txt", numbers)
    _write(new / BEFORE, np.arange(WORDS - KNOWN, 2 * WORDS - KNOWN))
    (new / "new").write_text(str(seen[: WORDS - KNOWN].sum()))
    new.rename(FOLDER)


def words_after() -> int:
    """How many words the state has in the end."""
    return WORDS + int((FOLDER / "new").read_text())


def _write(path: Path, numbers: npt.NDArray[np.int64]) -> None:
    """Words as bytes: w, seven digits, and what stands behind."""
    lines = np.empty((len(numbers), WORD_BYTES), np.uint8)
    lines[:, 0] = ord("w")
    for digit in range(7):
        lines[:, 7 - digit] = ord("0") + numbers // 10**digit % 10
    lines[:, 8] = ord(" ")
    lines[LINE - 1 :: LINE, 8] = ord("\n")
    lines[-1, 8] = ord("\n")
    path.write_bytes(lines.tobytes())
