"""Calls of an installed wheel."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from slowness import slowness

ROOT = Path(__file__).parents[1]


def call(command: list[str], cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as somebody who knows nothing of this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TXBATCH", "PYTHON", "AIRFLOW"))}
    return subprocess.run(
        command, cwd=cwd, env=kept | variables, capture_output=True, text=True, timeout=300 * slowness()
    )
