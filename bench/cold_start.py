"""Cold start: a trivial job as we submit it, against the same program under a stock spark-submit."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from bench import batches
from bench.measure import Figure, Stopwatch, interleaved
from bench.results import Results
from txbatch import settings
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.launch.job_file import Job
from txbatch.launch.submission import Submission, submission

PROGRAM = Path(__file__).with_name("trivial_job.py")


def measure(section: str, results: Results) -> None:
    """Five of each, one after the other."""
    contestants = {"stock spark-submit": partial(_run, ()), "txbatch": partial(_run, None)}
    results.add(section, interleaved(contestants), FIGURES)


FIGURES = [Figure("trivial job / stock spark-submit", "txbatch", "stock spark-submit", 0.5, 0.4)]
SECTIONS = {"cold start": measure}


def _run(conf: tuple[str, ...] | None, watch: Stopwatch) -> None:
    ours = _submission()
    environment = {"JAVA_HOME": ours.environment["JAVA_HOME"], "SPARK_HOME": ours.environment["SPARK_HOME"]}
    if conf is None:
        conf = tuple(part for key, value in ours.conf.items() for part in ("--conf", f"{key}={value}"))
        environment = {**ours.environment}
    command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[*]", *conf, str(PROGRAM)]
    with watch.timed():
        subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True)


def _submission() -> Submission:
    """How a small batch is submitted; of its application only the conf is used."""
    job = Job("bench/trivial_job.py", PROGRAM, batches.topology(contributions=True), "0" * 64)
    metadata = {"format": 1, "streams": {"keys": {"number": 1}}}  # of a few bytes, as its spout says
    assignment = Assignment("bench", TransactionAttempt(1, 1), "token", metadata, "0" * 64)
    return submission(job, assignment, "memory://bench", settings.home(), local=True)
