"""All generated pages by their names; the page on SQL needs a ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from docs.generate.commands import commands
from docs.generate.python_names import dags, jobs, reports, testing
from docs.generate.settings import settings
from docs.generate.sql import sql as sql

REFERENCE = Path(__file__).parents[1] / "reference"
SQL = "sql"
PAGES: Mapping[str, Callable[[], str]] = {
    "python-jobs": jobs,
    "python-dags": dags,
    "python-reports": reports,
    "python-testing": testing,
    "commands": commands,
    "settings": settings,
}


def file_of(name: str) -> Path:
    """Return the file of a page."""
    return REFERENCE / f"{name}.md"
