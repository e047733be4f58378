"""`python -m bench`: measure, keep, show."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench import cold_start, commit, growth, ledger, measure, memory, plan, show, words, year
from bench.results import FOLDER, Results

SECTIONS: dict[str, Callable[[str, Results], None]] = {
    **commit.SECTIONS,
    **growth.SECTIONS,
    **ledger.SECTIONS,
    **cold_start.SECTIONS,
    **words.SECTIONS,
    **plan.SECTIONS,
    **year.SECTIONS,
    **memory.SECTIONS,
}
QUICK = ("commit 100 k", "cold start")  # under three minutes
CURRENT = FOLDER / ".current.json"


def main() -> int:
    """Run the sections that are not there yet; a whole run is kept under its date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the short sections alone, kept nowhere")
    parser.add_argument("--only", action="append", choices=sorted(SECTIONS), help="this section; may be given again")
    parser.add_argument("--afresh", action="store_true", help="forget what an interrupted run measured")
    parser.add_argument("--once", action="store_true", help="every contestant once: rough, with --only")
    asked = parser.parse_args()
    names = QUICK if asked.quick else asked.only or list(SECTIONS)
    if asked.once:
        measure.REPEATS.clear()
    path = FOLDER / ".quick.json" if asked.quick or asked.only else CURRENT
    if asked.afresh or path != CURRENT:
        path.unlink(missing_ok=True)
    results = Results(path)
    for name in names:
        if results.has(name):
            print(f"{name}: measured before the interruption", flush=True)
            continue
        print(f"{name}:", flush=True)
        SECTIONS[name](name, results)
    show.table(results.content)
    if path == CURRENT:
        _keep(results)
    return 0


def _keep(results: Results) -> None:
    stem = FOLDER / f"{datetime.now(UTC):%Y-%m-%d}-{results.content['commit']}"
    show.plot(results.content, Path(f"{stem}.svg"))
    results.path.replace(f"{stem}.json")
    print(f"kept as {stem}.json and .svg")


if __name__ == "__main__":
    sys.exit(main())
