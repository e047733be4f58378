"""What a topology's operations cost Spark, against the same plan written by hand, in one warm session."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench import corpus, extras
from bench.measure import Figure, Stopwatch
from bench.results import Results
from bench.words import Words
from txbatch.launch.submission import LOCAL_MASTER

FILES = ["text-0.txt", "text-1.txt"]  # 250 MB: not a short job, as of 1 GB


def measure(section: str, results: Results) -> None:
    """Seconds of wall and, under the name with CPU, of the JVM's processor time: on a busy machine that one tells."""
    corpus.ensure()
    what = Words.submission()
    conf = [part for name, value in what.conf.items() for part in ("--conf", f"{name}={value}")]
    with tempfile.TemporaryDirectory(prefix="txbatch-bench.") as home:
        program = [str(extras.PROGRAMS / "plan.py"), str(corpus.FOLDER), ",".join(FILES), f"{home}/partials"]
        command = [extras.spark_submit(), "--master", LOCAL_MASTER, *conf, "--py-files", what.py_files, *program]
        runs = told(command, what.environment)
    for suffix in ("", ", CPU"):
        pairs = zip(runs[f"plan{suffix}"], runs[f"audit{suffix}"], strict=True)
        runs[f"plan and audit{suffix}"] = [Stopwatch(one.seconds + other.seconds) for one, other in pairs]
    results.add(section, runs, FIGURES, files=len(FILES))


def told(command: list[str], environment: Mapping[str, str]) -> dict[str, list[Stopwatch]]:
    """Return what a program tells of its contestants, as it tells it; it finds others of its package."""
    root = str(Path(__file__).parents[1])
    environment = {**os.environ, **environment, "PYTHONPATH": root}
    runs: dict[str, list[Stopwatch]] = {}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as program:
        for line in program.stdout or ():
            if not line.startswith('{"name"'):
                continue
            each = json.loads(line)
            print(f"    {each['name']}: {each['seconds']:.3f} s, CPU {each['cpu']:.3f} s", flush=True)
            runs.setdefault(each["name"], []).append(Stopwatch(each["seconds"], each["cpu"]))
            runs.setdefault(f"{each['name']}, CPU", []).append(Stopwatch(each["cpu"], each["cpu"]))
    if program.returncode:
        raise RuntimeError(f"{command[-4]} ended with {program.returncode}")
    return runs


FIGURES = [
    Figure("topology's Spark plan / hand-written PySpark", "plan", "by hand", 1.05, 1.0),
    Figure("topology's Spark plan / hand-written PySpark, CPU", "plan, CPU", "by hand, CPU", 1.05, 1.0),
    Figure("plan and audit of the source (R7) / hand-written, CPU", "plan and audit, CPU", "by hand, CPU"),
]
SECTIONS = {"Spark plan": measure}
