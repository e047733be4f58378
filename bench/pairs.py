"""`python -m bench.pairs OLD`: commits, plans and `txbatch status` here and in an older checkout, in pairs on one server.

OLD is the folder of the older checkout, where `make setup` has run. Each checkout has a process and databases of its own. A pair
is a run in both, one after the other; the next pair begins with the other checkout. The figures are medians of ratios of pairs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import show
from bench.database import Server, server
from bench.extras import PROGRAMS
from bench.measure import Figure, Stopwatch, paired
from bench.results import FOLDER, Results

ROOT = Path(__file__).parents[1]
OLD, NEW = "old", "new"
RATIO = "{0}, here / {0}, there"
# What is compared, and how often a pair runs each in either checkout: a single quick run differs too much from the next.
RUNS = {
    "commit of 100,000 rows": 2,
    "commit of 100,000 rows with contributions": 1,
    "commit of 33 keys": 1,
    "planning 1,000 batches, of files": 1,
    "planning 1,000 batches, train by train": 1,
    "planning 1,000 batches, by the hour": 1,
    "status among 100,000 txids": 1,
    "txbatch --version": 1,
}
EQUAL = [name for name in RUNS if name.startswith(("commit", "planning"))]
STATUS, VERSION = "status among 100,000 txids", "txbatch --version"
# What PostgreSQL does for status: its statements themselves, and all of it, with the catalog that a new session reads.
SERVER = {
    "own buffers": ("buffers of its statements", 0.05),
    "own server": ("time of its statements in the server", 0.05),
    "buffers": ("all buffers, with the catalog of a new session", None),
    "server": ("all time of the server, with the planning of a new session", None),
}
# No statement is tracked but those in databases that say so.
SETTINGS = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "none"}


@dataclass(frozen=True)
class Checkout:
    """A process with the code of a checkout."""

    name: str
    process: subprocess.Popen[str]

    def ask(self, *words: str) -> Stopwatch:
        """Have a contestant prepared or run, and return what the run took."""
        write, read = self.process.stdin, self.process.stdout
        assert write is not None
        assert read is not None
        write.write(json.dumps(words) + "\n")
        write.flush()
        for line in read:
            if line.startswith("{"):
                return Stopwatch(**json.loads(line))
        raise RuntimeError(f"the process of {self.name} has ended")


@contextmanager
def checkout(name: str, root: Path, running: Server) -> Iterator[Checkout]:
    """Context manager. A process in which the checkout at `root` is imported."""
    program = [str(root / ".venv" / "bin" / "python"), "-P", str(PROGRAMS / "pair.py")]
    environment = {**os.environ, "PYTHONPATH": str(root), "TXBATCH_HOME": str(running.home / f"home_{name}")}
    command, pipe = [*program, running.url, str(running.home), name], subprocess.PIPE
    with subprocess.Popen(command, cwd=root, env=environment, text=True, stdin=pipe, stdout=pipe) as process:
        yield Checkout(name, process)


def measure(old: Path, names: Sequence[str], pairs: int, results: Results) -> None:
    """Run the pairs; what is measured so far is kept after each."""
    with server(**SETTINGS) as running, ExitStack() as ending:
        both = [ending.enter_context(checkout(name, root, running)) for name, root in ((OLD, old), (NEW, ROOT))]
        for each in both:
            for name in names:
                print(f"    {each.name}: {name}, prepared in {each.ask('prepare', name).seconds:.1f} s", flush=True)
        runs: dict[str, list[Stopwatch]] = {}
        for number in range(pairs):
            for name in names:
                found = _pair(both[:: -1 if number % 2 else 1], name)
                for which, run in found.items():
                    runs.setdefault(f"{name}, {which}", []).append(run)
            _keep(results, names, runs)
            _tell(number, names, results)


def _pair(both: Sequence[Checkout], name: str) -> dict[str, Stopwatch]:
    """Return what each checkout took: in turns, and back again."""
    found: dict[str, list[Stopwatch]] = {each.name: [] for each in both}
    for number in range(RUNS[name]):
        for each in both[:: -1 if number % 2 else 1]:
            found[each.name].append(each.ask("run", name))
    which = {OLD: "there", NEW: "here"}
    return {which[of]: _mean(runs) for of, runs in found.items()}


def _mean(runs: Sequence[Stopwatch]) -> Stopwatch:
    many = len(runs)
    return Stopwatch(sum(run.seconds for run in runs) / many, sum(run.cpu for run in runs) / many, runs[-1].notes)


def _keep(results: Results, names: Sequence[str], runs: dict[str, list[Stopwatch]]) -> None:
    """Keep the runs with the ratios of their time, of their CPU and, of status, of what PostgreSQL did: for the whole command
    with the catalog that a new session reads, and for its statements themselves.
    """
    known = dict(runs)
    for name in (each for each in names if each in EQUAL):
        known |= _by(known, name, "CPU", lambda run: run.cpu)
        known |= paired(known, f"{name}, here", f"{name}, there")
    if STATUS in names:
        for what in SERVER:
            known |= _by(known, STATUS, what, partial(_noted, what))
    results.add("pairs", known, FIGURES, pairs=len(next(iter(runs.values()))))


def _by(
    runs: dict[str, list[Stopwatch]], name: str, what: str, value: Callable[[Stopwatch], float]
) -> dict[str, list[Stopwatch]]:
    """Return another number of the runs of a contestant as contestants, with their ratio."""
    found = {
        f"{name}, {what}, {which}": [Stopwatch(value(run)) for run in runs[f"{name}, {which}"]]
        for which in ("here", "there")
    }
    return found | paired(found, f"{name}, {what}, here", f"{name}, {what}, there")


def _noted(what: str, run: Stopwatch) -> float:
    return float(run.notes[what])


def _tell(number: int, names: Sequence[str], results: Results) -> None:
    ratios = results.content["sections"]["pairs"]["runs"]
    told = [f"{name}: {ratios[RATIO.format(name)][-1]:.3f}" for name in names if RATIO.format(name) in ratios]
    print(f"    pair {number + 1}: {'; '.join(told)}", flush=True)


FIGURES = [
    *(
        Figure(f"{name}{what}, in pairs", RATIO.format(f"{name}{what}"), None, 1.02, 1.0, unit=1)
        for name in EQUAL
        for what in ("", ", CPU")
    ),
    *(
        Figure(f"{STATUS}: {told}, in pairs", RATIO.format(f"{STATUS}, {what}"), None, most, unit=1)
        for what, (told, most) in SERVER.items()
    ),
    Figure("txbatch status here / txbatch --version there", f"{STATUS}, here", f"{VERSION}, there", 1.3, 1.1),
]


def main() -> int:
    """Compare, show the ratios, and keep the runs beside the results of a quick bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path, help="the folder of the older checkout")
    parser.add_argument("--pairs", type=int, default=10, help="how many pairs")
    parser.add_argument("--only", action="append", choices=sorted(RUNS), help="this contestant; may be given again")
    asked = parser.parse_args()
    path = FOLDER / ".pairs.json"
    path.unlink(missing_ok=True)
    results = Results(path)
    measure(asked.old.resolve(), asked.only or list(RUNS), asked.pairs, results)
    show.table(results.content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
