"""The named statements of `sql/queries/`: a block begins with `-- name --`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from sqlalchemy import TextClause, text

from txbatch.places import packaged

_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)


def sql_root() -> Path:
    """Return the folder `sql/`: inside an installed package, or beside plugins/ in a checkout."""
    return packaged("sql")


@cache
def statements() -> dict[str, str]:
    """Return the text of every named statement."""
    found: dict[str, str] = {}
    for file in sorted((sql_root() / "queries").iterdir(), key=lambda each: each.name):
        parts = _NAME.split(file.read_text(encoding="utf-8"))[1:]
        found.update(zip(parts[::2], (body.strip().rstrip(";") for body in parts[1::2]), strict=True))
    return found


@cache
def query(name: str) -> TextClause:
    """Return a named statement, ready to execute with parameters."""
    return text(statements()[name])
