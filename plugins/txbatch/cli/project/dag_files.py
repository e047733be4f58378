"""Check for `txbatch doctor` that DAG and job files load, before Airflow or a run fails."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import txbatch
from txbatch.core.errors import JobNotLoaded, TxbatchError, without_codes
from txbatch.core.text import how_many
from txbatch.launch.job_file import Job, check_dag_files, check_emission, load_job

_SECONDS = 120
_FRAME = re.compile(r'^ *File "(.+)", line (\d+)', re.MULTILINE)
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+): (.+)$", re.MULTILINE)


def check_files(root: Path, check_job: Callable[[Job], None] = check_emission) -> str:
    """Describe how many DAG and job files of a project load. Raise DefinitionError with all failures and reasons.

    `check_job` raises if a loaded job is rejected for another reason.
    """
    check_dag_files(root / "dags")
    jobs = sorted((root.resolve() / "jobs").glob("*.py"))
    wrong = {str(job): error for job in jobs if (error := _load_error(job, check_job))}
    traces, dags = _import_errors(root / "dags") if any((root / "dags").rglob("*.py")) else ({}, 0)
    errors = [
        _told(root / "dags", file, trace)
        for file, trace in sorted(traces.items())
        if not any(f'"{job}"' in trace for job in wrong)  # listed with the job
    ]
    errors += wrong.values()
    if errors:
        raise JobNotLoaded("; ".join(_once(errors)))
    return f"{how_many(dags, 'DAG')} in dags/ and {how_many(len(jobs), 'job')} in jobs/ of {root} load"


def _once(errors: Iterable[tuple[str, str]]) -> list[str]:
    """Return each error once, after all its places."""
    places: dict[str, list[str]] = {}
    for place, why in errors:
        places.setdefault(why, []).append(place)
    return [f"{' and '.join(filter(None, (', '.join(at[:-1]), at[-1])))}: {why}" for why, at in places.items()]


def _load_error(job: Path, check_job: Callable[[Job], None]) -> tuple[str, str] | None:
    """Return the line and the reason if a job file does not load; None if the job file loads."""
    try:
        check_job(load_job(str(job)))
    except TxbatchError as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(job)]
        return f"jobs/{job.name}{f', line {lines[-1]}' if lines else ''}", str(error)
    return None


def _import_errors(dags: Path) -> tuple[dict[str, str], int]:
    """Return the tracebacks of Airflow's import errors, by file, and the number of DAGs."""
    with TemporaryDirectory(prefix="txbatch-") as home:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "_AIRFLOW"))}
        environment = kept | {
            "AIRFLOW_HOME": home,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGBAG_IMPORT_ERROR_TRACEBACK_DEPTH": "20",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "CRITICAL",
            "PYTHONPATH": os.pathsep.join([str(Path(txbatch.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
        }
        command = [sys.executable, "-m", "txbatch.orchestration.dag_bag", str(dags)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        raise JobNotLoaded(f"dags/ cannot be loaded: {''.join(last) or f'exit code {done.returncode}'}")
    found = json.loads(done.stdout.splitlines()[-1])
    return found["errors"], len(found["dags"])


def _told(dags: Path, name: str, trace: str) -> tuple[str, str]:
    """Return a DAG file with its last line in a traceback, and the raised error."""
    file = (dags / name).resolve()
    lines = [line for path, line in _FRAME.findall(trace) if Path(path).resolve() == file]
    kind, what = [("", trace.strip().rpartition("\n")[2]), *_RAISED.findall(trace)][-1]
    ours = without_codes(what) != what
    told = what if ours or not kind else f"{kind}: {what}"
    return f"dags/{name}{f', line {lines[-1]}' if lines else ''}", told
