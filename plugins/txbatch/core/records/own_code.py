"""Which code is a job's own: what is not installed for Python, and neither ours nor Spark's, which come in their own ways."""

from __future__ import annotations

from functools import cache
from pathlib import PurePath
from types import ModuleType

_NOT_THE_JOBS = ("txbatch", "pyspark", "py4j")


def is_own(module: str, file: str | None) -> bool:
    """True if a module, whose file this is, is the job's, or was written beside it, wherever that is unpacked."""
    package = module.partition(".")[0]
    return module == "__main__" or (
        package not in _NOT_THE_JOBS and file is not None and not is_installed(PurePath(file))
    )


def lies_in(module: ModuleType | None, folder: str) -> bool:
    """True if a module is the job's own, and its file is in a folder."""
    file = getattr(module, "__file__", None)
    return (
        module is not None
        and file is not None
        and PurePath(file).is_relative_to(folder)
        and is_own(module.__name__, file)
    )


def is_installed(file: PurePath) -> bool:
    """True if a file is in the place of Python's own modules, or of those that are installed."""
    return any(file.is_relative_to(folder) for folder in _installed())


@cache
def _installed() -> frozenset[str]:
    import sysconfig  # slow, and needed only once there is a function

    return frozenset(map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))
