"""What a process pays before it does anything: a job file imported, the DAG files parsed, each against a floor, in CPU time."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from functools import partial

from bench.measure import Figure, Stopwatch, interleaved
from bench.results import Results
from txbatch import settings

TRIES = 2
_RUN = "import runpy, sys; [runpy.run_path(path) for path in sys.argv[1:]]"


def measure(section: str, results: Results) -> None:
    """Best of a few of each, with the bytecode there, as everywhere but at the first start."""
    root = settings.project_root()
    jobs, dags = ["jobs/word_count.py"], [str(path.relative_to(root)) for path in sorted((root / "dags").glob("*.py"))]
    programs = {
        "import sqlalchemy": ["import sqlalchemy"],
        "import a job": [_RUN, *jobs],
        "import airflow.sdk": ["import airflow.sdk"],
        "parse the DAG files": [f"import airflow.sdk; {_RUN}", *dags],
    }
    with tempfile.TemporaryDirectory(prefix="txbatch-bench.") as home:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"AIRFLOW_HOME": home, "PYTHONPYCACHEPREFIX": f"{home}/bytecode"}
        contestants = {name: partial(_best, program, environment) for name, program in programs.items()}
        results.add(section, interleaved(contestants), FIGURES, files=len(dags))


def _best(program: list[str], environment: dict[str, str], watch: Stopwatch) -> None:
    """Run a program a few times: what it used least is what it needs. The first one may write bytecode."""
    command = [sys.executable, "-P", "-c", *program]
    used = [_cpu(command, environment) for _ in range(1 + TRIES)]
    watch.seconds = watch.cpu = min(used[1:])


def _cpu(command: list[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, cwd=settings.project_root(), check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


FIGURES = [
    Figure("importing a job / importing sqlalchemy, CPU", "import a job", "import sqlalchemy", 0.45, 0.35),
    Figure("parsing the DAG files / importing airflow.sdk, CPU", "parse the DAG files", "import airflow.sdk", 1.6, 1.4),
]
SECTIONS = {"imports": measure}
