"""Programs that some tests need and PyPI lacks; `bin/test-tools` installs them. Without a program its tests do not run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

# Debian's package, by the names of its program, and the tests that do not run without.
TOOLS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "chromium": (
        ("chromium", "chromium-browser", "google-chrome"),
        "tests/ui and tests/airflow/test_pages*.py in a browser",
    ),
    "pgbouncer": (("pgbouncer",), "tests/postgres/test_source_pooler.py"),
}


def found(tool: str) -> str | None:
    """Return the path of a program, or None."""
    programs, _ = TOOLS[tool]
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
    return next(filter(None, (shutil.which(program, path=path) for program in programs)), None)


def missing() -> list[str]:
    """Return the programs that are not there."""
    return [tool for tool in TOOLS if found(tool) is None]


def told(without: list[str]) -> str:
    """Return what does not run without some programs.

    >>> told(["pgbouncer"])
    'Not run: tests/postgres/test_source_pooler.py, for want of pgbouncer: bin/test-tools installs it.'
    """
    tests = ", ".join(TOOLS[tool][1] for tool in without)
    them = "it" if len(without) == 1 else "them"
    return f"Not run: {tests}, for want of {' and '.join(without)}: bin/test-tools installs {them}."


def fails(without: list[str], ci: str | None) -> bool:
    """Return whether a run without some programs has failed: on CI all tests are to run."""
    return bool(without) and ci == "true"
