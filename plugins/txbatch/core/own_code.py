"""Which code is a job's own: what lies in its folders, and is not installed for Python there."""

from __future__ import annotations

from functools import cache
from pathlib import PurePath
from types import ModuleType


def lies_in(module: ModuleType | None, folder: str) -> bool:
    """True if a module's file is in a folder, and not in an environment of Python that lies there."""
    file = PurePath(getattr(module, "__file__", None) or "")
    return bool(folder) and file.is_relative_to(folder) and not is_installed(file)


def is_installed(file: PurePath) -> bool:
    """True if a file is in the place of Python's own modules, or of those that are installed."""
    return any(file.is_relative_to(folder) for folder in _installed())


@cache
def _installed() -> frozenset[str]:
    import sysconfig  # slow, and needed only once there is a function

    return frozenset(map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))
