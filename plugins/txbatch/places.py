"""Where things lie: in a checkout of this project, or in an installed package."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def in_checkout() -> bool:
    """Return whether the package lies in a checkout's plugins/, and not in an environment's site-packages."""
    return not (_PACKAGE / "_sql").is_dir()


def packaged(name: str) -> Path:
    """Return the folder `name` of the project: beside plugins/ in a checkout, inside an installed package."""
    return _PACKAGE.parents[1] / name if in_checkout() else _PACKAGE / f"_{name}"


def error_pages() -> Path:
    """Return the file with a page for each error code."""
    return _PACKAGE.parents[1] / "docs" / "errors.md" if in_checkout() else _PACKAGE / "_errors.md"


def site() -> Path:
    """Return the first page of the documentation that `make docs` builds in a checkout."""
    return _PACKAGE.parents[1] / ".txbatch" / "site" / "docs" / "index.html"


def project_root() -> Path:
    """Return the checkout, or the nearest project at or above the working directory, or at last the working directory."""
    if in_checkout():
        return _PACKAGE.parents[1]
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if is_project(folder)), here)


def is_project(folder: Path) -> bool:
    """Return whether a folder has dags/ and jobs/, and is not writable by everybody."""
    # A folder that may not be entered is none: Path.is_dir raises there.
    there = all(os.path.isdir(folder / part) for part in ("dags", "jobs"))
    return there and not folder.stat().st_mode & stat.S_IWOTH


def command(name: str) -> str:
    """Return how to call the command `up`, `down` or `demo`: by make in a checkout, by `txbatch` elsewhere."""
    return f"{'make' if in_checkout() else 'txbatch'} {name}"


def install(extra: str) -> str:
    """Return the next step if packages are missing: `make setup` in a checkout, an extra of txbatch elsewhere."""
    return "run `make setup`" if in_checkout() else f"run `pip install 'txbatch[{extra}]'`"
