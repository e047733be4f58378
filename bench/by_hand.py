"""Programs of one's own, submitted as `txbatch run` submits a short job: with our configuration and class archive."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bench import extras
from bench.words import Command
from txbatch import settings
from txbatch.launch.job_file import load_job
from txbatch.launch.submission import application


def submitted_as(job: Path, program: str, *arguments: str, told: Mapping[str, str] | None = None) -> Command:
    """Return the spark-submit of a program of bench/programs, as that job would be; `told` is more of its environment."""
    ours = application(load_job(str(job)), "by hand", [], settings.home(), local=True, short=True)
    conf = [part for name, value in ours.conf.items() for part in ("--conf", f"{name}={value}")]
    words = [extras.spark_submit(), "--master", "local[*]", *conf, str(extras.PROGRAMS / program), *arguments]
    return Command(words, {**os.environ, **ours.environment, **(told or {})})
