"""`txbatch init`: create a project of the user's own, with one working example."""

from __future__ import annotations

import json
import logging
import shutil
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory

from txbatch import __version__, settings
from txbatch.core.errors import ProjectInTheWay
from txbatch.core.text import one_line
from txbatch.places import packaged, project_root

log = logging.getLogger(__name__)
_FILLED_IN = ("README.md", "requirements.txt")
_CITED = 5


def make_project(folder: Path) -> list[str]:
    """Create a project in an empty or missing folder, and return its files. Raise DefinitionError if impossible."""
    folder = folder.resolve()
    settings.check_fit(folder / ".txbatch")
    try:
        _check_free(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent, prefix=".txbatch-init.") as scratch:
            made = Path(scratch, "project")
            _fill(made, folder.name)
            made.rename(folder)  # whole or not at all; also onto an empty folder
    except OSError as error:
        raise ProjectInTheWay(
            f"cannot make a project in {folder}: {error.strerror or error}; name another folder"
        ) from error
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def _check_free(folder: Path) -> None:
    """Raise DefinitionError with the names of files in the way."""
    if folder.exists() and not folder.is_dir():
        raise ProjectInTheWay(f"{folder} is a file: name another folder")
    found = sorted(each.name for each in folder.iterdir()) if folder.exists() else []
    if found:
        more = f" and {len(found) - _CITED} more" if len(found) > _CITED else ""
        names = ", ".join(one_line(name, 60) for name in found[:_CITED])
        raise ProjectInTheWay(f"{folder} is not empty, {names}{more} is in the way: name another folder, or empty it")


def _fill(folder: Path, name: str) -> None:
    shutil.copytree(packaged("starter"), folder, ignore=shutil.ignore_patterns("__pycache__"))
    values = {"name": name, "version": __version__, "source": _source()}
    for filled in _FILLED_IN:
        file = folder / filled
        file.write_text(Template(file.read_text(encoding="utf-8")).substitute(values).lstrip("\n"), encoding="utf-8")


def _source() -> str:
    """Return pip's option for the source of this package, if installed from a wheel in a folder, or run from a
    checkout; or an empty text.
    """
    try:
        url = json.loads(distribution("txbatch").read_text("direct_url.json") or "{}").get("url", "")
    except PackageNotFoundError:
        wheels = project_root() / "dist"
        if not any(wheels.glob(f"txbatch-{__version__}-*.whl")):
            told = "%s has no wheel of txbatch %s, which requirements.txt names: run `make wheel` in the checkout first"
            log.warning(told, wheels, __version__)
        return f"--find-links {wheels.as_uri()}"
    return f"--find-links {url.rpartition('/')[0]}" if url.startswith("file:") and url.endswith(".whl") else ""
