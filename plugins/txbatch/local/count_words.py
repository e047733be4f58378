"""The demo's independent count: plain Python over the files of a folder, without txbatch, Spark or PostgreSQL.

Run by path in a process of its own: `python -I count_words.py FOLDER [PATTERN]`. Prints words with their counts in JSON.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path


def count_words(folder: Path, pattern: str) -> Counter[str]:
    """Count words of ASCII letters and apostrophes in the lower-cased lines of all files."""
    counts: Counter[str] = Counter()
    for file in folder.glob(pattern):
        for line in file.read_text(encoding="utf-8").splitlines():
            counts.update(re.findall("[a-z']+", line.lower()))
    return counts


if __name__ == "__main__":
    print(json.dumps(count_words(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "*")))
