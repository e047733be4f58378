"""`python -m bench`: measure, keep, show."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from bench import (
    closings,
    cold_start,
    commit,
    corrections,
    distinct,
    following,
    growth,
    imports,
    in_airflow,
    language,
    ledger,
    looking_back,
    measure,
    memory,
    new_values,
    open_pages,
    own_combiners,
    pages,
    plan,
    planning,
    sessions,
    show,
    small_commits,
    small_files,
    tables,
    topics,
    wide,
    windows,
    words,
    year,
)
from bench.results import FOLDER, Results

SECTIONS: dict[str, Callable[[str, Results], None]] = {
    **commit.SECTIONS,
    **small_commits.SECTIONS,
    **planning.SECTIONS,
    **small_files.SECTIONS,
    **looking_back.SECTIONS,
    **growth.SECTIONS,
    **ledger.SECTIONS,
    **corrections.SECTIONS,
    **pages.SECTIONS,
    **open_pages.SECTIONS,
    **cold_start.SECTIONS,
    **imports.SECTIONS,
    **plan.SECTIONS,
    **language.SECTIONS,
    **new_values.SECTIONS,
    **distinct.SECTIONS,
    **own_combiners.SECTIONS,
    **wide.SECTIONS,
    **windows.SECTIONS,
    **sessions.SECTIONS,
    **closings.SECTIONS,
    **year.SECTIONS,
    **tables.SECTIONS,
    **topics.SECTIONS,
    **following.SECTIONS,
    **in_airflow.SECTIONS,
    **memory.SECTIONS,
    **words.SECTIONS,
}
QUICK = ("commit 100 k", "cold start", "imports")  # under three minutes, with three runs each
# Many batches by one call, and following: by reckoning 25 minutes, as what is over half a minute is run once.
CATCHING_UP = (
    "365 daily batches",
    "planning 1,000 batches",
    "small commit",
    "ten thousand small files",
    "a year in Airflow",
    "an idle Airflow",
    "following",
)
CURRENT = FOLDER / ".current.json"


def main() -> int:
    """Run the sections that are not there yet; a whole run is kept under its date. 1: a section failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the short sections alone, kept nowhere")
    parser.add_argument("--catching-up", action="store_true", help="what catches up and follows alone, kept nowhere")
    parser.add_argument("--only", action="append", choices=sorted(SECTIONS), help="this section; may be given again")
    parser.add_argument("--afresh", action="store_true", help="forget what an interrupted run measured")
    parser.add_argument("--once", action="store_true", help="every contestant once: a rough try, kept nowhere")
    asked = parser.parse_args()
    chosen = QUICK if asked.quick else CATCHING_UP if asked.catching_up else asked.only
    if asked.once or asked.quick or asked.catching_up:
        measure.REPEATS[:] = [] if asked.once else [(30, 3)]
    whole = not (chosen or asked.once)
    results = _begin(CURRENT if whole else FOLDER / ".quick.json", afresh=asked.afresh or not whole)
    failed = _run(chosen or list(SECTIONS), results)
    show.table(results.content)
    if failed:
        print(f"not measured: {', '.join(failed)}; see above, and call again", file=sys.stderr)
        return 1
    if whole:
        _keep(results)
    return 0


def _begin(path: Path, *, afresh: bool) -> Results:
    if afresh:
        path.unlink(missing_ok=True)
    return Results(path)


def _run(names: Iterable[str], results: Results) -> list[str]:
    """The names of the sections that failed; each failure is shown, and the others are measured."""
    failed = []
    for name in names:
        if results.has(name):
            print(f"{name}: measured before the interruption", flush=True)
            continue
        print(f"{name}:", flush=True)
        began = time.monotonic()
        try:
            SECTIONS[name](name, results)
        except Exception:
            traceback.print_exc()
            failed.append(name)
        else:
            results.took(name, time.monotonic() - began)
    return failed


def _keep(results: Results) -> None:
    stem = FOLDER / f"{datetime.now(UTC):%Y-%m-%d}-{results.content['commit']}"
    show.plot(results.content, Path(f"{stem}.svg"))
    results.path.replace(f"{stem}.json")
    print(f"kept as {stem}.json and .svg")


if __name__ == "__main__":
    sys.exit(main())
