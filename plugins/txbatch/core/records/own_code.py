"""A job's own code: modules not installed for Python. Modules of txbatch and Spark travel in other ways."""

from __future__ import annotations

from functools import cache
from pathlib import PurePath
from types import ModuleType

_NOT_THE_JOBS = ("txbatch", "pyspark", "py4j")


def is_own(module: str, file: str | None) -> bool:
    """True if a module with this file is the job's, or was written beside the job's file, wherever the job is unpacked."""
    package = module.partition(".")[0]
    return module == "__main__" or (
        package not in _NOT_THE_JOBS and file is not None and not is_installed(PurePath(file))
    )


def lies_in(module: ModuleType | None, folder: str) -> bool:
    """True if a module is the job's own, and the module's file is in a folder."""
    file = getattr(module, "__file__", None)
    return (
        module is not None
        and file is not None
        and PurePath(file).is_relative_to(folder)
        and is_own(module.__name__, file)
    )


def is_installed(file: PurePath) -> bool:
    """True if a file is in the place of Python's own modules, or of installed modules."""
    return any(file.is_relative_to(folder) for folder in _installed())


@cache
def _installed() -> frozenset[str]:
    import sysconfig  # slow, and needed only once there is a function

    return frozenset(map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))
