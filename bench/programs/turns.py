"""Contestants in turns, in one warm session, so that noise falls on all alike; a line of JSON for each run."""

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

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


def _cpu() -> float:
    """Seconds of the JVM, which is this program's parent."""
    fields = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
