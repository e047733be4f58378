"""Contestants in turns, in one warm session, so that noise falls on all alike; a line of JSON for each run."""

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

WARM_UP, RUNS = 2, 5  # the first rounds are for the compiler
TICKS = os.sysconf("SC_CLK_TCK")


def in_turns(
    contestants: Mapping[str, Callable[[], object]], clean: Callable[[], None], cpu: Callable[[], float] | None = None
) -> None:
    """Run each once before any runs again; `clean` comes after each. `cpu`: seconds that count, else the JVM's."""
    used_now = cpu or _cpu
    for number in range(-WARM_UP, RUNS):
        for name, run in contestants.items():
            began, used = time.perf_counter(), used_now()
            run()
            told = {"name": name, "seconds": time.perf_counter() - began, "cpu": used_now() - used}
            if number >= 0:
                print(json.dumps(told), flush=True)
            clean()


def cpu_of_all() -> float:
    """Seconds of the JVM, of this program, of Spark's Python workers, and of ended children."""
    jvm, used = psutil.Process(os.getppid()), 0.0
    for each in [jvm, *jvm.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            used += sum(each.cpu_times()[:4])
    return used


def _cpu() -> float:
    """Seconds of the JVM, which is this program's parent."""
    fields = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
