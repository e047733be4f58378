"""`python -m bench.compare OLD NEW`: two results side by side, ratio by ratio."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.results import FOLDER


def main() -> int:
    """Compare two results; without names the last two that were kept."""
    paths = [Path(each) for each in sys.argv[1:]] or sorted(FOLDER.glob("*.json"))[-2:]
    if len(paths) != 2:
        print("bench-compare: give two files of bench/results, or keep two by `make bench`", file=sys.stderr)
        return 2
    old, new = (json.loads(path.read_text()) for path in paths)
    before, after = (
        {f["name"]: f["ratio"] for section in each["sections"].values() for f in section["figures"]}
        for each in (old, new)
    )
    shown = Table("figure", paths[0].stem, paths[1].stem, "change")
    for name in {**before, **after}:
        one, two = before.get(name), after.get(name)
        change = f"{100 * (two / one - 1):+.0f} %" if one and two else ""
        shown.add_row(name, _number(one), _number(two), change)
    Console().print(shown)
    return 0


def _number(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


if __name__ == "__main__":
    sys.exit(main())
