"""What operations within a batch cost Spark, against the same by hand in one warm session; and what defining a topology costs."""

from __future__ import annotations

import subprocess
import sys
import tempfile

from bench import extras
from bench.measure import Figure, Stopwatch
from bench.plan import told
from bench.results import Results
from bench.words import Words
from txbatch.launch.submission import LOCAL_MASTER

DEFINITIONS = 5


def measure(section: str, results: Results) -> None:
    """Seconds of wall and, under the name with CPU, of the JVM's processor time; of definitions, each in a process of its own."""
    runs = warm("language.py")
    runs["definition"] = [_definition() for _ in range(DEFINITIONS)]
    results.add(section, runs, FIGURES)


def warm(program: str) -> dict[str, list[Stopwatch]]:
    """Return what a program tells of its contestants, which it runs in one session; it is given a folder for their records."""
    what = Words.submission()
    conf = [part for name, value in what.conf.items() for part in ("--conf", f"{name}={value}")]
    with tempfile.TemporaryDirectory(prefix="txbatch-bench.") as home:
        run = [str(extras.PROGRAMS / program), f"{home}/records"]
        command = [extras.spark_submit(), "--master", LOCAL_MASTER, *conf, "--py-files", what.py_files, *run]
        return told(command, what.environment)


def _definition() -> Stopwatch:
    command = [sys.executable, str(extras.PROGRAMS / "definition.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Stopwatch(float(done.stdout))


FIGURES = [
    Figure(
        "aggregate of five values by key / hand-written, CPU", "aggregate, CPU", "aggregate by hand, CPU", 1.05, 1.0
    ),
    Figure("join of two streams / hand-written, CPU", "join, CPU", "join by hand, CPU", 1.05, 1.0),
    Figure("aggregate / hand-written", "aggregate", "aggregate by hand"),
    Figure("join / hand-written", "join", "join by hand"),
    Figure("definition of 50 operations, in ms", "definition", None, 20, 5),
]
SECTIONS = {"language": measure}
